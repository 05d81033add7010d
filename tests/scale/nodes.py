"""One server among several: a node of a cluster, a primary, a replica or a sentinel."""

import ctypes
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import hiredis

from duly._core.topology import Node
from tests.binaries import Kind
from tests.scale.network import Host
from tests.servers import LOOPBACK, Server

_libc = ctypes.CDLL(None)
_TIMEOUT: Final = 5.0

SETTINGS: Final = {
    "appendonly": "yes",
    "repl-diskless-sync-delay": "0",  # 5 s by default
    "repl-ping-replica-period": "1",  # 10 s by default; CLUSTER SLOTS of Redis 7.0 lists a replica after the first one
    "repl-timeout": "10",
}
"""Those of every server that stores data."""

YEARS: Final = 10**9
"""In seconds, about 30 years: a timeout that never ends."""


class Refused(Exception):
    """A server answered with an error."""


class RigNode(Server):
    """A server that keeps its configuration through restarts, as it or a sentinel has rewritten it."""

    def __init__(
        self,
        kind: Kind,
        config: Mapping[str, str],
        host: Host | None = None,
        environment: Mapping[str, str] = {},
    ) -> None:
        self._network_host = host
        self.host = LOOPBACK if host is None else host.ip
        self._is_tls = "tls-cert-file" in config
        super().__init__(kind, {**config, "bind": self.host, "protected-mode": "no"}, environment)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node}>"

    @property
    def node(self) -> Node:
        """Its address, as in `duly`."""
        return Node(self.host, self.port)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def network_host(self) -> Host:
        """The host that it runs on, in a rig with a network."""
        assert self._network_host is not None, "this rig has no network that can be cut"
        return self._network_host

    def run(self, *command: Any) -> Any:
        """Run a command and return the reply. Works even on a node that is cut off from the network."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(str(self.socket))
            connection.sendall(hiredis.pack_command(tuple(command)))
            reader = hiredis.Reader()
            while (reply := reader.gets()) is False:
                received = connection.recv(1 << 16)
                if not received:
                    raise ConnectionError(f"{self} has closed the connection")
                reader.feed(received)
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(f"{self} answered {command[:3]}: {reply}")
        return reply

    def info(self, section: str) -> dict[str, str]:
        """Run INFO for a section."""
        lines = self.run("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    @property
    def is_in_step(self) -> bool:
        """Whether it is a replica with a working link. The primary calls it online earlier, when it may be empty."""
        return self.info("replication").get("master_link_status") == "up"

    def _use_tls_port(self) -> None:
        """Give a server with a certificate no other port than one for TLS."""
        if self._is_tls:
            self.config = {**self.config, "port": "0", "tls-port": str(self.port)}

    def _write_config(self, path: Path) -> None:
        self._use_tls_port()
        if not path.exists():
            super()._write_config(path)

    @property
    def _before_start(self) -> Callable[[], None] | None:
        host = self._network_host
        return None if host is None else lambda: _libc.setns(host.descriptor, 0)


def is_alive(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
