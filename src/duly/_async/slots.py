"""Asks the nodes of a cluster which of them serves a slot. The only file that sends CLUSTER commands.

A MOVED error corrects the slot that it names. The whole map is read again after that, and after a node has failed, at
most once a second.
"""

import logging
import random
import time
from typing import Final

from duly._async.primitives import Lock
from duly._async.wire import AsyncWire
from duly._core.address import Address
from duly._core.resp import MalformedReply, ReplyError
from duly._core.topology import ClusterView, Node, SlotMap, UnreadableReply, read_view

_LOG: Final = logging.getLogger("duly")
_ASK_EVERY: Final = 1.0
"""Seconds between two readings of the map, plus up to half as many, so that processes do not ask in step."""
_TIMEOUT: Final = 0.5
"""Seconds that a node may take. Then the next one is asked."""
_ASK_LAST: Final = 10.0
"""Seconds for which a node that has failed is asked last."""


class AsyncSlots:
    """The slot map of one cluster. Tasks or threads may share it: one of them asks, and the others use the known map.

    All known nodes count as seeds. So the seeds of the address may be replaced while a program runs.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self.known: SlotMap = SlotMap()
        self.shown_by: Node | None = None
        """The node that the map was read from."""
        self.silence: Exception | None = None
        """Why no node shows the map. None: one does."""
        self._epoch = 0
        self._read_at = 0.0
        self._ask_at = 0.0
        self._is_stale = False
        """Whether a node has named another node for a slot since the map was read."""
        self._failed_at: dict[Node, float] = {}
        self._lock = Lock()

    async def node_of(self, slot: int) -> Node | None:
        """Return the primary of a slot. None: no node serves it, as far as is known."""
        node = self.known.node_of(slot)
        if node is None or self._is_stale or self._has_failed(node):
            await self._refresh(has_answer=node is not None)
            node = self.known.node_of(slot)
        return node

    async def primaries(self) -> tuple[Node, ...]:
        """Return all primaries, from a map of the last second."""
        if time.monotonic() >= self._ask_at:
            await self._refresh(has_answer=bool(self.known.primaries))
        return self.known.primaries

    async def read_again(self) -> SlotMap:
        """Read the map, however new the known one is."""
        async with self._lock:
            await self._ask_now()
        return self.known

    def doubt(self, node: Node) -> None:
        """Read the map again before the next call to this node, which is unreachable or does not serve."""
        self._failed_at[node] = time.monotonic()

    def moved(self, slot: int, node: Node) -> None:
        """Go by a MOVED error."""
        self.known.moved(slot, node)
        self._is_stale = True

    def _has_failed(self, node: Node) -> bool:
        return self._failed_at.get(node, -1.0) >= self._read_at

    async def _refresh(self, *, has_answer: bool) -> None:
        """Read the map, unless another caller does or has just done so. Wait for it only without an answer."""
        if time.monotonic() < self._ask_at or (has_answer and self._lock.locked()):
            return
        ask_at = self._ask_at
        async with self._lock:
            if self._ask_at == ask_at:  # otherwise another caller has asked in the meantime
                await self._ask_now()

    async def _ask_now(self) -> None:
        await self._ask_in_turn()
        self._ask_at = time.monotonic() + _ASK_EVERY * random.uniform(1.0, 1.5)  # noqa: S311

    async def _ask_in_turn(self) -> None:
        """Ask until a node serves and shows a map that is not older than the known one.

        If none does, an older map counts if its node serves: epochs begin again when a cluster is built again on the
        same addresses. A node that was cut off shows an older map as well, but refuses calls by the time that the
        others have replaced it.
        """
        views: list[tuple[ClusterView, Node]] = []
        troubles: dict[Node, Exception] = {}
        for node in self._candidates():
            try:
                view = await self._ask(node)
            except (OSError, ReplyError) as error:
                troubles[node] = error
                self._failed_at[node] = time.monotonic()
                continue
            is_older = view.epoch < self._epoch
            if view.is_serving or not is_older:
                views.append((view, node))
            if view.is_serving and not is_older:
                break
        if views:
            self._note(*max(views, key=lambda found: (found[0].is_serving, found[0].epoch)))
        elif troubles:
            self._note_silence(troubles)

    def _candidates(self) -> list[Node]:
        """Return the nodes to ask: by chance, those that have failed last."""
        recently = time.monotonic() - _ASK_LAST
        nodes = list({*self.known.nodes, *self._address.seeds})
        random.shuffle(nodes)
        return sorted(nodes, key=lambda node: max(self._failed_at.get(node, 0.0), recently))

    async def _ask(self, node: Node) -> ClusterView:
        wire = AsyncWire(self._address.kind, {**self._address.options, "host": node.host, "port": node.port})
        try:
            await wire.open(_TIMEOUT)
            info, slots = await wire.ask_both([b"CLUSTER", b"INFO"], [b"CLUSTER", b"SLOTS"], _TIMEOUT)
        finally:
            await wire.close()
        try:
            return read_view(info, slots, node.host)
        except UnreadableReply as error:
            raise MalformedReply(str(error)) from error

    def _note(self, view: ClusterView, node: Node) -> None:
        if self.silence is not None:
            self.silence = None
            _LOG.info("the nodes of %s show its slots again", self._address.shown)
        self.known, self._epoch, self.shown_by = view.slots, view.epoch, node
        self._is_stale = False
        self._read_at = time.monotonic()

    def _note_silence(self, troubles: dict[Node, Exception]) -> None:
        if self.silence is None and self.shown_by is not None:
            reasons = "; ".join(f"{node}: {error}" for node, error in troubles.items())
            _LOG.warning("no node of %s shows its slots; continuing with those known: %s", self._address.shown, reasons)
        # A refusal explains more than an outage: a wrong password, or a server that is not part of a cluster.
        self.silence = min(troubles.values(), key=lambda error: not isinstance(error, ReplyError))
