"""A consumer group of a topic: an inbox that reads the topic's stream, with its own retries and dead letters."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly._async.inbox import AsyncInbox, Page
from duly._async.primitives import sleep
from duly._core import ops, outgoing, patience, publishing, replies, topic_ops, views
from duly._core.call import Call
from duly._core.explanation import (
    explained,
    explained_absent,
    explained_to_come,
    explained_unread,
    explained_without_group,
)
from duly._core.keys import GroupKeys
from duly._core.naming import about
from duly._core.states import State
from duly.message import Message, Pending, PendingMessage
from duly.options import MAX_BATCH, BodyT, Seconds, checked_count, checked_seconds

if TYPE_CHECKING:
    from duly._async.topic import AsyncTopic

# --- sync only
# | if TYPE_CHECKING:
# |     from duly._async.group import AsyncGroup
# |
# --- end
Position = str | datetime
"""A start in a stream: "beginning", "new", the id of an entry (start after it), or a time."""

Wanted = Mapping[str, str | Sequence[str]]
"""Headers that entries must have, each with one value or a list of accepted values."""


class AsyncGroup(AsyncInbox[BodyT]):
    """A consumer group of a topic. `events.group(name)` returns it. Threads or tasks may share it like its app.

    Each entry of the topic is delivered to one consumer of each group. The first use creates the group.
    """

    def __init__(self, topic: "AsyncTopic[BodyT]", name: str, *, start: Position, headers: Wanted | None) -> None:
        self._start = publishing.start_of(start, "start", time.time())
        self._filter = publishing.checked_filter(headers)
        keys = GroupKeys(topic._keys, name, frees=topic.options.keep is None)
        super().__init__(topic._app, name, keys, topic.options.of_group())
        self._keys: GroupKeys = keys
        self.topic: AsyncTopic[BodyT] = topic
        self.start: Position = start
        """The start in the stream, if the group does not exist yet."""
        self.headers: Wanted | None = headers
        """The headers that entries must have. Other entries are skipped."""

    # --- sync only
    # | @property
    # | def aio(self) -> "AsyncGroup[BodyT]":
    # |     """The async counterpart of this group, with the same definition."""
    # |     counterpart: AsyncGroup[BodyT] = self._counterpart(self._app.aio)
    # |     return counterpart
    # |
    # --- end
    def _counterpart(self, app: Any) -> Any:
        return self.topic._counterpart(app).group(self.name, start=self.start, headers=self.headers)

    # Position in the stream

    async def create(self) -> bool:
        """Create the group now, not at its first use, so that it gets all entries from now on. Safe to repeat.

        Returns False if the group existed.
        """
        return await self._link.run(topic_ops.seek(self._keys, self._start, makes=True))

    async def seek(self, to: Position) -> None:
        """Move the group to another position: "beginning", "end", after the id of an entry, or to a time.

        Leased messages and messages that wait for a retry stay. None of them is delivered twice at the same time.
        Atomic and safe to repeat. Raises UsageError if the position is invalid.
        """
        with about("group", self.label):
            position = publishing.start_of(to, "to", time.time())
        await self._link.run(topic_ops.seek(self._keys, position, makes=False))

    # Receiving

    def _claim(
        self, *, limit: int, lease: float, then: ops.Then, suspects: ops.Suspects = "with"
    ) -> Call[replies.Claimed]:
        return ops.claim(
            self._keys,
            self.options,
            limit=limit,
            lease=lease,
            consumer=self._link.consumer,
            then=then,
            suspects=suspects,
            feed=[self._start, *(text for pair in self._filter for text in pair)],
        )

    async def _wait(self, claimed: replies.Claimed, seconds: float, *, exact: bool, woken: int) -> bool:
        """Wait for an entry or a bell. They wake all consumers, so a consumer that found no message pauses briefly."""
        if claimed.position is None:  # there may be more at once: the claim did other work
            await sleep(min(seconds, patience.LONGEST_REST))
            return False
        if woken:
            pause = min(seconds, patience.rest_after(woken, random.random))
            await sleep(pause)
            seconds -= pause
        return await self._link.wait_for_entry(self._keys, claimed.position, seconds, exact=exact)

    async def _give_back(self, claimed: replies.Claimed) -> None:
        """Release the messages of a cancelled receive. A group has no wake token to pass on."""
        if claimed.ids:
            await super()._give_back(claimed)

    # Inspecting and managing

    async def get(self, id: str) -> Message | None:  # noqa: A002
        """Return one message; None: it is unknown or finished. An unread entry is shown as ready."""
        message = await super().get(id)
        return await self._unread_message(id) if message is None else message

    async def _unread_message(self, id_: str) -> Message | None:
        """Return an entry that the group has not read yet, unless the group will skip it."""
        row = await self._row() if publishing.is_id(id_) else None
        fields = None if row is None else await self._fields_of(id_)
        if row is None or fields is None or not _is_behind(id_, row.last_id):
            return None
        return self._message_if_wanted(id_, fields)

    async def explain(self, id: str) -> str:  # noqa: A002
        """Explain in one sentence why a message is not being delivered, and when it will be."""
        outgoing.checked_text(id, "id")
        details = await self._link.run(ops.explain(self._keys, self._viewer(), id))
        if details is not None:
            return explained(self.label, id, details, self.options)
        rows = (await self._link.run(topic_ops.stats(self._keys.topic))).groups
        row = next((row for row in rows if row.name == self.name), None)
        to_come = None if publishing.is_id(id) else await self.topic._details(id)
        if to_come is not None:
            return explained_to_come(self.label, id, to_come, is_group_there=row is not None)
        if row is None:
            return explained_without_group(self.label, id, self.topic.name, sorted(row.name for row in rows))
        fields = await self._fields_of(id) if publishing.is_id(id) else None
        if fields is None or not _is_behind(id, row.last_id):
            return explained_absent(self.label, id, is_in_stream=fields is not None)
        is_wanted = self._message_if_wanted(id, fields) is not None
        return explained_unread(self.label, id, row.unread, (await self.stats()).paused, is_wanted=is_wanted)

    async def _listed(self, state: State, limit: int, after: Message | str | None, *, newest: bool) -> Page:
        """List the messages of the group. Ready messages are followed by unread entries."""
        if state != "ready":
            return await super()._listed(state, limit, after, newest=newest)
        behind = await self._unread_behind(after)
        if behind is not None:
            return await self._unread_page(behind, limit)
        page, is_last = await self._link.run(ops.list_(self._keys, self._viewer(), state, limit, after))
        return [*page, *await self._unread_page("0-0", limit - len(page))] if is_last and len(page) < limit else page

    async def _unread_behind(self, after: Message | str | None) -> str | None:
        """Return the unread entry after which a page begins; None: the page begins with stored messages."""
        if isinstance(after, Message):
            return after.id if after.cursor == publishing.UNREAD else None
        if after is None or await super().get(after) is not None:
            return None
        return after if await self._unread_message(after) is not None else None

    async def _unread_page(self, behind: str, limit: int) -> Page:
        """List unread entries after an id, without those that the group has stored already, before a seek."""
        row, found = await self._row(), Page()
        if row is None:
            return found
        begin = behind if _is_behind(behind, row.last_id) else row.last_id
        fed = await self._link.run(ops.fed(self._keys))
        count = MAX_BATCH if self._filter else limit  # most entries may not match
        while not found:
            reading = await self._link.run(topic_ops.read(self._keys.topic, f"({begin}", count))
            for id_, fields in reading.entries:
                begin, message = id_, self._message_if_wanted(id_, fields)
                may_be_known = message is not None and (fed is None or not _is_behind(id_, fed))
                if message is not None and not (may_be_known and await super().get(id_) is not None):
                    found.append(message)
                if len(found) == limit:
                    break
            if not reading.entries:
                break
        return found

    def _message_if_wanted(self, id_: str, fields: Sequence[bytes]) -> Message | None:
        message = publishing.message_of(self.label, self._decode_body, id_, fields)
        return message if publishing.is_wanted(self._filter, message.headers) else None

    async def _row(self) -> topic_ops.GroupRow | None:
        """Return the state of the group in the stream; None: it does not exist."""
        overview = await self._link.run(topic_ops.stats(self._keys.topic))
        return next((row for row in overview.groups if row.name == self.name), None)

    async def _fields_of(self, id_: str) -> Sequence[bytes] | None:
        """Return the fields of an entry of the stream; None: it is not in the stream."""
        return await self.topic._fields_of(id_)

    async def pending(
        self,
        consumer: str | None = None,
        limit: int = 100,
        *,
        start: str | None = None,
        end: str | None = None,
        min_idle: Seconds = 0,
    ) -> Pending:
        """Return the current leases, as XPENDING does: totals, counts by consumer, and the first `limit` entries by id.

        Consumers of other programs are included. `start` and `end` are ids of entries, both inclusive. `min_idle`
        excludes entries that were delivered less than this many seconds ago.
        """
        checked_count(limit, "limit", least=0)
        least = checked_seconds(min_idle, "min_idle")
        with about("group", self.label):
            first, last = publishing.range_of(start, end)
        found = {row.id: row for row in (*await self._foreign_rows(), *await self._leases())}
        rows = [
            row
            for row in found.values()
            if (consumer is None or row.consumer == consumer)
            and row.idle >= least
            and first <= publishing.parsed_id(row.id) <= last
        ]
        rows.sort(key=lambda row: publishing.parsed_id(row.id))
        return views.pending(rows, limit, publishing.parsed_id)

    async def _foreign_rows(self) -> Sequence[PendingMessage]:
        """List the entries that consumers of other programs hold. Duly takes over those that are idle for a lease."""
        rows: list[topic_ops.ForeignRow] = []
        begin = "-"
        while True:
            page = await self._link.run(topic_ops.foreign_pending(self._keys, begin, MAX_BATCH))
            rows += page.rows
            if not page.last:
                break
            begin = f"({page.last}"
        if not rows:
            return ()
        now = (await self._link.run(topic_ops.stats(self._keys.topic))).now
        return [_foreign(row, now, self._lease) for row in rows]

    async def pause(self) -> None:
        """Stop deliveries to this group until `resume`. Publishes and settles still work. Safe to repeat.

        A group that does not exist is created, so that new entries wait for it.
        """
        await self.create()
        await super().pause()

    async def _purge(self, state: State | None, on_progress: Callable[[int], None] | None, done: int = 0) -> int:
        """Purge messages as a queue does. Unread entries are skipped and counted. The topic keeps them."""
        unread = (await self._stats_for("purge")).unread if state in (None, "ready") else 0
        if unread:
            await self.seek("end")
            if on_progress is not None:
                on_progress(done + unread)
        return await super()._purge(state, on_progress, done + unread)

    async def delete(self) -> None:
        """Delete the group with its messages and counters. The topic keeps its entries. Atomic and safe to repeat."""
        await super().delete()


def _is_behind(id_: str, other: str) -> bool:
    return publishing.parsed_id(id_) > publishing.parsed_id(other)


def _foreign(row: topic_ops.ForeignRow, now: int, lease: float) -> PendingMessage:
    left = lease - row.idle
    return PendingMessage(
        id=row.id,
        consumer=row.consumer,
        fence=0,
        deadline=views.moment(now + left * 1_000_000),
        deadline_in=left,
        attempt=row.deliveries,
        deliveries=row.deliveries,
        idle=row.idle,
    )
