"""The three wires behind one face: for threads, for asyncio and for uvloop. So each test is written once."""

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import pytest
import uvloop

from duly._async import wire as async_wire
from duly._async.wire import AsyncWire
from duly._core.address import Kind
from duly._core.resp import Arg
from duly._sync import wire as sync_wire
from duly._sync.wire import Wire

WireKind = Literal["sync", "asyncio", "uvloop"]
WIRE_KINDS: Final[tuple[WireKind, ...]] = ("sync", "asyncio", "uvloop")


class Driven:
    """A wire whose calls are plain functions."""

    def __init__(self, wire: Any, run: Callable[[Any], Any]) -> None:
        self.wire = wire
        self._run = run

    def open(self) -> None:
        self._run(self.wire.open)

    def ask(self, *command: Arg, timeout: float = 5.0) -> Any:
        return self._run(lambda: self.wire.ask(command, timeout))

    def ask_both(self, first: Sequence[Arg], second: Sequence[Arg]) -> Any:
        return self._run(lambda: self.wire.ask_both(first, second))

    def begin(self, *command: Arg) -> None:
        self._run(lambda: self.wire.begin(command))

    def poll(self, seconds: float) -> bool:
        return bool(self._run(lambda: self.wire.poll(seconds)))

    def finish(self, timeout: float = 5.0) -> Any:
        return self._run(lambda: self.wire.finish(timeout))

    def close(self) -> None:
        self._run(self.wire.close)

    @property
    def is_open(self) -> bool:
        return bool(self.wire.is_open)

    @property
    def socket(self) -> Any:
        """The socket, to read its options."""
        if isinstance(self.wire, Wire):
            return self.wire._socket
        return self.wire._transport.get_extra_info("socket")


class Driver:
    """Makes wires of one kind, and runs the event loop for them."""

    def __init__(self, kind: WireKind) -> None:
        self.kind = kind
        self.reports: list[dict[str, Any]] = []
        """The contexts that the event loop would have logged, with errors that nothing retrieved."""
        self._wires: list[Driven] = []
        self._runner: asyncio.Runner | None = None
        if kind != "sync":
            self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop if kind == "uvloop" else None)
            self._runner.get_loop().set_exception_handler(lambda _, report: self.reports.append(report))

    @property
    def module(self) -> Any:
        """The module of the wire, for its timeouts."""
        return sync_wire if self.kind == "sync" else async_wire

    @property
    def is_async(self) -> bool:
        return self._runner is not None

    def wire(self, options: Mapping[str, Any], kind: Kind = "tcp", name: str = "") -> Driven:
        made: Any = AsyncWire(kind, options, name) if self._runner else Wire(kind, options, name)
        driven = Driven(made, self.run)
        self._wires.append(driven)
        return driven

    def opened(self, options: Mapping[str, Any], kind: Kind = "tcp", name: str = "") -> Driven:
        wire = self.wire(options, kind, name)
        wire.open()
        return wire

    def run(self, work: Callable[[], Any]) -> Any:
        """Call a function, and run its coroutine if it returns one."""
        if self._runner is None:
            return work()
        return self._runner.run(_awaited(work))

    def rest(self, seconds: float) -> None:
        """Let time pass, and the event loop run."""
        self.run((lambda: asyncio.sleep(seconds)) if self._runner else (lambda: time.sleep(seconds)))

    def rest_until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        ends_at = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends_at
            self.rest(0.005)

    def resolve_as(self, host: str, addresses: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """Have name resolution find these addresses for a host."""
        place: Any = socket if self._runner is None else self._runner.get_loop()
        real = place.getaddrinfo

        def found(asked: str, *args: Any, **options: Any) -> Any:
            return list(addresses) if asked == host else real(asked, *args, **options)

        async def awaited(asked: str, *args: Any, **options: Any) -> Any:  # uvloop resolves each address once more
            return found(asked) if asked == host else await found(asked, *args, **options)

        monkeypatch.setattr(place, "getaddrinfo", awaited if self._runner else found)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
        self.rest(0.01)
        if self._runner is not None:
            left = [task for task in asyncio.all_tasks(self._runner.get_loop()) if not task.done()]
            self._runner.close()
            assert left == []
        if sys.exc_info()[0] is None:
            assert self.reports == []


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()
