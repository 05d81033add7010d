"""A group of a topic: an inbox that is fed by the topic's stream, with its own progress, retries and dead letters."""

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly._async.inbox import AsyncInbox
from duly._async.wire import sleep
from duly._core import ops, outgoing, publishing, replies, topic_ops
from duly._core.call import Call
from duly._core.explanation import explained_unread
from duly._core.keys import GroupKeys
from duly._core.naming import about
from duly._core.states import State
from duly.message import Pending, PendingMessage
from duly.options import MAX_BATCH, Seconds, checked_count, checked_seconds

if TYPE_CHECKING:
    from duly._async.topic import AsyncTopic

# --- sync only
# | if TYPE_CHECKING:
# |     from duly._async.group import AsyncGroup
# |
# --- end
Position = str | datetime
"""Where to begin in a stream: "beginning", "new", the id of an entry, behind which, or a time, from which on."""

Wanted = Mapping[str, str | Sequence[str]]
"""Headers that entries have to have, each with its value, or one of several."""

_LONGEST_BACKOFF = 0.05


class AsyncGroup(AsyncInbox):
    """One group of a topic, as this process sees it. Made by `events.group(name)`; may be shared like its app.

    Each entry of the topic is handed to one member of each group. The group is created by its first use.
    """

    def __init__(self, topic: "AsyncTopic", name: str, *, start: Position, headers: Wanted | None) -> None:
        self._start = publishing.start_of(start, "start")
        self._filter = publishing.checked_filter(headers)
        keys = GroupKeys(topic._keys, name, frees=topic.options.keep is None)
        super().__init__(topic._app, name, keys, topic.options.of_group())
        self._keys: GroupKeys = keys
        self.topic = topic
        self.start = start
        """Where it begins, if it does not exist yet."""
        self.headers = headers
        """What entries have to have; the others are passed over."""

    # --- sync only
    # | @property
    # | def aio(self) -> "AsyncGroup":
    # |     """The async twin of this group: the same definition."""
    # |     twin: AsyncGroup = self._twin(self._app.aio)
    # |     return twin
    # |
    # --- end
    def _twin(self, app: Any) -> Any:
        return self.topic._twin(app).group(self.name, start=self.start, headers=self.headers)

    # Its place in the stream

    async def create(self) -> bool:
        """Create the group now, rather than with its first use: what is published from now on reaches it.

        False: it was there.
        """
        return await self._link.run(topic_ops.seek(self._keys, self._start, makes=True))

    async def seek(self, to: Position) -> None:
        """Have the group read on from another place: "beginning", "end", behind the id of an entry, or from a time on.

        What members hold, and what waits for another attempt, stays; none of it is delivered twice at the same time.
        """
        with about("group", self.label):
            position = publishing.start_of(to, "to")
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
        """Wait for an entry, or a bell. All members hear them, so whoever found nothing steps back for a moment."""
        if claimed.position is None:  # there may be more at once: the claim was busy with something else
            await sleep(min(seconds, _LONGEST_BACKOFF))
            return False
        if woken:
            pause = min(seconds, random.random() * min(_LONGEST_BACKOFF, 0.002 * 2.0 ** min(woken, 10)))  # noqa: S311
            await sleep(pause)
            seconds -= pause
        return await self._link.wait_for_entry(self._keys, claimed.position, seconds, exact=exact)

    async def _give_back(self, claimed: replies.Claimed) -> None:
        """Release what a cancelled receive has claimed. There is no token to hand on."""
        if claimed.ids:
            await super()._give_back(claimed)

    # Looking and steering

    async def explain(self, id: str) -> str:  # noqa: A002
        """Say in one sentence why a message is not being delivered, and when it will be."""
        outgoing.checked_text(id, "id")
        if await self.get(id) is None and (row := await self._row_if_unread(id)) is not None:
            return explained_unread(self.label, id, row.unread, (await self.stats()).paused)
        return await super().explain(id)

    async def _row_if_unread(self, id_: str) -> topic_ops.GroupRow | None:
        """Look whether an entry is in the stream, and the group has not come to it yet."""
        if not publishing.is_id(id_):
            return None
        sight = await self._link.run(topic_ops.stats(self._keys.topic))
        row = next((row for row in sight.groups if row.name == self.name), None)
        if row is None or publishing.parsed_id(id_) <= publishing.parsed_id(row.last_id):
            return None
        found = await self._link.run(topic_ops.read(self._keys.topic, id_, 1))
        return row if found.entries and found.entries[0][0] == id_ else None

    async def pending(
        self,
        consumer: str | None = None,
        limit: int = 100,
        *,
        start: str | None = None,
        end: str | None = None,
        min_idle: Seconds = 0,
    ) -> Pending:
        """See who holds what, as XPENDING does: totals, counts by consumer, and the first `limit` entries by id.

        Consumers of other programs are there too. `start` and `end` are ids of entries, both included; `min_idle`
        leaves out what was handed out less than so many seconds ago.
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
        return replies.pending(rows, limit, publishing.parsed_id)

    async def _foreign_rows(self) -> Sequence[PendingMessage]:
        """Look at what consumers of other programs hold. It is taken over when they are silent for a lease."""
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

    async def purge(self, state: State | None = None) -> int:
        """End all messages of a state, or all there are, and return how many. Holders find their lease lost.

        Of what is ready, unread entries are passed over: the topic keeps them.
        """
        unread = (await self.stats()).unread if state in (None, "ready") else 0
        if unread:
            await self.seek("end")
        return unread + await super().purge(state)

    async def delete(self) -> None:
        """Remove the group with all that it holds and all that it counted. The topic keeps its entries."""
        await super().delete()


def _foreign(row: topic_ops.ForeignRow, now: int, lease: float) -> PendingMessage:
    left = lease - row.idle
    return PendingMessage(
        id=row.id,
        consumer=row.consumer,
        fence=0,
        deadline=replies.moment(now + left * 1_000_000),
        deadline_in=left,
        attempt=row.deliveries,
        deliveries=row.deliveries,
        idle=row.idle,
    )
