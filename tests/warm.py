"""Starts Python programs that use Duly without the price of their imports, most of what a short process costs.

`WarmPopen` is `subprocess.Popen` for commands that begin with `sys.executable`. One warm process per test session has
imported Duly and forks for each command. The new process has its own arguments, variables, directory and standard
streams, it is a child of the test like any other, and the kernel kills it when the test run ends.
"""

import atexit
import ctypes
import gc
import io
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[1]
_SET_SUBREAPER: Final = 36
_DIE_WITH_PARENT: Final = 1
_LENGTH: Final = struct.Struct("<I")
_STREAMS: Final = 3
_KNOWN_VARIABLES: Final = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})
"""Variables of Python that a forked process applies. With any other, a new Python starts."""


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# --- The side of the test ----------------------------------------------------------------------------------


class _Forker:
    """The warm process, as the test sees it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=_ROOT, start_new_session=True)
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Start a process with these standard streams; return its id. It becomes a child of this process."""
        # The warm process forks twice and the process in between ends: the kernel then gives its child to the nearest
        # ancestor that asked for orphans, and that is this process for the moment.
        _prctl(_SET_SUBREAPER, 1)
        try:
            text = json.dumps(request).encode()
            socket.send_fds(self._socket, [_LENGTH.pack(len(text))], streams)
            self._socket.sendall(text)
            return int(_LENGTH.unpack(_received(self._socket, _LENGTH.size))[0])
        finally:
            _prctl(_SET_SUBREAPER, 0)


_starting: Final = threading.Lock()
"""Threads of a test may start processes at the same time."""


@cache
def _forker() -> _Forker:
    return _Forker()


class WarmPopen(subprocess.Popen[Any]):
    """A process forked from the warm one. Commands that need their own Python start one."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        (executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *others) = rest
        p2cread, _, _, c2pwrite, _, errwrite = pipes = others[:6]
        start_new_session = others[11]
        if not _can_be_forked(args, env):
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        assert (executable, preexec_fn, pass_fds, shell) == (None, None, (), False), args
        request = {
            "words": [os.fspath(word) for word in args[1:]],
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or Path.cwd()),
            "has_own_session": bool(start_new_session),
        }
        streams = [number if given == -1 else given for number, given in enumerate((p2cread, c2pwrite, errwrite))]
        try:
            with _starting:
                self.pid = _forker().fork(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(words: list[str], *, timeout: float, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as `subprocess.run` does, and return what it printed."""
    with WarmPopen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _can_be_forked(args: Any, env: Mapping[str, str] | None) -> bool:
    given = os.environ if env is None else env
    changed = {name for name in {*given, *os.environ} if given.get(name) != os.environ.get(name)}
    if given.get("PYTHONUTF8") == "1":  # every forked process reads and writes UTF-8
        changed.discard("PYTHONUTF8")
    return (
        sys.platform == "linux"
        and args[0] == sys.executable
        and (args[1] in ("-m", "-c") or args[1:3] == ["-W", "error"] or not args[1].startswith("-"))
        and not any(name.startswith("PYTHON") for name in changed - _KNOWN_VARIABLES)
    )


# --- The warm process --------------------------------------------------------------------------------------


def _received(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _import_everything() -> None:
    import rich.markdown  # what a page of help needs
    import rich.traceback  # noqa: F401

    import duly.testing
    import duly.worker  # noqa: F401
    from duly.cli import main

    # It needs no server, and it loads every script.
    sys.argv = ["duly", "acl", "--role", "admin", "--server", "valkey-9.1"]
    with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main()
    gc.freeze()  # a process that ends need not scan the objects that it has inherited


def _request_for_this_process(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Return the request in the new process, and None when the test run is over."""
    while True:
        head, streams, _, _ = socket.recv_fds(requests, _LENGTH.size, _STREAMS)
        if not head:
            return None
        request = json.loads(_received(requests, *_LENGTH.unpack(head)))
        test = os.getppid()
        pids, written = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            pid = os.fork()
            if pid == 0:
                _become(request, streams, requests, test, between)
                return dict(request)
            os.write(written, _LENGTH.pack(pid))
            os._exit(0)
        os.waitpid(between, 0)
        requests.sendall(os.read(pids, _LENGTH.size))
        for number in (*streams, pids, written):
            os.close(number)


def _become(request: dict[str, Any], streams: list[int], requests: socket.socket, test: int, between: int) -> None:
    """Apply the request, once this process is a child of the test."""
    while os.getppid() == between:
        time.sleep(0.0001)
    _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != test:  # the test run has ended
        os._exit(1)
    requests.close()
    for number, given in enumerate(streams):
        os.dup2(given, number)
    os.closerange(_STREAMS, 256)
    if request["has_own_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    is_unbuffered = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty(), write_through=is_unbuffered)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr.reconfigure(line_buffering=True)


def _run(words: list[str]) -> None:
    """Do what `python words` does."""
    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        words = words[2:]
    kind, *rest = words
    if kind == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)
    else:
        sys.path[0] = str(Path(kind).resolve().parent)
        sys.argv = words
        runpy.run_path(kind, run_name="__main__")


def _run_to_its_end(words: list[str]) -> None:
    """Do what `python words` does, but leave it to the kernel to free what this process has inherited."""
    try:
        _run(words)
        status = 0
    except SystemExit as exit_:
        if not isinstance(exit_.code, int | None):
            raise  # Python prints it
        status = exit_.code or 0
    # From here on, what Python does before it clears all modules, which takes 25 ms after a fork.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if (program := sys.modules["__main__"].__dict__) is not globals():
        program.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # Python has its own status for this
            sys.exit(status)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    if (request := _request_for_this_process(requests)) is not None:
        _run_to_its_end(request["words"])
