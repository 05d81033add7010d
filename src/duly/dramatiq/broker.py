"""The broker: queues of Dramatiq as queues of Duly."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import dramatiq
from dramatiq.common import current_millis, q_name
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

import duly
from duly import _port
from duly.dramatiq.consumer import DulyConsumer
from duly.dramatiq.lost_leases import LostLeases

_MESSAGE_ID: Final = "message_id"
"""The header with the id of Dramatiq. A retry has the same one, and another id in Duly."""


class DulyBroker(dramatiq.Broker):
    """A broker for Dramatiq on Redis or Valkey.

    `server` is that of `duly.Duly`: a URL like `redis://`, `redis+sentinel://`, `redis+cluster://` or `embedded://`, or
    an app. Without one, it is DULY_URL, else the embedded server.

    - `middleware`: As of every broker of Dramatiq.
    - `namespace`: The prefix of all keys.
    - `lease`: Seconds after which a message of a worker that died is redelivered. Workers that live renew it.
    - `crash_limit`: The number of expired leases after which a message is dead.
    - `dead`: How many dead letters each queue keeps, and for how long.
    - `max_message_bytes`: The largest size of a message.
    - `patience`: Seconds that a call retries while the server does not answer. Then it raises ConnectionClosed.
    - `allow_eviction`: Whether to accept a server that may evict keys.

    With an app, `namespace`, `patience` and `allow_eviction` are those of the app.
    """

    def __init__(  # noqa: PLR0913 - the options of a broker
        self,
        server: str | duly.Duly | None = None,
        *,
        middleware: list[dramatiq.Middleware] | None = None,
        namespace: str = "duly",
        lease: float = 30.0,
        crash_limit: int = 3,
        dead: duly.Keep | None = None,
        max_message_bytes: int = 16 << 20,
        patience: float = 20.0,
        allow_eviction: bool = False,
    ) -> None:
        super().__init__(middleware)
        self.add_middleware(LostLeases())
        self.actor_options.add("broker_priority")
        self.queues: dict[str, duly.Queue[bytes]] = {}
        """The declared queues, by their names in Dramatiq."""
        self._ended = threading.local()
        """Its `message` is the one whose actor has ended in this thread, while the middleware is called."""
        self._is_own = not isinstance(server, duly.Duly)
        self.app: duly.Duly = (
            server
            if isinstance(server, duly.Duly)
            else duly.Duly(server, namespace=namespace, patience=patience, allow_eviction=allow_eviction)
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
        if dead is not None:
            self._options["dead"] = dead

    def close(self) -> None:
        """Close the connections, unless the app was passed to the broker."""
        if self._is_own:
            self.app.close()

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue. Safe to repeat."""
        name = q_name(queue_name)  # Duly needs no second queue for messages with a delay
        if name not in self.queues:
            self.emit_before("declare_queue", name)
            self.queues[name] = self._opened(name)
            self.emit_after("declare_queue", name)

    def enqueue(self, message: dramatiq.Message[Any], *, delay: int | None = None) -> dramatiq.Message[Any]:
        """Send a message. With a delay in milliseconds, it waits on the server.

        `broker_priority` in its options or in those of its actor is 0 to 9, higher first. Raises ConnectionClosed if
        the server does not answer.
        """
        name = q_name(message.queue_name)
        options = {} if delay is None else {"eta": current_millis() + delay}
        message = message.copy(queue_name=name, options=options)
        self.emit_before("enqueue", message, delay)
        queue = self.queues.get(name) or self._opened(name)
        try:
            with translated_errors():
                queue.send(
                    message.encode(),
                    delay=None if delay is None else delay / 1000,
                    priority=self._priority_of(message),
                    headers={"actor": message.actor_name, _MESSAGE_ID: message.message_id},
                )
        except ConnectionClosed:
            if (ended := getattr(self._ended, "message", None)) is not None:
                ended.runs_again = True
            raise
        self.emit_after("enqueue", message, delay)
        return message

    def emit_after(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Call the middleware.

        After an actor has ended, the middleware sends its retry, the next message of its pipeline, or a callback.
        Dramatiq logs an error there, and acks the message. If the server has not stored them, the message runs again.
        """
        if signal == "process_message":
            (self._ended.message,) = args
        try:
            super().emit_after(signal, *args, **kwargs)
        finally:
            if signal == "process_message":
                self._ended.message = None

    def cancel(self, message: dramatiq.Message[Any], *, running: bool = False) -> bool:
        """Cancel a message, or its next retry, before a worker gets it.

        True: this call ended it. False: it has ended, or a worker has it. With `running`, it is also taken
        from the worker, and its actor is interrupted with LostLease at the next renewal of its lease. It searches all
        waiting messages of the queue. Safe to repeat.
        """
        queue = self._declared(message.queue_name)
        states: tuple[duly.State, ...] = (*_port.WAITING, "leased") if running else _port.WAITING
        with translated_errors():
            found = [
                queue.cancel(each.id, running=running)
                for state in states
                for each in _port.all_listed(queue, state)
                if each.headers.get(_MESSAGE_ID) == message.message_id
            ]
        return any(found)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> dramatiq.Consumer:
        """Return a consumer of a queue, which holds up to `prefetch` messages. Raises QueueNotFound."""
        return DulyConsumer(self._declared(queue_name), prefetch, timeout / 1000)

    def flush(self, queue_name: str) -> None:
        """Remove all messages of a queue, including those that workers have."""
        with translated_errors():
            self._declared(queue_name).purge()

    def flush_all(self) -> None:
        """Remove all messages of all declared queues."""
        for name in self.queues:
            self.flush(name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until a queue has neither waiting nor running messages. It checks every `interval` milliseconds.

        Raises QueueJoinTimeout after `timeout` milliseconds, and QueueNotFound.
        """
        queue = self._declared(queue_name)
        give_up_at = None if timeout is None else time.monotonic() + timeout / 1000
        while True:
            with translated_errors():
                stats = queue.stats()
            if not stats.ready + stats.delayed + stats.leased + stats.parked:
                return
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def _declared(self, queue_name: str) -> "duly.Queue[bytes]":
        try:
            return self.queues[q_name(queue_name)]
        except KeyError:
            raise QueueNotFound(queue_name) from None

    def _opened(self, name: str) -> "duly.Queue[bytes]":
        return self.app.queue(_port.encoded_name(name), **self._options)

    def _priority_of(self, message: dramatiq.Message[Any]) -> int:
        actor = self.actors.get(message.actor_name)
        default = 0 if actor is None else actor.options.get("broker_priority")
        return int(message.options.get("broker_priority", default) or 0)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the error of Dramatiq for a server that does not answer. Its worker then tries again."""
    try:
        yield
    except duly.Unavailable as error:
        raise ConnectionClosed(error) from error
