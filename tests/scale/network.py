"""A network that can be cut: hosts in network namespaces, joined by a bridge. The test process is on it as well.

Making one needs the rights of root. `is_allowed` returns whether this machine grants them.
"""

import contextlib
import functools
import itertools
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

_PREFIX: Final = "dly"
"""Of the names of bridges and namespaces: at most 15 characters with a process id and two numbers."""
_NAMESPACES: Final = Path("/run/netns")
_counter: Final = itertools.count()


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def is_allowed() -> bool:
    """Return whether a network can be made here."""
    try:
        with Network() as network:
            network.add_host()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    ip: str
    descriptor: int = field(repr=False)
    """Of the namespace, to start a process in it."""


class Network:
    """A bridge with hosts. `cut` separates hosts from each other, and the test process reaches all of them."""

    def __init__(self) -> None:
        _sweep()
        self._name = f"{_PREFIX}{os.getpid()}n{next(_counter)}"
        """Of the bridge. With a number, it is the name of a host and of the bridge's end of the cable to it."""
        self._hosts: list[Host] = []
        self._subnet = _free_subnet()
        self.gateway = f"{self._subnet}.1"
        """The address of the test process."""
        _ip("link", "add", self._name, "type", "bridge")
        try:
            _ip("addr", "add", f"{self.gateway}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
        except OSError:
            self.close()
            raise

    def add_host(self) -> Host:
        """Add a host."""
        number = len(self._hosts) + 2
        name = f"{self._name}-{number}"
        _ip("netns", "add", name)
        host = Host(name, f"{self._subnet}.{number}", os.open(_NAMESPACES / name, os.O_RDONLY))
        self._hosts.append(host)
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", self._name, "up")
        _ip("-n", name, "addr", "add", f"{host.ip}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "eth0", "up")
        return host

    def cut(self, one_side: Iterable[Host], other_side: Iterable[Host]) -> None:
        """Drop all packets between two sides, in both directions. Connections stay open and silent."""
        for one, other in itertools.product(one_side, list(other_side)):
            self._drop(one, other.ip)
            self._drop(other, one.ip)

    def cut_from_test(self, host: Host) -> None:
        """Drop all packets between a host and the test process."""
        self._drop(host, self.gateway)

    def heal(self) -> None:
        """End all cuts."""
        for host in self._hosts:
            _ip("-n", host.name, "route", "flush", "type", "blackhole")

    def _drop(self, host: Host, ip: str) -> None:
        _ip("-n", host.name, "route", "replace", "blackhole", f"{ip}/32")

    def close(self) -> None:
        """Remove it. End its processes first."""
        hosts, self._hosts = self._hosts, []
        for host in hosts:
            os.close(host.descriptor)
            for kind in ("link", "netns"):
                _remove(kind, host.name)
        _remove("link", self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_subnet() -> str:
    """Choose a subnet that no other test process has."""
    taken = _ip("-o", "addr")
    for number in itertools.count(os.getpid()):
        subnet = f"10.{192 + number // 256 % 64}.{number % 256}"
        if f" {subnet}." not in taken:
            return subnet
    raise AssertionError


def _sweep() -> None:
    """Remove the networks of test processes that were killed."""
    for kind, listed in (("netns", _ip("netns", "list")), ("link", _ip("-o", "link", "show", "type", "bridge"))):
        for name, pid in re.findall(rf"\b({_PREFIX}(\d+)n[\d-]+)", listed):
            if not Path(f"/proc/{pid}").exists():
                _remove(kind, name)


def _remove(kind: str, name: str) -> None:
    with contextlib.suppress(OSError):  # it may be gone already
        _ip(kind, "del", name)
