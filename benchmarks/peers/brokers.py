"""The servers of all parties: private processes on loopback ports, empty at the start and gone at the end.

None is a service of the system. Each runs in a separate directory, and is ended with its whole session.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import redis

from duly.embedded.binary import find_binary

HOST: Final = "127.0.0.1"
_RABBITMQ: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The script itself: the one on the PATH changes to another user."""


class BrokerMissing(Exception):
    """A server is not installed, or did not start."""


@dataclass(frozen=True)
class Launch:
    """How a server is started on a port."""

    commands: list[list[str]]
    url: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Broker:
    """A server that runs."""

    kind: str
    url: str
    port: int
    processes: list["subprocess.Popen[bytes]"]

    def cpu(self) -> float:
        """Seconds of processor time that all threads of the server have used."""
        stats = [stat for pid in self._pids() for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(_read(stat).split()[0] or 0) for stat in stats) / 1e9

    def memory(self) -> int:
        """The bytes that Valkey reports as used; for another server, the memory of its processes."""
        if self.kind.startswith("valkey"):
            with redis.Redis(HOST, self.port) as client:
                return int(client.info("memory")["used_memory"])
        pages = [int(_read(Path(f"/proc/{pid}/statm")).split()[1]) for pid in self._pids()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def _pids(self) -> list[int]:
        """List the processes of the sessions that were started."""
        sessions = {str(process.pid) for process in self.processes}
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            fields = _read(entry).rpartition(")")[2].split()
            if len(fields) > 3 and fields[3] in sessions:
                found.append(int(entry.parent.name))
        return found


def _read(path: Path) -> str:
    try:
        return path.read_text() or "0 0"
    except (FileNotFoundError, ProcessLookupError):
        return "0 0"  # the process or the thread has just ended


def _valkey(port: int, directory: str, *persistence: str) -> Launch:
    usual = ["--port", str(port), "--bind", HOST, "--save", "", "--dir", directory]
    return Launch(
        [[str(find_binary()), *usual, *(persistence or ("--appendonly", "no"))]], f"redis://{HOST}:{port}/0", {}
    )


def _valkey_always(port: int, directory: str) -> Launch:
    return _valkey(port, directory, "--appendonly", "yes", "--appendfsync", "always")


def _rabbitmq(port: int, directory: str) -> Launch:
    if not Path(_RABBITMQ).exists():
        raise BrokerMissing("rabbitmq-server is not installed")
    epmd = free_port()
    environment = {
        "HOME": directory,
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_CONFIG_FILE": f"{directory}/none",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
        "RABBITMQ_MNESIA_BASE": f"{directory}/data",
        "RABBITMQ_LOG_BASE": f"{directory}/log",
        "RABBITMQ_PID_FILE": f"{directory}/pid",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    Path(directory, "plugins").write_text("[].\n")
    commands = [["epmd", "-port", str(epmd), "-address", HOST], [_RABBITMQ]]
    return Launch(commands, f"amqp://guest:guest@{HOST}:{port}/", environment)


def _nats(port: int, directory: str) -> Launch:
    return Launch(
        [[_found("nats-server"), "-js", "-a", HOST, "-p", str(port), "-sd", directory]], f"nats://{HOST}:{port}", {}
    )


def _beanstalkd(port: int, directory: str) -> Launch:
    limits = ["-b", directory, "-z", str(2**21)]
    return Launch([[_found("beanstalkd"), "-l", HOST, "-p", str(port), *limits]], f"beanstalkd://{HOST}:{port}", {})


def _found(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise BrokerMissing(f"{program} is not installed")
    return path


BROKERS: Final[Mapping[str, Callable[[int, str], Launch]]] = {
    "valkey": _valkey,
    "valkey-always": _valkey_always,
    "rabbitmq": _rabbitmq,
    "nats": _nats,
    "beanstalkd": _beanstalkd,
}


def version(kind: str) -> str:
    """Name the version of a server. Empty if it is not installed, and for Valkey, which the rig names."""
    try:
        if kind == "rabbitmq":
            return next((path.name.rpartition("-")[2] for path in Path("/usr/lib/rabbitmq/lib").glob("*-*")), "")
        if kind in _VERSION_COMMANDS:
            program, option = _VERSION_COMMANDS[kind]
            printed = subprocess.run([_found(program), option], capture_output=True, text=True, check=True).stdout
            return printed.split()[-1].removeprefix("v")
    except BrokerMissing:
        pass
    return ""


_VERSION_COMMANDS: Final = {"nats": ("nats-server", "--version"), "beanstalkd": ("beanstalkd", "-v")}


@contextmanager
def running(kind: str) -> Iterator[Broker]:
    """Start a server, wait until it answers, and end it."""
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        launch = BROKERS[kind](port, directory)
        log = Path(directory, "output")
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command in launch.commands:
                process = _start(command, launch.environment, log)
                processes.append(process)
            _wait_for(port, processes, log)
            yield Broker(kind, launch.url, port, processes)
        finally:
            for process in reversed(processes):
                _end(process)


def _start(command: list[str], environment: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its session. Nothing that it has stored is needed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(port: int, processes: list["subprocess.Popen[bytes]"], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not answers(port):
        if any(process.poll() is not None for process in processes) or time.monotonic() > deadline:
            words = log.read_text(errors="replace").strip()[-500:]
            raise BrokerMissing(f"{processes[-1].args!r} did not start: {words}")
        time.sleep(0.02)


def answers(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Find a port on the loopback interface that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
