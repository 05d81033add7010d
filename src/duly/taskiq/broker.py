"""The broker: messages of taskiq in a queue of Duly."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

import duly
from duly import _port
from duly.taskiq.schedules import SLOT_LABEL, SlotsSentOnce

_LOG: Final = logging.getLogger("duly.taskiq")
_WAIT: Final = 20.0
"""Seconds that one call waits for messages."""
_PAUSE_OF_SLOTS: Final = 86400.0
"""Seconds for which the same slot of a schedule is sent once."""


class DulyBroker(AsyncBroker):
    """A broker for taskiq on Redis or Valkey.

    `server` is that of `duly.AsyncDuly`: a URL like `redis://`, `redis+sentinel://`, `redis+cluster://` or
    `embedded://`, or an app. Without one, it is DULY_URL, else the embedded server.

    - `queue_name`: The queue of this broker. A task with the label `queue_name` is sent to another one.
    - `namespace`: The prefix of all keys, unless `server` is an app.
    - `lease`: Seconds after which a message of a worker that died is redelivered. Workers that live renew it.
    - `crash_limit`: The number of expired leases after which a message is dead.
    - `fetch`: The number of messages that a worker fetches at once. Those that wait for a free place are leased.
    - `max_message_bytes`: The largest size of a message.
    """

    def __init__(
        self,
        server: str | duly.AsyncDuly | None = None,
        *,
        queue_name: str = "taskiq",
        namespace: str = "duly",
        lease: float = 30.0,
        crash_limit: int = 3,
        fetch: int = 1,
        max_message_bytes: int = 16 << 20,
    ) -> None:
        super().__init__()
        self.add_middlewares(SlotsSentOnce())
        self._is_own = not isinstance(server, duly.AsyncDuly)
        self.app: duly.AsyncDuly = (
            server if isinstance(server, duly.AsyncDuly) else duly.AsyncDuly(server, namespace=namespace)
        )
        if self._is_own and _port.memory_engine(self.app) is not None:
            raise duly.UsageError(
                "memory:// cannot be a broker, since each process would have its own: use embedded://"
            )
        self._options: dict[str, Any] = {
            "lease": lease,
            "crash_limit": crash_limit,
            "max_message_bytes": max_message_bytes,
        }
        self._fetch = fetch
        self.queue: duly.AsyncQueue[bytes] = self._opened(queue_name)
        """The queue of Duly, which lists, cancels and redrives."""

    async def shutdown(self) -> None:
        """Close the connections, unless the app was passed to the broker."""
        await super().shutdown()
        if self._is_own:
            await self.app.aclose()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a message. Its labels `delay`, in seconds, and `priority`, 0 to 9, higher first, are kept by the server.

        Raises Unavailable if the server does not answer.
        """
        labels = message.labels
        name, slot = labels.get("queue_name"), labels.get(SLOT_LABEL)
        queue = self.queue if name is None else self._opened(str(name))
        await queue.send(
            message.message,
            delay=None if labels.get("delay") is None else max(float(labels["delay"]), 0),
            priority=int(labels.get("priority") or 0),
            dedup=None if slot is None else str(slot),
            dedup_for=None if slot is None else _PAUSE_OF_SLOTS,
            headers={"task": message.task_name, "task_id": message.task_id},
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield messages. Their leases are renewed until they are acked."""
        fetched: deque[duly.AsyncDelivery[bytes]] = deque()
        try:
            while True:
                try:
                    fetched.extend(await self.queue.receive(limit=self._fetch, wait=_WAIT, renew=True))
                except duly.Unavailable as error:
                    _LOG.warning("no messages, trying again: %s", error)
                while fetched:
                    delivery = fetched.popleft()
                    yield AckableMessage(data=delivery.raw, ack=_acknowledger(delivery))
        finally:
            for delivery in fetched:
                with suppress(duly.DulyError):
                    await delivery.release()

    async def cancel(self, task_id: str) -> bool:
        """Cancel a task before a worker gets it. It searches all waiting messages of the queue. Safe to repeat.

        True: this call ended it. False: it is unknown, has ended, or a worker has it.
        """
        found = False
        for state in _port.WAITING:
            last: duly.Message | None = None
            while page := await self.queue.list(state, limit=1000, after=last):
                for message in page:
                    if message.headers.get("task_id") == task_id:
                        found |= await self.queue.cancel(message.id)
                last = page[-1]
        return found

    def _opened(self, name: str) -> "duly.AsyncQueue[bytes]":
        return self.app.queue(_port.encoded_name(name), **self._options)


def _acknowledger(delivery: "duly.AsyncDelivery[bytes]") -> Callable[[], Awaitable[None]]:
    async def ack() -> None:
        try:
            await delivery.ack()
        except duly.LeaseLost as error:
            _LOG.warning("%s", error)

    return ack
