"""States that tests begin with, and ways to wait for something."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final, Generic, TypeVar

from duly import AsyncDelivery, AsyncGroup, AsyncQueue, Message
from duly._async.inbox import AsyncInbox
from tests.client.place import Place

T = TypeVar("T")

SOON: Final = 4.0
"""Seconds within which a consumer that was woken has acted. Others poll only after 5 s."""

SETTLES: Final[dict[str, tuple[Any, ...]]] = {
    "ack": (),
    "retry": (),
    "defer": (60,),
    "recycle": (),
    "reject": ("no use",),
    "release": (),
}
"""Every way to settle a delivery, with arguments for it."""


async def take(queue: AsyncInbox, limit: int = 100, **options: Any) -> list[AsyncDelivery]:
    """Receive due messages, without waiting."""
    return await queue.receive(limit=limit, wait=0, **options)


async def take_one(queue: AsyncInbox, **options: Any) -> AsyncDelivery:
    """Receive the one message that is due."""
    (delivery,) = await take(queue, **options)
    return delivery


async def take_bodies(queue: AsyncInbox, limit: int = 100) -> list[Any]:
    """Receive and ack due messages, and return the bodies in their order."""
    deliveries = await take(queue, limit)
    await queue.ack_many(deliveries)
    return [delivery.body for delivery in deliveries]


async def settle(delivery: AsyncDelivery, verb: str) -> None:
    """Settle in one of the ways."""
    await getattr(delivery, verb)(*SETTLES[verb])


async def given_leased(
    queue: AsyncQueue, body: Any = "body", lease: float | None = None, **options: Any
) -> AsyncDelivery:
    """Send a message and take it."""
    await queue.send(body, **options)
    return await take_one(queue, lease=lease)


async def given_read(
    group: AsyncGroup, body: Any = "body", lease: float | None = None, **options: Any
) -> AsyncDelivery:
    """Publish an entry and have a member of a group take it. There is nothing before it."""
    await group.topic.publish(body, **options)
    return await take_one(group, lease=lease)


async def given_dead(queue: AsyncQueue, body: Any = "body", **options: Any) -> str:
    """Send a message and bury it."""
    delivery = await given_leased(queue, body, **options)
    await delivery.reject("no use")
    return delivery.id


async def given_in(queue: AsyncQueue, state: str, **options: Any) -> str:
    """Put a message into a state. `done` needs a queue that keeps finished messages."""
    if state == "ready":
        return await queue.send("body", **options)
    if state == "delayed":
        return await queue.send("body", delay=60, **options)
    delivery = await given_leased(queue, **options)
    if state == "dead":
        await delivery.reject("no use")
    elif state == "done":
        await delivery.ack()
    return delivery.id


async def seen(queue: AsyncInbox, id: str) -> Message:  # noqa: A002
    """Return a message that exists."""
    message = await queue.get(id)
    assert message is not None
    return message


async def counted(queue: AsyncInbox) -> dict[str, Any]:
    """Return the counts that are not zero, without those that change with time."""
    stats = asdict(await queue.stats())
    moving = (
        "oldest_age",
        "lateness",
        "next_due_in",
        "bytes",
        "dead_bytes",
        "dead_why_bytes",
        "done_bytes",
        "done_why_bytes",
        "lateness_times",
        "handling_times",
    )
    return {name: value for name, value in stats.items() if value and name not in moving}


async def check_accounts(queue: AsyncInbox) -> None:
    """Fail unless every message is accounted for and in one place (I1, I2)."""
    audit = await queue.audit()
    assert audit.ok, audit


# --- async only
class InBackground(Generic[T]):
    """A call that runs alongside the test."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._task = asyncio.ensure_future(work())

    async def result(self, within: float = SOON) -> T:
        """Return its result; fail when it takes longer."""
        async with asyncio.timeout(within):
            return await self._task

    def cancel(self) -> None:
        """Stop it."""
        self._task.cancel()

    @property
    def is_running(self) -> bool:
        return not self._task.done()


async def pause(seconds: float) -> None:
    """Let others run."""
    await asyncio.sleep(seconds)


# --- sync only
# | class InBackground(Generic[T]):
# |     """A call that runs alongside the test."""
# |
# |     def __init__(self, work: Callable[[], T]) -> None:
# |         from concurrent.futures import ThreadPoolExecutor
# |
# |         pool = ThreadPoolExecutor(1)
# |         self._future = pool.submit(work)
# |         pool.shutdown(wait=False)
# |
# |     def result(self, within: float = SOON) -> T:
# |         """Return its result; fail when it takes longer."""
# |         return self._future.result(timeout=within)
# |
# |     @property
# |     def is_running(self) -> bool:
# |         return not self._future.done()
# |
# |
# | def pause(seconds: float) -> None:
# |     """Let others run."""
# |     time.sleep(seconds)
# |
# |
# --- end
async def until(is_so: Callable[[], bool], within: float = 10.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        await pause(0.005)


async def outlive(queue: AsyncInbox, delivery: AsyncDelivery, clock: Place) -> None:
    """Wait until a lease was renewed, and let the moment pass at which it would have ended without."""
    given = (await seen(queue, delivery.id)).deadline
    assert given is not None
    give_up_at = time.monotonic() + 20
    while (await seen(queue, delivery.id)).deadline == given:
        assert time.monotonic() < give_up_at, "it was not renewed"
        await pause(0.05)
    clock.advance(given.timestamp() - clock.now() + 0.1)


async def given_blocked(
    place: Place, *queues: AsyncInbox, wait: float = 20, **options: Any
) -> list[InBackground[list[AsyncDelivery]]]:
    """Let consumers receive one message each, and wait until all of them block, in this order.

    One that has ended by then, since the machine was slow and what it waits for has come, does not block any more.
    """
    consumers: list[InBackground[list[AsyncDelivery]]] = []
    for queue in queues:
        consumers.append(InBackground(lambda queue=queue: queue.receive(limit=1, wait=wait, **options)))  # type: ignore[misc]
        await until(lambda: place.blocked() == len(consumers) or not consumers[-1].is_running)
    return consumers
