"""The internal port: all private code of Duly that its adapters use, and all private attributes for `duly.testing`.

The adapters are `duly.web`, `duly.kombu`, `duly.celery`, `duly.dramatiq`, `duly.taskiq` and `duly.importing`. They use
public names of Duly, and this module. They import no other private module and read no private attribute, which
`tests/unit/test_port.py` checks. `duly.testing` has its own worker and imports parts of one, but reads no private
attribute either. So the client can change as long as these functions keep their meaning. An operation that an adapter
needs and the public API does not have belongs here.

The functions take public objects: an app, a queue, a group, a topic or a delivery. The imported names are pure
vocabulary of `duly._core`: states, counters, units, rates, and the steps that settle deliveries.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from duly._async.app import AsyncDuly
from duly._async.delivery import AsyncDelivery
from duly._async.group import AsyncGroup
from duly._async.primitives import before_leaving
from duly._async.queue import AsyncQueue
from duly._async.survey import AsyncSurvey, survey_nodes
from duly._async.topic import AsyncTopic
from duly._core import codec, ops, publishing, schedules, settles, topic_ops, views
from duly._core.call import Call
from duly._core.durations import read_duration
from duly._core.foreign_names import encoded as encoded_name
from duly._core.keys import ForeignKeys, KombuKeys, QueueKeys, ValueKeys
from duly._core.measures import size_text, span
from duly._core.naming import about, nearest
from duly._core.observing import attached
from duly._core.published import Published, of_queue, usable, with_differences
from duly._core.rates import Course, Rates
from duly._core.replies import lease_lost
from duly._core.resp import Arg
from duly._core.results import packed_result
from duly._core.results import refusal_of as result_problem
from duly._core.settles import Row, Step, acked, alike, deferred, extended, recycled, rejected, released, retried
from duly._core.states import LIVE, STATES, State
from duly._core.task_calls import task_call
from duly._core.topic_ops import GroupRow
from duly._core.topology import Away
from duly._core.views import NUMBERS
from duly._sync.app import Duly
from duly._sync.delivery import Delivery
from duly._sync.queue import Queue
from duly._sync.several import Several
from duly._sync.topic import Topic
from duly.errors import CodecError, UsageError
from duly.memory.engine import Engine
from duly.message import Message, MessageId, Pending, PendingMessage
from duly.options import MAX_BATCH, QueueOptions, Send, TopicOptions, checked_seconds

__all__ = [
    "LIVE",
    "NUMBERS",
    "RECORD_HEAD_BYTES",
    "STATES",
    "WAITING",
    "Arg",
    "AsyncSurvey",
    "Away",
    "Course",
    "GroupRow",
    "Inbox",
    "Published",
    "Rates",
    "Row",
    "Several",
    "State",
    "Step",
    "acked",
    "alike",
    "all_listed",
    "before_leaving",
    "check_send",
    "check_server",
    "counts_of",
    "deferred",
    "delivery_from",
    "destination_of",
    "due_us",
    "encoded_name",
    "end_of",
    "entries_pending",
    "extended",
    "foreign_command",
    "group_names",
    "group_rows",
    "is_position",
    "joining",
    "kombu_command",
    "lease_lost",
    "log_dead",
    "max_message_bytes",
    "memory_engine",
    "nearest",
    "new_id",
    "of_queue",
    "open_queue",
    "open_topic",
    "packed_result",
    "purge_letters",
    "read_duration",
    "record_of",
    "record_without_payload",
    "recycled",
    "recycled_with_body",
    "redrive_letters",
    "registered_groups",
    "registered_queue",
    "reject_quietly",
    "rejected",
    "release_now",
    "released",
    "result_problem",
    "retried",
    "run_schedule",
    "run_step",
    "server_address",
    "settled_by",
    "size_text",
    "span",
    "summary_of",
    "survey_nodes",
    "task_call",
    "usable",
    "value_command",
    "with_differences",
    "with_headers",
]

Inbox = AsyncQueue | AsyncGroup
"""A queue, or a consumer group of a topic."""

WAITING: Final[tuple[State, ...]] = ("delayed", "ready", "parked")
"""The states of messages that no consumer has."""

RECORD_HEAD_BYTES: Final = 19
"""Bytes of a record up to its priority. A claim has read these, so every delivered record has them."""


# Apps


def server_address(app: AsyncDuly) -> str:
    """Return the address of the server, without user and password."""
    return app._address.shown


def max_message_bytes(app: AsyncDuly) -> int:
    """Return the size limit of messages that the app was created with."""
    return app._max_message_bytes


def check_send(queue: Queue[Any], message: Send[Any]) -> None:
    """Check a message as `send` does, without sending it. Raises UsageError."""
    with about("queue", queue.name):
        queue._encoded(message)


def memory_engine(app: Duly | AsyncDuly) -> Engine | None:
    """Return the engine of an app on `memory://`. None: the app is on a server."""
    engine = getattr(app._link, "engine", None)
    return engine if isinstance(engine, Engine) else None


def new_id(app: Duly) -> str:
    """Make an id for a message whose send may be repeated."""
    return app._new_id()


def due_us(delivery: Delivery[Any]) -> int:
    """Return when a message was sent or became due, whichever was later: microseconds by the clock of its queue."""
    return schedules.us_of(max(delivery.sent_at, delivery.due_at))


def destination_of(queue: Queue[Any]) -> str:
    """Return a name of a queue that no other queue has: with the address of its server, and its namespace."""
    app = queue._app
    return f"{queue.name!r} on {app._address.shown}, namespace {app.namespace!r}"


def registered_queue(app: AsyncDuly, name: str) -> AsyncQueue:
    """Open a queue with the options of its handler, or with defaults if it has no handler."""
    return app._queue_given(name, "queue", "")


def registered_groups(app: AsyncDuly) -> list[Any]:
    """Return the groups that have handlers, sync or async."""
    queues = (each.queue for each in app._definitions.handlers.values())
    return [each for each in queues if each._keys.kind != "queue"]


def open_queue(app: AsyncDuly, name: str, options: QueueOptions) -> AsyncQueue:
    """Open a queue with these options."""
    return app._queue(name, options)


def open_topic(app: AsyncDuly, name: str, options: TopicOptions) -> AsyncTopic:
    """Open a topic with these options."""
    return app._topic(name, options)


async def run_schedule(app: AsyncDuly, name: str) -> MessageId | None:
    """Send the message of a schedule now. Its runs and a pause stay as they are. None: there is no such schedule."""
    found = await app._schedules().read(name)
    if found is None:
        return None
    queue, now, plan = found
    [message] = schedules.messages(name, plan, [now], app._new_id)
    return await app.queue(queue)._store(message, None)


def check_server(app: Duly, patience: float) -> None:
    """Connect to the server. Raises Unavailable if it does not answer within `patience` seconds."""
    app._link.ask(KombuKeys(app.namespace), "connecting", [b"PING"], patience)


def foreign_command(app: Duly, key: str, command: str | bytes, *arguments: Arg) -> Any:
    """Run a command of another program's keys, on the node that has this key. It may be repeated after a lost reply."""
    name = command if isinstance(command, str) else command.decode()
    return app._link.ask(ForeignKeys(key), f"{name} of the key {key!r}", [command, *arguments])


