"""The connection of clients to a memory engine: it passes their calls on, and waits for something to claim.

It does not know what a call does.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Final, Self, TypeVar

from duly._core.call import Call
from duly._core.keys import GroupKeys, QueueKeys, TopicKeys
from duly.errors import ServerError
from duly.memory import forks
from duly.memory.calls import ErrorReply
from duly.memory.clock import clock
from duly.memory.engine import Engine

T = TypeVar("T")

_CREEP_US: Final = 1_000_000
"""Longer than any call takes. A queue that is further ahead has seen a clock that was then set back."""


class _Stores:
    """The named engines, one of each name per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[str, Engine] = {}
        forks.renew(self)

    def named(self, name: str) -> Engine:
        with self._lock:
            return self._engines.setdefault(name, Engine(clock))

    def renew_after_fork(self) -> None:
        self._lock = threading.Lock()


_stores: Final = _Stores()


def engine_for(name: str) -> Engine:
    """Return the engine of `memory://name`, one per process. Without a name it is a new engine that is not shared."""
    return _stores.named(name) if name else Engine(clock)


class MemoryLink:
    """One stream of calls to an engine. Threads and tasks may share it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._stream = os.urandom(8).hex().encode()
        self._lock = threading.Lock()
        self._sequence = 0
        # By queue, the clock's moves up to the last call. A consumer that waits after a later move must poll again.
        self._moves_seen: dict[bytes, int] = {}
        forks.renew(self)

    def renew_after_fork(self) -> None:
        """Replace the lock in a child process: its holder exists only in the parent."""
        self._lock = threading.Lock()

    def run(self, call: Call[T]) -> T:
        """Execute a call."""
        with self._lock:  # one call of a stream at a time, in the order of their numbers
            self._sequence += 1
            self._moves_seen[call.keys.prefix] = self.engine.clock.moves
            try:
                reply = self.engine.call(call, self._stream, self._sequence)
            except ErrorReply as error:
                why = str(error).removeprefix("ERR ")
                raise ServerError(f"{call.title} failed on memory://: {why}") from error
            self._let_time_creep()
        return call.decode(reply)

    def _let_time_creep(self) -> None:
        """Let a frozen clock keep up with the queues, which never show a time twice.

        Otherwise a message due in 60 s would not be due yet, by some microseconds, after an advance by 60 s.
        """
        clock = self.engine.clock
        if clock.is_frozen:
            clock.creep_to(self.engine.shown_us(clock.now_us() + _CREEP_US))

    async def arun(self, call: Call[T]) -> T:
        """Execute a call from a task. Other tasks run first; if this one is cancelled then, nothing was done."""
        await asyncio.sleep(0)
        return self.run(call)

    def wait_for_token(self, keys: QueueKeys, seconds: float, exact: bool = False) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Block until there is something (True), the clock was moved, or the time is over. Always exact."""
        return self._wait(keys, None, seconds)

    async def await_for_token(self, keys: QueueKeys, seconds: float, exact: bool = False) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Do the same in a task. If it is cancelled, it wakes another consumer."""
        return await self._await(keys, None, seconds)

    def wait_for_entry(self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float) -> bool:
        """Block until there is something behind a position (True), the clock was moved, or the time is over."""
        return self._wait(keys, position, seconds)

    async def await_for_entry(self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float) -> bool:
        """Do the same in a task."""
        return await self._await(keys, position, seconds)

    def _wait(self, keys: QueueKeys, position: Sequence[bytes] | None, seconds: float) -> bool:
        wait = _ThreadWait()
        with _Waiting(self, keys, position, wait) as waiting:
            wait.block(min(seconds, waiting.seconds))
        return waiting.is_woken

    async def _await(self, keys: QueueKeys, position: Sequence[bytes] | None, seconds: float) -> bool:
        wait = _TaskWait()
        with _Waiting(self, keys, position, wait) as waiting:
            await wait.block(min(seconds, waiting.seconds))
        return waiting.is_woken

    def notices_move(self, keys: QueueKeys) -> bool:
        """Return, once, whether the clock was moved since the last call to a queue."""
        with self._lock:
            seen, moves = self._moves_seen.get(keys.prefix, 0), self.engine.clock.moves
            self._moves_seen[keys.prefix] = moves
        return seen != moves


class _ThreadWait:
    """Lets a thread sleep until it is woken."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.wake = self._event.set

    def block(self, seconds: float) -> None:
        self._event.wait(max(seconds, 0))


class _TaskWait:
    """Lets a task sleep until any thread wakes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def block(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()


class _Waiting:
    """The time during which a consumer waits for a queue or group, or a reader behind a position of a topic."""

    def __init__(
        self, link: MemoryLink, keys: QueueKeys, position: Sequence[bytes] | None, wait: _ThreadWait | _TaskWait
    ) -> None:
        self._link = link
        self._keys = keys
        self._position = position
        self._wait = wait
        self.seconds = 0.0
        """The seconds after which to poll even if nothing comes."""
        self.is_woken = False

    def __enter__(self) -> Self:
        self._link.engine.clock.watch(self._on_move)
        self.seconds = self._subscribe()
        if self._link.notices_move(self._keys):  # between the last poll and now
            self._on_move()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        engine = self._link.engine
        engine.clock.unwatch(self._on_move)
        self.is_woken = not engine.unsubscribe(self._keys, self._on_change)
        if kind is not None:  # cancelled or interrupted: another consumer polls, now or when the time comes
            self.is_woken = False
            engine.pass_on(self._keys)

    def _subscribe(self) -> float:
        engine, keys = self._link.engine, self._keys
        if self._position is not None and isinstance(keys, TopicKeys):
            return engine.subscribe_behind(keys, self._position[0], self._on_change)
        return engine.subscribe(keys, self._on_change)

    def _on_change(self) -> None:
        try:
            self._wait.wake()
        except RuntimeError:  # a task whose event loop has been closed
            self._link.engine.pass_on(self._keys)

    def _on_move(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._wait.wake()
