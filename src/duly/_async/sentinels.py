"""Asks sentinels which node is the primary. The only file that sends SENTINEL commands.

The answer counts for a second, and is doubted after a failure. There is no subscription: to ask again finds a fail-over
as early, and needs neither a thread nor an idle connection.
"""

import logging
import time
from typing import Final

from duly._async.primitives import Lock
from duly._async.wire import AsyncWire
from duly._core.address import Address
from duly._core.resp import ReplyError
from duly._core.sentinel import QUESTIONS, Announcement, is_news, read_announcement
from duly._core.topology import Node, UnreadableReply

_LOG: Final = logging.getLogger("duly")
_ASK_EVERY: Final = 1.0
"""Seconds that an answer counts. In a split brain, messages that are sent to the old primary until then are lost."""
_TIMEOUT: Final = 0.2
"""Seconds that a sentinel may take. Then the next one is asked."""


class AsyncSentinels:
    """The primary of one service. Tasks or threads may share it: one of them asks, and the others use the answer."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._order = list(address.seeds)
        """The sentinel that answered last is first."""
        self._known: Announcement | None = None
        self._has_failed = False
        """Whether the known primary was unreachable or refused writes."""
        self._ask_at = 0.0
        self._lock = Lock()
        self._wire: AsyncWire | None = None
        self._is_silent = False
        """Whether it was logged that no sentinel answers."""

    async def primary(self) -> Node | None:
        """Return the primary. None if no sentinel has named one yet."""
        if self._has_failed or time.monotonic() >= self._ask_at:
            await self._refresh()
        return None if self._known is None else self._known.node

    def doubt(self, node: Node) -> None:
        """Ask again before the next call: this node is unreachable, or not the primary."""
        if self._known is not None and self._known.node == node:
            self._has_failed = True
            self._order.append(self._order.pop(0))  # a sentinel that was cut off would repeat its answer

    def learn(self, node: Node) -> None:
        """Go by the primary that a demoted node names. The sentinels may not know of a fail-over by hand."""
        if self._known is not None:
            self._known = Announcement(node, self._known.epoch)
            self._has_failed = False

    async def aclose(self) -> None:
        """Close the connection to the sentinel."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    def abandon(self) -> None:
        """Drop the connection to the sentinel, from any thread."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abandon()

    async def _refresh(self) -> None:
        """Ask, unless another caller is asking. Wait for it only if there is no answer to go by."""
        if self._lock.locked() and self._known is not None and not self._has_failed:
            return
        ask_at = self._ask_at
        async with self._lock:
            if self._ask_at == ask_at:  # otherwise another caller has asked in the meantime
                await self._ask_in_turn()
                self._ask_at = time.monotonic() + _ASK_EVERY

    async def _ask_in_turn(self) -> None:
        troubles: list[Exception] = []
        for node in list(self._order):
            try:
                said = await self._ask(node)
            except (OSError, ReplyError, UnreadableReply) as error:
                troubles.append(error)
                await self.aclose()
                continue
            self._order.remove(node)
            self._order.insert(0, node)
            self._note(said)
            return
        if not self._is_silent:
            self._is_silent = True
            known = "" if self._known is None else f"; going on with the primary {self._known.node}"
            reasons = "; ".join(dict.fromkeys(map(str, troubles)))
            _LOG.warning("no sentinel of %s answers%s: %s", self._address.shown, known, reasons)

    def _note(self, said: Announcement) -> None:
        if self._is_silent:
            self._is_silent = False
            _LOG.info("the sentinels of %s answer again", self._address.shown)
        if is_news(said, self._known, has_failed=self._has_failed):
            self._known = said
            self._has_failed = False

    async def _ask(self, node: Node) -> Announcement:
        wire = self._wire
        if wire is None or not wire.is_open or node != self._order[0]:
            await self.aclose()
            options = {**self._address.sentinel_options, "host": node.host, "port": node.port}
            wire = self._wire = AsyncWire(self._address.kind, options)
            await wire.open(_TIMEOUT)
        master, address = (["SENTINEL", question, self._address.service] for question in QUESTIONS)
        said = read_announcement(*await wire.ask_both(master, address, _TIMEOUT))
        if said is None:
            raise UnreadableReply(f"{node} does not know {self._address.service!r}")
        return said
