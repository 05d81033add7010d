"""What clients hold of a memory engine: it carries their calls, and waits for wake tokens.

Nothing here knows what a call does.
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
    """The engines with a name, one a process."""

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
    """Give the engine of `memory://name`, one a process; without a name, a new one that nobody shares."""
    return _stores.named(name) if name else Engine(clock)


class MemoryLink:
    """One stream of calls to an engine. Threads and tasks may share it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._stream = os.urandom(8).hex().encode()
        self._lock = threading.Lock()
        self._sequence = 0
        # The moves of the clock that who uses a queue knows of: who waits after a later one must look again.
        self._moves_seen: dict[bytes, int] = {}
        forks.renew(self)

    def renew_after_fork(self) -> None:
        """Begin anew in a child process: who held the lock is not there."""
        self._lock = threading.Lock()

    def run(self, call: Call[T]) -> T:
        """Carry out a call."""
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

        Else what is due in 60 s would not be due when the clock is advanced by 60 s, but for some microseconds.
        """
        clock = self.engine.clock
        if clock.is_frozen:
            clock.creep_to(self.engine.shown_us(clock.now_us() + _CREEP_US))

    async def arun(self, call: Call[T]) -> T:
        """Carry out a call from a task. Others get their turn first; cancelled then, nothing was done."""
        await asyncio.sleep(0)
        return self.run(call)

    def wait_for_token(self, keys: QueueKeys, seconds: float, exact: bool = False) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Block until a token was taken (True), the clock was moved, or the time is over. Always exact."""
        wait = _ThreadWait()
        with _Waiting(self, keys, wait) as waiting:
            wait.block(seconds)
        return waiting.has_token

    async def await_for_token(self, keys: QueueKeys, seconds: float, exact: bool = False) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Do the same in a task. Cancelled, it has somebody else watch."""
        wait = _TaskWait()
        with _Waiting(self, keys, wait) as waiting:
            await wait.block(seconds)
        return waiting.has_token

    def wait_for_entry(self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float) -> bool:
        """Block until there is something behind a position (True), the clock was moved, or the time is over."""
        wait = _ThreadWait()
        with _WaitingBehind(self, keys, wait, position) as waiting:
            wait.block(seconds)
        return waiting.has_token

    async def await_for_entry(self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float) -> bool:
        """Do the same in a task."""
        wait = _TaskWait()
        with _WaitingBehind(self, keys, wait, position) as waiting:
            await wait.block(seconds)
        return waiting.has_token

    def notices_a_move(self, keys: QueueKeys) -> bool:
        """Tell, once, whether the clock was moved since the last call to a queue."""
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
    """Lets a task sleep until it is woken, by whatever thread."""

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
    """The time during which somebody waits for a token of a queue."""

    def __init__(self, link: MemoryLink, keys: QueueKeys, wait: _ThreadWait | _TaskWait) -> None:
        self._link = link
        self._keys = keys
        self._wait = wait
        self.has_token = False

    def __enter__(self) -> Self:
        self._link.engine.clock.watch(self._on_move)
        self._subscribe()
        if self._link.notices_a_move(self._keys):  # between the last look and now
            self._on_move()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        engine = self._link.engine
        engine.clock.unwatch(self._on_move)
        self.has_token = not engine.unsubscribe(self._keys, self._on_token)
        if kind is not None:  # cancelled or interrupted: for the token, if it got one, and for what it was watching
            self.has_token = False
            engine.leave_token(self._keys)

    def _subscribe(self) -> None:
        self._link.engine.subscribe(self._keys, self._on_token)

    def _on_token(self) -> None:
        try:
            self._wait.wake()
        except RuntimeError:  # a task whose loop was closed around it
            self._link.engine.leave_token(self._keys)

    def _on_move(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._wait.wake()


class _WaitingBehind(_Waiting):
    """The time during which somebody waits for what comes behind a position of a topic or group."""

    def __init__(
        self,
        link: MemoryLink,
        keys: TopicKeys | GroupKeys,
        wait: _ThreadWait | _TaskWait,
        position: Sequence[bytes],
    ) -> None:
        super().__init__(link, keys, wait)
        self._watched = keys
        self._position = position

    def _subscribe(self) -> None:
        self._link.engine.subscribe_behind(self._watched, self._position, self._on_token)
