"""A topic: each published entry is delivered to every group. Publishing, reading without a group, and inspecting."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

from duly._async.auditing import AsyncAuditor
from duly._async.durability import Confirmation
from duly._async.group import AsyncGroup, Position, Wanted
from duly._async.outbox import AsyncOutbox, AsyncPublishes
from duly._core import codec, ops, outgoing, patience, publishing, refused_options, topic_ops, views
from duly._core.explanation import explained_delayed, explained_entry, explained_missing
from duly._core.keys import GroupKeys, TopicKeys
from duly._core.naming import about
from duly._core.observing import NO_HEADERS, encoded
from duly._core.outgoing import Outgoing
from duly._core.topic_ops import Publication
from duly.errors import NotDurable, UsageError
from duly.message import Audit, Entry, GroupInfo, Message, MessageId, TopicStats, message_ids
from duly.options import (
    MAX_BATCH,
    Batch,
    BodyT,
    Durable,
    Seconds,
    Send,
    TopicOptions,
    checked_count,
    checked_durable,
    checked_name,
    checked_seconds,
    is_name,
)
from duly.selection import checked_progress

if TYPE_CHECKING:
    from duly._async.app import AsyncDuly
    from duly._async.link import AsyncLink
    from duly._typing import Handles, HandlesBatches

# --- sync only
# | if TYPE_CHECKING:
# |     from duly._async.topic import AsyncTopic
# |
# --- end
F = TypeVar("F", bound=Callable[[Message], Any])

_NO_OPTIONS = (None,) * 6
_OPTIONS = ("delay", "at", "key", "headers", "dedup", "dedup_for", "durable")

_BRIEF = 0.25
"""The client ends waits shorter than this, since a timeout of the server may fire 0.1 s late."""

_POLL_EVERY = 5.0
"""Seconds after which a reader polls even if it was not woken."""


class AsyncTopic(Generic[BodyT]):
    """A topic. `app.topic(name, ...)` returns it. Threads or tasks may share it like its app."""

    def __init__(self, app: "AsyncDuly", name: str, options: TopicOptions) -> None:
        self.name: str = name
        self.options: TopicOptions = options
        self._app = app
        self._link: AsyncLink = app._link
        self._keys = TopicKeys(app.namespace, name)
        self._publisher = publishing.Publisher(name, options)
        self._of_group = options.of_group()
        self._publishes = AsyncPublishes(self._link, self._keys, options.keep)
        self._outbox = AsyncOutbox(self._link, self._keys, self._of_group)
        """For delayed publishes."""
        self._decode_body = codec.decoder_of(options.type)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._app!r}>"

    @property
    def stream(self) -> str:
        """The key of its stream. Other programs may use XADD and XREADGROUP with it."""
        return self._keys.stream.decode()

    # --- sync only
    # | @property
    # | def aio(self) -> "AsyncTopic[BodyT]":
    # |     """The async counterpart of this topic, with the same definition."""
    # |     return self._app.aio._topic(self.name, self.options)
    # |
    # --- end
    def _counterpart(self, app: Any) -> Any:
        return app._topic(self.name, self.options)

    # Publishing

    async def publish(
        self,
        body: BodyT | Send[BodyT],
        *,
        delay: Seconds | None = None,
        at: datetime | float | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
        dedup_for: Seconds | None = None,
        durable: Durable = None,
        **unknown: Never,
    ) -> MessageId:
        """Add an entry to the stream and return its id. With a delay, the id is for `cancel` and `reschedule`.

        Args:
            body: The body, or a `Send` with its own options.
            delay: Seconds until the entry is added to the stream.
            at: The time at which it is added, instead of `delay`: an aware datetime, or seconds since the epoch.
            key: Each group receives entries with the same key one at a time, in order.
            headers: Texts that go with the entry.
            dedup: A second entry with this value is not added, for `dedup_for` seconds.
            dedup_for: The window of `dedup`. None: that of the topic.
            durable: Wait until the server has confirmed the write: "fsync", "replica", or a number of replicas.
            **unknown: Not accepted. An option that topics do not have raises UsageError.

        Example:
            ```python
            await events.publish({"order": 17, "paid": True}, key="order-17")
            ```

        Atomic. A retry after a lost reply adds the entry once. To make a call safe to repeat, pass the same `dedup`:
        within its window, it returns the first id. Raises UsageError or TooLarge if nothing was sent, QueueFull if
        the server is full, NotDurable if the entry is stored but not confirmed, and Unavailable.
        """
        if unknown:
            self._refuse("publish", unknown, _OPTIONS, refused_options.INSTEAD_OF_PUBLISH)
        given: BodyT | Send[BodyT] = body
        if (delay, at, key, headers, dedup, dedup_for) != _NO_OPTIONS:
            if isinstance(body, Send):
                raise UsageError(
                    f"topic {self.name!r}: a Send has its options in it: give them there, or pass the body itself"
                )
            given = Send(body, delay, at, key, headers=headers, dedup=dedup, dedup_for=dedup_for)
        return (await self._publish([given], durable))[0]

    async def publish_many(
        self, bodies: Iterable[BodyT | Send[BodyT]], *, durable: Durable = None, **unknown: Never
    ) -> list[MessageId]:
        """Publish many bodies or `Send`s, up to 1,000 per round trip, and return their ids in the same order.

        All are validated before the first one is published. Each batch is atomic. Raises the same as `publish`.
        """
        self._refuse("publish_many", unknown, ("durable",), refused_options.INSTEAD_OF_PUBLISH_MANY)
        if isinstance(bodies, str | bytes | bytearray | Mapping) or not isinstance(bodies, Iterable):
            raise UsageError(f"topic {self.name!r}: publish_many takes a list of bodies, not {type(bodies).__name__}")
        return await self._publish(bodies, durable)

    async def _publish(self, bodies: Iterable[Any], durable: Durable) -> list[MessageId]:
        if (observer := self._app._definitions.observer) is None:
            return await self._publish_all(self._prepared(bodies), durable)
        given = list(bodies)
        with observer.sending(self, given) as sending:
            stored = await self._publish_all(self._prepared(given, sending.headers), durable)
            sending.stored(stored)
            return stored

    def _refuse(self, what: str, unknown: Iterable[str], known: Iterable[str], instead: Mapping[str, str]) -> None:
        refused_options.refuse(f"topic {self.name!r}", what, unknown, known, instead)

    def _prepared(
        self, bodies: Iterable[Any], added_headers: Iterable[Mapping[str, str]] = itertools.repeat(NO_HEADERS)
    ) -> list[Publication | Outgoing]:
        now, new_id, publisher = time.time(), self._app._new_id, self._publisher

        def prepared(given: Any) -> Publication | Outgoing:
            return publisher.prepared(given, new_id, now)

        with about("topic", self.name):
            pairs = zip(bodies, added_headers, strict=False)
            return [encoded(prepared, body, added) if added else prepared(body) for body, added in pairs]

    async def _publish_one(self, prepared: Publication | Outgoing) -> MessageId:
        """Publish together with others that are published at the same time."""
        if isinstance(prepared, Publication):
            return MessageId(await self._publishes.publish(prepared))
        stored = await self._outbox.send(prepared)
        assert stored is not None  # a topic does not limit delayed publishes
        return MessageId(stored)

    async def _publish_all(self, prepared: Sequence[Publication | Outgoing], durable: Durable) -> list[MessageId]:
        if durable is None and len(prepared) == 1:
            return [await self._publish_one(prepared[0])]
        with about("topic", self.name):
            checked_durable(durable)
        entries = [each for each in prepared if isinstance(each, Publication)]
        delayed = [each for each in prepared if isinstance(each, Outgoing)]
        stored: list[MessageId] = []
        unconfirmed = ""
        for batch in publishing.batches(entries):
            ids, (confirmed, missing) = await self._run(
                topic_ops.publish(self._keys, batch, self.options.keep), durable
            )
            stored += message_ids(ids, confirmed)
            unconfirmed = unconfirmed or missing
        waiting: list[MessageId] = []
        for later in outgoing.batches(delayed):
            outcome, (confirmed, missing) = await self._run(ops.send(self._keys, later, self._of_group, "all"), durable)
            waiting += message_ids(outcome.ids, confirmed)
            unconfirmed = unconfirmed or missing
        of_entries, of_delayed = iter(stored), iter(waiting)
        ids = [next(of_entries if isinstance(each, Publication) else of_delayed) for each in prepared]
        if unconfirmed:
            raise NotDurable(
                f"{len(ids)} message(s) are stored in topic {self.name!r} but not confirmed as durable: "
                f"{unconfirmed}. They are delivered unless the server loses them before that",
                ids=ids,
            )
        return ids

    async def _run(self, call: Any, durable: Durable) -> tuple[Any, Confirmation]:
        if durable is None:
            return await self._link.run(call), Confirmation()
        return await self._link.run_durably(call, durable)

    async def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a delayed publish by its id. Atomic and safe to repeat.

        Returns False if it is unknown, cancelled, or already in the stream.
        """
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.cancel(self._keys, id))

    async def reschedule(
        self,
        id: str,  # noqa: A002
        *,
        delay: Seconds | None = None,
        at: datetime | float | None = None,
    ) -> bool:
        """Change the time at which a delayed publish enters the stream. Atomic and safe to repeat.

        Returns False if it is not waiting.
        """
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.reschedule(self._keys, id, outgoing.new_due(delay, at, time.time())))

    async def promote(self, id: str) -> bool:  # noqa: A002
        """Let a delayed publish enter the stream now. Atomic and safe to repeat. Returns False if it is not waiting."""
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.reschedule(self._keys, id, outgoing.NOW))

    # Groups

    def group(
        self, name: str, *, start: Position = "beginning", headers: Wanted | None = None, **unknown: Never
    ) -> AsyncGroup[BodyT]:
        """Return a consumer group. No call is made: the first use creates the group, or `create()`.

        - `start`: The start of a new group: "beginning" with all stored entries, "new" with entries from then on, the
          id of an entry to start after, or a time.
        - `headers`: Only entries that have these headers are delivered. A list means any of its values.

        Both are not stored, so all consumers of the group should use the same. Raises InvalidName or UsageError.
        """
        checked_name(name, "group")
        label = f"{self.name}/{name}"
        refused_options.refuse(
            f"group {label!r}", "a group", unknown, ("start", "headers"), refused_options.INSTEAD_OF_GROUP
        )
        with about("group", label):
            return AsyncGroup(self, name, start=start, headers=headers)

    @overload
    def handler(
        self,
        *,
        group: str,
        start: Position = "beginning",
        headers: Wanted | None = None,
        concurrency: int | None = None,
        batch: None = None,
        timeout: Seconds | None = None,
    ) -> "Handles[BodyT]": ...

    @overload
    def handler(
        self,
        *,
        group: str,
        start: Position = "beginning",
        headers: Wanted | None = None,
        concurrency: int | None = None,
        batch: Batch,
        timeout: Seconds | None = None,
    ) -> "HandlesBatches[BodyT]": ...

    def handler(
        self,
        *misplaced: Any,
        group: str = "",
        start: Position = "beginning",
        headers: Wanted | None = None,
        concurrency: int | None = None,
        batch: Any = None,
        timeout: Seconds | None = None,
        **unknown: Any,
    ) -> Any:
        """Register the function that workers call with each message of a group, as `queue.handler` does."""
        if misplaced or not group:
            raise _without_group(self.name, misplaced)
        known = ("group", "start", "headers", *refused_options.OF_HANDLER)
        title = f"group {f'{self.name}/{group}'!r}"
        refused_options.refuse(title, "a handler", unknown, known, refused_options.INSTEAD_OF_GROUP)
        consumers = self.group(group, start=start, headers=headers)
        return consumers.handler(concurrency=concurrency, batch=batch, timeout=timeout)

    def on_dead(self, function: F) -> F:
        """Register a function that a worker calls with each message that it makes dead, in any group."""
        self._app._definitions.add_on_dead(f"{self.name}/", function)
        return function

    async def groups(self) -> list[GroupInfo]:
        """Return all groups, including those of other programs, sorted by name."""
        overview = await self._link.run(topic_ops.stats(self._keys))
        return [await self._info(row) for row in sorted([*overview.groups, *topic_ops.lost_groups(overview)])]

    async def _info(self, row: topic_ops.GroupRow) -> GroupInfo:
        ready, delayed, parked, dead = row.unread, 0, 0, 0
        if is_name(row.name):  # other names belong to groups of other programs
            stats = await self._link.run(ops.stats(self._group_keys(row.name)))
            ready, delayed, parked, dead = stats.ready, stats.delayed, stats.parked, stats.dead
        return GroupInfo(
            name=row.name,
            unread=row.unread,
            pending=row.pending,
            consumers=row.consumers,
            last_id=row.last_id,
            missed=row.missed,
            ready=ready,
            delayed=delayed,
            parked=parked,
            dead=dead,
        )

    async def _group_names(self) -> list[str]:
        """Return the names of the groups without reading their data, which may be damaged.

        Groups of other programs with names that Duly does not allow are left out.
        """
        overview = await self._link.run(topic_ops.stats(self._keys))
        return [name for name in topic_ops.group_names(overview) if is_name(name)]

    def _group_keys(self, name: str) -> GroupKeys:
        return GroupKeys(self._keys, name, frees=self.options.keep is None)

    # Inspecting and managing

    async def read(self, after: Position | None = None, limit: int = 100, wait: Seconds = 0) -> list[Entry]:
        """Read up to `limit` (100) entries without a group, and wait up to `wait` seconds for the first.

        `after` is the id of an entry to start after; None for the beginning; "new" for entries from now on; or a time
        to start at. For the next page, pass the id of the last entry. Returns [] if the wait timed out. A page of large
        entries may be shorter than `limit`. Raises UsageError for an invalid argument.
        """
        checked_count(limit, "limit", most=MAX_BATCH)
        left = checked_seconds(wait, "wait")
        with about("topic", self.name):
            begin = publishing.after_of(after, "after")
        give_up_at, is_brief, fruitless = time.monotonic() + left, left < _BRIEF, 0
        while True:
            reading = await self._link.run(topic_ops.read(self._keys, begin, limit))
            if reading.entries:
                return [publishing.entry_of(self.name, self._decode_body, *entry) for entry in reading.entries]
            left = give_up_at - time.monotonic()
            if left <= 0:
                return []
            if begin == publishing.AT_END:  # entries before the first read are not new
                begin = f"({reading.position[0].decode()}"
            pause, exact = patience.pause_before(reading.next_in, left, _POLL_EVERY, fruitless)
            fruitless = fruitless + 1 if exact else 0
            await self._link.wait_for_entry(self._keys, reading.position, pause, exact=exact or is_brief)

    async def delayed(self, limit: int = 50, after: Message | str | None = None) -> list[Message]:
        """Return a page of delayed publishes. `after` is the last one of the previous page, or its id."""
        return await self._page("delayed", limit, after)

    async def dead(self, limit: int = 50, after: Message | str | None = None) -> list[Message]:
        """Return a page of the delayed publishes that could not enter the stream, since their data was damaged.

        `cancel(id)` removes one. `group.list("dead")` has the dead letters of a group.
        """
        return await self._page("dead", limit, after)

    async def _page(self, state: str, limit: int, after: Message | str | None) -> list[Message]:
        checked_count(limit, "limit", most=MAX_BATCH)
        if after is not None and not isinstance(after, Message):
            outgoing.checked_text(after, "after")
        page, _ = await self._link.run(ops.list_(self._keys, self._viewer(), state, limit, after))
        return page

    async def get(self, id: str) -> Message | None:  # noqa: A002
        """Return a delayed publish; None: it is unknown, cancelled, or already in the stream, where `read` shows it."""
        details = await self._details(id)
        return None if details is None else details.message

    async def explain(self, id: str) -> str:  # noqa: A002
        """Explain in one sentence where an entry is: still delayed, or in the stream for its groups."""
        details = await self._details(id)
        if details is not None:
            return explained_delayed(self.name, id, details)
        if not publishing.is_id(id) or await self._fields_of(id) is None:
            return explained_missing(self.name, id, is_entry=publishing.is_id(id))
        rows = (await self._link.run(topic_ops.stats(self._keys))).groups
        return explained_entry(self.name, id, sorted(row.name for row in rows))

    async def _details(self, id_: str) -> views.MessageDetails | None:
        """Return a delayed publish and the data that explains its state."""
        outgoing.checked_text(id_, "id")
        return await self._link.run(ops.explain(self._keys, self._viewer(), id_))

    async def _fields_of(self, id_: str) -> Sequence[bytes] | None:
        """Return the fields of an entry; None: it is not in the stream."""
        found = (await self._link.run(topic_ops.read(self._keys, id_, 1))).entries
        return found[0][1] if found and found[0][0] == id_ else None

    def _viewer(self) -> views.Viewer:
        return views.Viewer(self.name, self._decode_body, title=self._keys.title)

    async def stats(self) -> TopicStats:
        """Return the sizes and counters of the topic, as one atomic snapshot. `groups()` has those of each group."""
        overview = await self._link.run(topic_ops.stats(self._keys))
        counted = {name: overview.counter(name) for name in ("published", "entered", "duplicates", "trimmed")}
        return TopicStats(
            length=overview.length,
            bytes=overview.bytes,
            delayed=overview.delayed,
            published=counted["published"] + counted["entered"],
            duplicates=counted["duplicates"],
            trimmed=counted["trimmed"],
            groups=len(topic_ops.group_names(overview)),
            first_id=overview.first_id or None,
            last_id=overview.last_id or None,
        )

    async def audit(self, repair: bool = False, *, on_progress: Callable[[int], None] | None = None) -> Audit:
        """Check that each delayed publish is accounted for: it has entered the stream, is cancelled, waiting, or dead.

        It runs in bounded steps while the topic is in use. With `repair`, it fixes the faults. No entry is lost by that
        or enters the stream early. `on_progress` is called after each step with the number of ids checked so far. Each
        group has its own `audit`. Safe to repeat.
        """
        progress = checked_progress(on_progress)
        return await AsyncAuditor(self._link, self._keys, self.name, repair=repair, on_progress=progress).run()

    async def delete(self) -> None:
        """Delete the topic: its stream, its delayed publishes, and all groups with their messages.

        Not atomic: each group is deleted in its own step. Safe to repeat.
        """
        for name in await self._group_names():  # groups of other programs are deleted with the stream
            await self._link.run(ops.delete(self._group_keys(name)))
        await self._link.run(topic_ops.delete(self._keys))


def _without_group(topic: str, misplaced: Sequence[object]) -> UsageError:
    """Return the error for a handler without `group=`, with the correct form."""
    group = misplaced[0] if misplaced and isinstance(misplaced[0], str) else "..."
    return UsageError(f'topic {topic!r}: a handler is for one group: write @events.handler(group="{group}")')
