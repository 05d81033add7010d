"""The link of `memory://`: the same calls, carried out in this process."""

import os
import secrets
from collections.abc import Collection, Sequence
from typing import Self, TypeVar

from duly._async.durability import Confirmation
from duly._async.primitives import AsyncBell
from duly._core.call import Call
from duly._core.keys import GroupKeys, QueueKeys, TopicKeys

# --- sync only
# | from collections.abc import Callable
# | from duly.errors import DulyError
# --- end
from duly.errors import UsageError
from duly.memory.engine import Engine
from duly.memory.link import MemoryLink as Carrier
from duly.memory.link import engine_for
from duly.options import Durable

T = TypeVar("T")


class AsyncMemoryLink:
    """Runs calls on an engine in this process. It supports all calls, but nothing is durable."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._carrier = Carrier(engine)
        self._is_closed = False
        self.is_down = False
        self.patience: float = 0.0
        self.consumer: str = f"memory:{os.getpid()}:{secrets.token_hex(3)}"

    @classmethod
    def named(cls, name: str) -> "AsyncMemoryLink":
        """Open a named store, or a separate store if the name is empty."""
        return cls(engine_for(name))

    rolled_back = 0
    """Nothing is rolled back."""
    is_spread = False
    """One call may name several queues."""

    def node_of(self, keys: QueueKeys) -> None:
        """There are no nodes."""

    def is_down_at(self, keys: QueueKeys) -> bool:  # noqa: ARG002
        """Memory always answers."""
        return False

    # --- sync only
    # | def counterpart(self) -> object:
    # |     """Open the same store for asyncio."""
    # |     from duly._async.memory import AsyncMemoryLink
    # |
    # |     return AsyncMemoryLink(self.engine)
    # |
    # --- end
    async def run(self, call: Call[T], patience: float | None = None) -> T:  # noqa: ARG002 - memory always answers
        """Run a call. Raises UsageError if the app is closed."""
        if self._is_closed:
            raise UsageError("the app on memory:// is closed: open another one")
        # --- async only
        return await self._carrier.arun(call)
        # --- sync only
        # | return self._carrier.run(call)
        # --- end

    # --- async only
    def begin(self, call: Call[T]) -> None:
        """Leave all calls to `run_now`."""

    # --- end
    async def run_now(self, call: Call[T]) -> T:
        """Run a call."""
        return await self.run(call)

    # --- sync only
    # | def run_whole(self, call: Call[T], if_interrupted: Callable[[T], object]) -> T:
    # |     """Run a call. If a signal handler raises during the call, `if_interrupted` gets the reply."""
    # |     answers: list[T] = []
    # |     try:
    # |         answers.append(self.run(call))
    # |         return answers[0]
    # |     except DulyError:
    # |         raise
    # |     except BaseException:
    # |         for answer in answers:
    # |             if_interrupted(answer)
    # |         raise
    # |
    # --- end
    async def run_on(self, call: Call[T]) -> T:
        """Run a call."""
        return await self.run(call)

    async def run_claim(self, call: Call[T]) -> T:
        """Run a call."""
        return await self.run(call)

    async def run_durably(self, call: Call[T], durable: Durable) -> tuple[T, Confirmation]:  # noqa: ARG002
        """Run a call, and report that the data is lost when the process ends."""
        return await self.run(call), Confirmation(None, "memory:// keeps nothing beyond this process")

    async def wait_for_token(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait for a wake token. True: one was taken."""
        # --- async only
        return await self._carrier.await_for_token(keys, seconds, exact)
        # --- sync only
        # | return self._carrier.wait_for_token(keys, seconds, exact)
        # --- end

    async def wait_for_entry(
        self,
        keys: TopicKeys | GroupKeys,
        position: Sequence[bytes],
        seconds: float,
        *,
        exact: bool,  # noqa: ARG002
    ) -> bool:
        """Wait for an entry after a position of a topic or group. The end of the wait is always exact."""
        # --- async only
        return await self._carrier.await_for_entry(keys, position, seconds)
        # --- sync only
        # | return self._carrier.wait_for_entry(keys, position, seconds)
        # --- end

    def watch_end(self, keys: QueueKeys, id: str) -> "AsyncMemoryEndWatch":  # noqa: A002
        """Return a watch for the end of a message. Enter it before the first check of the message."""
        return AsyncMemoryEndWatch(self.engine, keys, id)

    async def check_eviction(self) -> None:
        """Do nothing: no keys are evicted here."""

    async def queues(self, namespace: str, without: Collection[object] = ()) -> list[str]:  # noqa: ARG002
        """Return the names of the queues that were used."""
        return self.engine.queues(namespace)

    async def topics(self, namespace: str, without: Collection[object] = ()) -> list[str]:  # noqa: ARG002
        """Return the names of the topics that have entries, delayed publishes or a group."""
        return self.engine.topics(namespace)

    async def nodes_away(self) -> None:
        """There are no nodes."""

    async def aclose(self) -> None:
        """Refuse further calls. A named store lives as long as the process."""
        self._is_closed = True

    # --- async only
    def run_in_thread(self, call: Call[T]) -> T:
        """Run a call outside of the event loop."""
        return self._carrier.run(call)

    def close_from_outside(self) -> None:
        """Refuse further calls."""
        self._is_closed = True

    # --- end


class AsyncMemoryEndWatch:
    """One wait for the end of a message."""

    def __init__(self, engine: Engine, keys: QueueKeys, id: str) -> None:  # noqa: A002
        self._engine = engine
        self._keys = keys
        self._id = id
        self._bell = AsyncBell()

    def __enter__(self) -> Self:
        self._engine.clock.watch(self._bell.ring)  # a jump of the clock may end the registration: check again
        self._engine.watch_end(self._keys, self._id, self._bell.ring)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.unwatch_end(self._keys, self._id, self._bell.ring)
        self._engine.clock.unwatch(self._bell.ring)

    async def wait(self, after: str, seconds: float) -> None:  # noqa: ARG002
        """Wait up to `seconds` until the message may have ended."""
        await self._bell.wait(seconds)