def kombu_command(app: Duly, command: str, table: str, *arguments: Arg) -> Any:
    """Run a command on a table of the declarations of kombu, like HSET. It may be repeated after a lost reply."""
    keys = KombuKeys(app.namespace)
    return app._link.ask(keys, f"{command} of {keys.title}", [command, keys.key(table), *arguments])


def value_command(app: Duly | AsyncDuly, name: str, command: str, *arguments: Arg) -> Any:
    """Run a command on a value that an adapter stores, like SET. It may be repeated after a lost reply.

    With an async app, it returns an awaitable. Raises UsageError on `memory://`.
    """
    if memory_engine(app) is not None:
        raise UsageError("memory:// stores neither results nor schedules of other frameworks: use embedded://")
    keys = ValueKeys(app.namespace, name)
    return app._link.ask(keys, f"{command} of {keys.title}", [command, keys.key("value"), *arguments])


def with_options(inbox: Inbox, changes: Mapping[str, Any]) -> Inbox:
    """Return a queue or group with some other options."""
    if isinstance(inbox, AsyncGroup):
        topic = open_topic(inbox._app, inbox.topic.name, replace(inbox.topic.options, **changes))
        return topic.group(inbox.name, start=inbox.start, headers=inbox.headers)
    return open_queue(inbox._app, inbox.name, replace(inbox.options, **changes))


