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
from duly._core.resp import ErrorReply, ReplyError
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
        self._asked: Node | None = None
        """The sentinel at the end of the wire."""
        self.silence = ""
        """Why no sentinel names the primary, as it was logged. Empty: one does."""

    async def primary(self) -> Node | None:
        """Return the primary. None if no sentinel has named one yet."""
        if self._has_failed or time.monotonic() >= self._ask_at:
            await self._refresh()
        return None if self._known is None else self._known.node

    def doubt(self, node: Node) -> None:
        """Ask again before the next call: this node is unreachable, or not the primary."""
        if self._known is not None and self._known.node == node:
            self._has_failed = True

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
        """Ask until a sentinel answers. If the known primary has failed, ask all of them.

        Then any answer counts, but a sentinel that was cut off could name the primary of an earlier epoch.
        """
        answers: list[tuple[Announcement, Node]] = []
        troubles: list[Exception] = []
        for node in list(self._order):
            try:
                answers.append((await self._ask(node), node))
            except (OSError, ReplyError, UnreadableReply) as error:
                troubles.append(error)
                await self.aclose()
                continue
            if not self._has_failed:
                break
        if answers:
            said, node = max(answers, key=lambda answer: answer[0].epoch)
            self._order.remove(node)
            self._order.insert(0, node)
            self._note(said)
        else:
            self._note_silence("; ".join(dict.fromkeys(map(str, troubles))))

    def _note_silence(self, reasons: str) -> None:
        if not self.silence:
            known = "" if self._known is None else f"; continuing with the primary {self._known.node}"
            _LOG.warning("no sentinel of %s names the primary%s: %s", self._address.shown, known, reasons)
        self.silence = reasons

    def _note(self, said: Announcement) -> None:
        if self.silence:
            self.silence = ""
            _LOG.info("the sentinels of %s answer again", self._address.shown)
        if is_news(said, self._known, has_failed=self._has_failed):
            self._known = said
            self._has_failed = False

    async def _ask(self, node: Node) -> Announcement:
        wire = self._wire
        if wire is None or not wire.is_open or node != self._asked:
            await self.aclose()
            options = {**self._address.sentinel_options, "host": node.host, "port": node.port}
            wire, self._asked = AsyncWire(self._address.kind, options), node
            await wire.open(_TIMEOUT)
            self._wire = wire
        master, address = (["SENTINEL", question, self._address.service] for question in QUESTIONS)
        try:
            said = read_announcement(*await wire.ask_both(master, address, _TIMEOUT))
        except ErrorReply as error:
            if "No such master" not in str(error):
                raise
            said = None
        if said is None:
            raise UnreadableReply(f"{node} does not know the service {self._address.service!r}")
        return said
