"""A channel: declares queues and exchanges, publishes and consumes."""

import contextlib
from collections.abc import Callable
from typing import Any, Final

from kombu.transport import base, virtual

import duly
from duly import _port
from duly.kombu.declarations import Binding
from duly.kombu.envelope import Leased, Raw, forget_id, headers_of, id_of, identified, packed, timing_of
from duly.kombu.mailbox import Consumed, Mailbox
from duly.kombu.subscription import KEEP, REPEATS, ROUTING_KEY, Feed, Subscription

_WAITING: Final = ("ready", "delayed", "parked")
"""States of messages that no worker has."""


class QoS(virtual.QoS):  # type: ignore[misc]
    """The prefetch count and the unsettled messages of a channel, which its mailbox has."""

    def __init__(self, channel: "Channel", prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._mailbox = channel.mailbox
        self._limit = channel.transport.options.delivery_limit

    @property
    def prefetch_count(self) -> int:
        """The number of messages that may be delivered and not settled; 0: any number."""
        count: int = self.channel.mailbox.prefetch
        return count

    @prefetch_count.setter
    def prefetch_count(self, count: int) -> None:
        self.channel.mailbox.prefetch = count
        self.channel.transport.fetcher.poke()

    def can_consume(self) -> bool:
        """Return whether a message may be delivered."""
        return not self._mailbox.prefetch or len(self._mailbox) < self._mailbox.prefetch

    def can_consume_max_estimate(self) -> int | None:
        """Return how many messages may be delivered; None: any number."""
        return max(self._mailbox.prefetch - len(self._mailbox), 0) if self._mailbox.prefetch else None

    def append(self, message: Any, delivery_tag: str) -> None:
        """Do nothing: the mailbox holds each message that it delivers."""

    def ack(self, delivery_tag: str) -> None:
        """Finish a message."""
        self._mailbox.ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu calls it so
        """Make a message dead, or return it to its queue."""
        if requeue:
            self._mailbox.requeue(delivery_tag, self._limit)
        else:
            self._mailbox.reject(delivery_tag, "rejected by the consumer")

    def restore_unacked(self) -> list[Any]:
        """Return all unsettled messages to their queues."""
        if self.channel.transport.fetcher.is_ours:
            self._mailbox.release_held()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002
        """Return all unsettled messages, when the channel is closed or the program ends."""
        self._on_collect.cancel()
        self.restore_unacked()


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel of a connection. It has consumers, a prefetch count and unsettled messages."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **options: Any) -> None:
        self.transport = connection
        self.closed: bool = False
        self.mailbox: Mailbox = Mailbox(connection.fetcher.changed, connection.fetcher.settle_later)
        super().__init__(connection, **options)
        self._subscriptions: dict[Consumed, Subscription] = {}
        self._arguments: dict[str, dict[str, Any]] = {}
        """How this channel has declared each queue."""
        self._own_queues: set[str] = set()
        """Queues that end with this channel."""
        connection.fetcher.add(self.mailbox)

    # Declaring

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        """Translate options of a queue, like `expires`, into their arguments, like `x-expires`."""
        return base.to_rabbitmq_queue_arguments(arguments, **options)

    def _new_queue(self, queue: str, **options: Any) -> None:
        self._arguments[queue] = self.transport.queue_arguments[queue] = options
        if not _is_transient(options):
            self.transport.declarations.add_queue(queue)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self.transport.queue_arguments or self.transport.declarations.has_queue(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        declared = self.transport.queue_arguments.get(queue, {})
        if self.typeof(exchange).type == "fanout" and _is_transient(declared):
            topic = self._topic(exchange)
            self.transport.feeds[queue] = Feed(topic, _port.end_of(topic), routing_key)
            return
        binding, expires = Binding(routing_key, pattern, queue), _seconds(declared, "x-expires")
        self.transport.bind(exchange, binding, expires=expires, message_ttl=_seconds(declared, "x-message-ttl"))

    def queue_unbind(
        self, queue: str, exchange: str = "", routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        """Remove a binding."""
        self.state.binding_delete(queue, exchange, routing_key)
        self.transport.unbind(
            exchange, Binding(*self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments))
        )

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:  # noqa: ARG002, FBT001, FBT002
        """Delete a queue with its messages and bindings."""
        if if_empty and self._size(queue):
            return
        for exchange, routing_key, arguments in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, exchange, routing_key, arguments)
        self.state.queue_bindings_delete(queue)
        self._own_queues.discard(queue)
        if self.transport.feeds.pop(queue, None) is None:
            self.transport.queue(queue).delete()
            self.transport.declarations.remove_queue(queue)
        self.transport.queue_arguments.pop(queue, None)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Delete an exchange with its bindings. The queues stay."""
        self.state.exchanges.pop(exchange, None)
        self.transport.declarations.clear(exchange)

    def get_table(self, exchange: str) -> list[Binding]:
        """Return the bindings of an exchange that any process has declared."""
        return list(self.transport.declarations.bindings(exchange))

    def _size(self, queue: str) -> int:
        if queue in self.transport.feeds:
            return 0
        stats = self.transport.queue(queue).stats()
        return sum(getattr(stats, state) for state in _WAITING)

    def _purge(self, queue: str) -> int:
        if queue in self.transport.feeds:
            return 0
        return sum(self.transport.queue(queue).purge(state) for state in _WAITING)

    # Publishing

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> Raw:
        """Make a message. A publish that kombu repeats after an outage is stored once, while the message is there."""
        known = identified(properties, self._new_id)
        message: Raw = super().prepare_message(body, priority, content_type, content_encoding, headers, known)
        return message

    def basic_publish(self, message: Raw, exchange: str, routing_key: str, **options: Any) -> None:
        """Publish a message. Its id identifies the repeats of this publish: another one of the same message is new."""
        identified(message["properties"], self._new_id)  # it has none if it was published before
        super().basic_publish(message, exchange, routing_key, **options)
        forget_id(message)

    def _new_id(self) -> str:
        return _port.new_id(self.transport.app)

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Encode a body that is not text, so that it fits into JSON. Text stays readable."""
        if isinstance(body, str) and encoding == "base64":
            return body, "utf-8"
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def _put(self, queue: str, message: Raw, message_ttl: float | None = None, **_: Any) -> None:
        if message_ttl is None:
            message_ttl = _seconds(self.transport.queue_arguments.get(queue, {}), "x-message-ttl")
        timing = timing_of(message, self.transport.options, message_ttl)
        if timing.is_over:
            return
        priority = self._get_message_priority(message)
        self.transport.queue(queue).send(
            packed(message),
            at=timing.at,
            ttl=timing.ttl,
            priority=priority,
            headers=headers_of(message),
            id=id_of(message),
        )

    def _put_fanout(self, exchange: str, message: Raw, routing_key: str, **_: Any) -> None:
        """Copy a message to the durable queues of an exchange, and publish it to the others."""
        for binding, message_ttl in self.transport.declarations.bindings(exchange).items():
            self._put(binding.queue, message, message_ttl)
        timing = timing_of(message, self.transport.options, None)
        if not timing.is_over:
            self._topic(exchange).publish(
                packed(message),
                at=timing.at,
                headers={ROUTING_KEY: routing_key or ""},
                dedup=id_of(message),
                dedup_for=REPEATS,
            )

    def _topic(self, exchange: str) -> duly.Topic[bytes]:
        topic: duly.Topic[bytes] = self.transport.app.topic(_port.encoded_name(exchange), keep=KEEP)
        return topic

    # Consuming

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,  # noqa: FBT001
        callback: Callable[[Any], object],
        consumer_tag: str,
        **_: Any,
    ) -> None:
        """Consume from a queue."""

        def deliver(raw: Raw) -> object:
            return callback(self.Message(raw, channel=self))

        if "can_consume" in vars(self.qos):  # Celery, with worker_disable_prefetch
            self.transport.fetcher.add(self.mailbox, self.qos.can_consume)
        feed = self.transport.feeds.get(queue)
        source = None if feed is not None else self.transport.queue(queue)
        known = self.mailbox.consumed.get(queue)
        if known is not None:
            known.callback, known.no_ack = deliver, no_ack
            known.tags.append(consumer_tag)
        else:
            consumed = Consumed(queue, source, no_ack, deliver, [consumer_tag])
            with self.transport.fetcher.changed:
                self.mailbox.consumed[queue] = consumed
            if feed is not None:
                self._subscriptions[consumed] = Subscription(feed, self.transport.fetcher, self.mailbox, consumed)
        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        if _ends_with_its_consumer(self.transport.queue_arguments.get(queue, {})):
            self._own_queues.add(queue)
        self.transport.fetcher.start()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer, and return its messages that were fetched and not delivered."""
        if consumer_tag not in self._consumers:
            return
        self._consumers.remove(consumer_tag)
        consumed = self.mailbox.consumed.get(self._tag_to_queue.pop(consumer_tag))
        if consumed is None:
            return
        consumed.tags.remove(consumer_tag)
        if consumed.tags or not self.transport.fetcher.is_ours:
            return
        if subscription := self._subscriptions.pop(consumed, None):
            subscription.stop()
        self.transport.fetcher.forget(self.mailbox, consumed)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002
        """Return the next message of a queue, or None."""
        if feed := self.transport.feeds.get(queue):
            broadcasts = feed.read(1, 0)
            return self.Message(broadcasts[0].opened(), channel=self) if broadcasts else None
        while found := self.transport.queue(queue).receive(limit=1, wait=0, renew=True):
            item = Leased(found[0])
            self.mailbox.hold(item)
            raw = self.mailbox.opened(item)
            if raw is None:
                continue
            if no_ack:
                self.mailbox.ack(item.tag)
            return self.Message(raw, channel=self)
        return None

    def close(self) -> None:
        """Stop all consumers, and return all messages that are not settled."""
        if self.closed:
            return
        if not self.transport.fetcher.is_ours:  # the messages are those of the parent process
            self.closed = True
            return
        for consumer_tag in list(self._consumers):
            self.basic_cancel(consumer_tag)
        with contextlib.suppress(duly.Unavailable):  # then they expire
            for queue in list(self._own_queues):
                self.queue_delete(queue)
        super().close()
        self.transport.fetcher.remove(self.mailbox)


def _is_transient(declared: dict[str, Any]) -> bool:
    """Return whether a queue is to end with its consumers."""
    return bool(declared.get("auto_delete") or declared.get("exclusive"))


def _ends_with_its_consumer(declared: dict[str, Any]) -> bool:
    """Return whether a queue is the only consumer's own: a queue for replies."""
    return _is_transient(declared) and _seconds(declared, "x-expires") is not None


def _seconds(declared: dict[str, Any], argument: str) -> float | None:
    """Return an argument of a queue that is in milliseconds."""
    value = (declared.get("arguments") or {}).get(argument)
    return None if value is None else float(value) / 1000