# Messages


def all_listed(queue: Queue, state: State) -> Iterator[Message]:
    """Yield all messages of a queue in a state."""
    last: Message | None = None
    while page := queue.list(state, limit=MAX_BATCH, after=last):
        yield from page
        last = page[-1]


# Topics and groups


async def group_names(topic: AsyncTopic) -> list[str]:
    """Return the names of the groups without reading the groups, which may be damaged."""
    return await topic._group_names()


async def group_rows(topic: AsyncTopic) -> list[GroupRow]:
    """Return the stream's view of all groups, including those of other programs and those the stream has lost."""
    overview = await topic._link.run(topic_ops.stats(topic._keys))
    return sorted([*overview.groups, *topic_ops.lost_groups(overview)])


async def entries_pending(group: AsyncGroup) -> int:
    """Return the number of entries in the stream's pending list of a group."""
    row = await group._row()
    return 0 if row is None else row.pending


def end_of(topic: Topic) -> str:
    """Return the position of the last entry of a topic. `topic.read(after=...)` returns the entries after it."""
    reading = topic._link.run(topic_ops.read(topic._keys, publishing.AT_END, 1))
    return reading.position[0].decode()


# Dead letters


async def redrive_letters(inbox: Inbox, letters: Sequence[Message], *, at_end: bool = False) -> int:
    """Redrive dead letters that a list has returned, in one atomic step. Those that have changed since then stay."""
    named = [(each.id, each.cursor[0], b"") for each in letters]
    redriven, _ = await inbox._link.run(ops.redrive(inbox._keys, len(named), named, at_end=at_end))
    return redriven


async def purge_letters(inbox: Inbox, letters: Sequence[Message]) -> int:
    """Remove dead letters that a list has returned, in one atomic step. Those that have changed since then stay."""
    purged, _ = await inbox._link.run(ops.purge_letters(inbox._keys, [(each.id, each.cursor[0]) for each in letters]))
    return purged


# Leases and positions


def summary_of(rows: Sequence[PendingMessage], limit: int, *, is_group: bool) -> Pending:
    """Summarize leases, with the first `limit` of them."""
    return views.pending(rows, limit, publishing.parsed_id if is_group else None)


def is_position(id_: str, score: int) -> bool:
    """Return whether a list can continue after this id and score."""
    return score != publishing.UNREAD[0] or publishing.is_id(id_)


# Deliveries


def record_of(delivery: AsyncDelivery) -> bytes:
    """Return the stored record of a delivery."""
    return delivery._record


def counts_of(delivery: AsyncDelivery) -> bytes:
    """Return the stored counts of a delivery: failures, crashes, defers and releases."""
    return delivery._counts


def record_without_payload(delivery: AsyncDelivery) -> bytes:
    """Return the record without body and headers. Settling needs its flags, key and policies only."""
    try:
        stored = codec.read_record(delivery._record)
    except CodecError:  # a damaged record can be settled by the policies of its queue
        return delivery._record[:RECORD_HEAD_BYTES]
    return _rewritten(stored, codec.CONTENT_BYTES, b"", None)


