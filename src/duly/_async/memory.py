"""The link of `memory://`: the same calls, carried out in this process."""

import os
import secrets
from collections.abc import Sequence
from typing import Self, TypeVar

from duly._async.wire import AsyncBell
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
    """Carries calls to an engine in this process. Everything is there, nothing is durable."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._carrier = Carrier(engine)
        self._is_closed = False
        self.is_down = False
        self.patience: float = 0.0
        self.consumer: str = f"memory:{os.getpid()}:{secrets.token_hex(3)}"

    @classmethod
    def named(cls, name: str) -> "AsyncMemoryLink":
        """Open the store of a name; without one, a store of its own."""
        return cls(engine_for(name))

    # --- sync only
    # | def twin(self) -> object:
    # |     """Open the same store for asyncio."""
    # |     from duly._async.memory import AsyncMemoryLink
    # |
    # |     return AsyncMemoryLink(self.engine)
    # |
    # --- end
    async def run(self, call: Call[T]) -> T:
        """Carry a call out."""
        if self._is_closed:
            raise UsageError("the app on memory:// is closed: open another one")
        # --- async only
        return await self._carrier.arun(call)
        # --- sync only
        # | return self._carrier.run(call)
        # --- end

    async def run_now(self, call: Call[T]) -> T:
        """Carry a call out."""
        return await self.run(call)

    # --- sync only
    # | def run_whole(self, call: Call[T], if_interrupted: Callable[[T], object]) -> T:
    # |     """Carry a call out. When a signal handler raises meanwhile, `if_interrupted` gets the answer."""
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
        """Carry a call out."""
        return await self.run(call)

    async def run_durably(self, call: Call[T], durable: Durable) -> tuple[T, str]:  # noqa: ARG002
        """Carry a call out, and say that nothing here outlives the process."""
        return await self.run(call), "memory:// keeps nothing beyond this process"

    async def wait_for_token(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait until there is something to look at."""
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
        """Wait until there is more behind a position of a topic or group. Always exact."""
        # --- async only
        return await self._carrier.await_for_entry(keys, position, seconds)
        # --- sync only
        # | return self._carrier.wait_for_entry(keys, position, seconds)
        # --- end

    def watch_end(self, keys: QueueKeys, id: str) -> "AsyncMemoryEndWatch":  # noqa: A002
        """Wait for the end of a message, from before the first look at it on."""
        return AsyncMemoryEndWatch(self.engine, keys, id)

    async def look_again(self) -> None:
        """Do nothing: nothing is evicted here."""

    async def queues(self, namespace: str) -> list[str]:
        """Name the queues that were ever used."""
        return self.engine.queues(namespace)

    async def topics(self, namespace: str) -> list[str]:
        """Name the topics that were used: published to, also for later, or with a group."""
        return self.engine.topics(namespace)

    async def aclose(self) -> None:
        """Refuse further calls. A store with a name lives as long as the process."""
        self._is_closed = True

    # --- async only
    def run_in_thread(self, call: Call[T]) -> T:
        """Carry a call out, outside of the event loop."""
        return self._carrier.run(call)

    def close_from_outside(self) -> None:
        """Refuse further calls."""
        self._is_closed = True

    # --- end


class AsyncMemoryEndWatch:
    """The time during which somebody waits for the end of one message."""

    def __init__(self, engine: Engine, keys: QueueKeys, id: str) -> None:  # noqa: A002
        self._engine = engine
        self._keys = keys
        self._id = id
        self._bell = AsyncBell()

    def __enter__(self) -> Self:
        self._engine.clock.watch(self._bell.ring)  # who jumps through time is no longer known to wait: look again
        self._engine.watch_end(self._keys, self._id, self._bell.ring)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.unwatch_end(self._keys, self._id, self._bell.ring)
        self._engine.clock.unwatch(self._bell.ring)

    async def wait(self, after: str, seconds: float) -> None:  # noqa: ARG002
        """Wait until it is worth looking again, so long at the most."""
        await self._bell.wait(seconds)