def delivery_from(inbox: Inbox, id_: str, fence: int, record: bytes, counts: bytes) -> AsyncDelivery:
    """Restore a delivery from its parts."""
    return AsyncDelivery(inbox, id_, fence, record, counts)


def with_headers(delivery: AsyncDelivery, headers: Mapping[str, str]) -> AsyncDelivery:
    """Return a copy of a delivery with the headers of its message, which are kept when its body is replaced."""
    stored = codec.read_record(delivery._record)
    record = _rewritten(stored, stored.envelope.content, stored.envelope.body, dict(headers))
    return AsyncDelivery(delivery._queue, delivery.id, delivery.fence, record, delivery._counts)


def _rewritten(stored: codec.Record, content: int, body: bytes, headers: dict[str, str] | None) -> bytes:
    envelope = codec.Envelope(content, body, headers, stored.envelope.retry, stored.envelope.repeat)
    return codec.stamped(stored.sent, stored.due, codec.rewritten_part(stored, envelope))


def settled_by(delivery: AsyncDelivery | Delivery) -> str | None:
    """Return the verb that settled a delivery, or "lost". None: it is not settled."""
    return delivery._settled


def log_dead(delivery: AsyncDelivery, reason: str) -> None:
    """Log that a message is dead."""
    delivery._log_dead(reason)


# Settling


async def run_step(inbox: Inbox, step: Step) -> list[int]:
    """Settle the deliveries of a step in one call. Returns the positions of those whose lease was lost."""
    lost: list[int] = await inbox._link.run(step.call(inbox._keys, inbox.options))
    return lost


async def release_now(inbox: Inbox, deliveries: Iterable[AsyncDelivery]) -> None:
    """Release deliveries without waiting for a server that is away."""
    await inbox._link.run_now(ops.release(inbox._keys, list(deliveries)))


def reject_quietly(delivery: Delivery, reason: str) -> None:
    """Make a message dead, without a line in the log: the framework logs it. Raises LeaseLost."""
    (step,) = settles.rejected([delivery], reason)
    delivery._settle(step.way.verb, step.call(delivery._queue._keys, delivery._queue.options))


def recycled_with_body(inbox: Inbox, deliveries: Sequence[AsyncDelivery], delay: float, body: Any) -> list[Step]:
    """Finish messages and store them as new ones with another body.

    The body is encoded and checked once. Each record is written when its call is made, because a large body may be
    the same for a thousand messages.
    """
    seconds = checked_seconds(delay, "delay")
    content, raw = inbox._encoder.body(body)
    for each in deliveries:
        _check_readable(inbox, each)

    def call(keys: QueueKeys, _: QueueOptions, rows: Sequence[Row]) -> Call[list[int]]:
        return ops.recycle(keys, [(each, seconds, _with_body(record, content, raw)) for each, record, _ in rows])

    return [Step(replace(settles.RECYCLE, call=call), [(each, each._record, raw) for each in deliveries])]


def _check_readable(inbox: Inbox, delivery: AsyncDelivery) -> None:
    try:
        codec.read_record(delivery._record)
    except CodecError:
        raise CodecError(
            f"message {delivery.id} of {inbox.title} is damaged: its headers and policies cannot be read. "
            "Reject it, or send a new message and ack this one"
        ) from None


def _with_body(record: bytes, content: int, raw: bytes) -> codec.Part:
    """Rewrite a record with another body that is already encoded."""
    old = codec.read_record(record)
    envelope = codec.Envelope(content, raw, old.envelope.headers, old.envelope.retry, old.envelope.repeat)
    return codec.rewritten_part(old, envelope)


def joining(app: AsyncDuly, headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return a context manager for a request with these headers: an observer of the app may continue its trace."""
    observer = attached(app)
    return nullcontext() if observer is None else observer.joining(headers)
