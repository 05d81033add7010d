"""The connections to one node: opened when needed, reused, used by one caller at a time.

Permits, the check of the server and the state "is down" belong to a node as well, so that a node that does not answer
delays no call to another.
"""

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from duly._async.asking import AsyncAsker
from duly._async.primitives import Gate
from duly._async.wire import UNREACHABLE, AsyncWire
from duly._core.outages import ClaimDeadlines, Outage
from duly._core.resp import Arg, ErrorReply, MalformedReply, ReplyError, copied
from duly._core.rollback import Incarnation
from duly._core.sentinel import read_role
from duly._core.server import check_server, eviction_of, hides_eviction, read_info
from duly._core.topology import Node, UnreadableReply
from duly.errors import UsageError

T = TypeVar("T")

DOES_NOTHING: Final[list[Arg]] = [b"EVAL", b"return 0", 0]
"""A script may write, so a server that pauses writes holds it back, and all later commands of its connection."""

_LISTS_LITTLE: Final[list[Arg]] = [b"SCAN", 0, b"COUNT", 1]
"""A command that a node refuses while it loads its data. The keys that it lists do not matter."""
_LOG: Final = logging.getLogger("duly")
_MAX_CALLS_AT_ONCE: Final = 32
_CHECK_EVICTION_EVERY: Final = 60.0
"""Seconds after which a new connection checks again whether the server may evict keys."""
_CLOSE_AFTER: Final = 60.0
"""Seconds of idle time after which a connection is closed, when another call ends."""


class NotPrimary(ConnectionError):
    """A node that should be the primary is a replica."""

    def __init__(self, shown: str, primary: Node | None) -> None:
        super().__init__(f"{shown} is a replica" if primary is None else f"{shown} is a replica of {primary}")
        self.primary = primary


class AsyncPool:
    """Wires for calls, and wires for blocking waits. `gate` limits the number of concurrent calls."""

    def __init__(
        self,
        shown: str,
        make_wire: Callable[[], AsyncWire],
        ensure_server: Callable[[], Awaitable[None]],
        *,
        allow_eviction: bool,
        node: Node | None = None,
        checks_role: bool = False,
        service: str = "",
    ) -> None:
        """`node`: the node, if another one may take its place. `checks_role`: each new connection must be to a primary.

        On a cluster, a replica redirects all calls, so that its role need not be checked.
        """
        self.shown = shown
        """The node in logs and errors."""
        self.service: str = service or shown
        """The name of an outage: that of the node, or of the service whose primary it is."""
        self.node = node
        self._checks_role = checks_role
        self.gate: Gate = Gate(_MAX_CALLS_AT_ONCE)
        self.is_checked: bool = False
        """Whether the node was reached and passed the check."""
        self.incarnation: Incarnation = Incarnation(shown)
        """The server process that answers. It is replaced when the process is another one."""
        self.may_be_restarted: bool = False
        """Whether a connection was lost, so that the next one checks whether the server process is another one."""
        self.outage: Outage = Outage()
        """An outage that was logged. It belongs to the service, if another node may take this one's place."""
        self.claim_deadlines: ClaimDeadlines = ClaimDeadlines()
        self._make_wire = make_wire
        self._ensure_server = ensure_server
        self._allow_eviction = allow_eviction
        self._check_eviction_at = 0.0
        self._may_evict = False
        self._free: list[AsyncWire] = []
        """The wire that was used last is at the end, and is reused first."""
        self._waiting: list[AsyncWire] = []
        self._used: set[AsyncWire] = set()
        """The wires in use, for calls and blocking waits."""
        self._end: Exception | None = None
        """Why the pool gives no more wires."""

    def take(self) -> AsyncWire | None:
        """Take a connected wire for a call. None if there is none: see `connect`."""
        self._check_open()
        while (wire := _popped(self._free)) is not None:
            if wire.is_open:
                self._used.add(wire)
                break
        return wire

    # --- async only
    def take_at_once(self) -> AsyncWire | None:
        """Take a permit and a connected wire. None: one of them is not free."""
        wire = None if self.gate.locked() else self.take()
        if wire is not None:
            self.gate.enter_at_once()
        return wire

    def give_with_permit(self, wire: AsyncWire) -> None:
        """Put back what `take_at_once` has returned."""
        self.give(wire)
        self.gate.release()

    # --- end
    def give(self, wire: AsyncWire) -> None:
        """Put a wire back. One that was closed is dropped."""
        self._keep(wire, self._free)

    async def connect(self) -> AsyncWire:
        """Open a wire for a call. The first one of a node checks the server."""
        await self._ensure_server()
        wire = self._make_wire()
        self._used.add(wire)
        try:
            await self._open(wire)
            if not self.is_checked:
                await self._check_server(wire)
            elif self.may_be_restarted:
                self._note_process(read_info(await wire.ask([b"INFO", b"server"])))
            if time.monotonic() >= self._check_eviction_at:
                await self.check_eviction(wire)
        except BaseException:
            self._used.discard(wire)
            await wire.close()
            raise
        return wire

    async def ask(self, ask: Callable[[AsyncWire], Awaitable[T]]) -> T:
        """Use a connected wire once, without a retry."""
        async with self.gate:
            wire = self.take() or await self.connect()
            try:
                return await ask(wire)
            finally:
                self.give(wire)

    async def probe(self, timeout: float) -> None:
        """Find out whether the node answers within seconds. Needs no permit. Raises OSError or ReplyError."""
        wire = self.take()
        if wire is None:
            wire = self._make_wire()
            self._used.add(wire)
        try:
            if not wire.is_open:
                await wire.open(timeout)
            await wire.ask(_LISTS_LITTLE, timeout)
        except BaseException as error:
            if not isinstance(error, ErrorReply) or not error.leaves_command_out:
                await wire.close()
                raise
        finally:
            if not self.is_checked:  # calls may use connections to a server that passed the check
                await wire.close()
            self.give(wire)

    async def _open(self, wire: AsyncWire) -> None:
        """Connect. The node must be the primary, unless it redirects calls otherwise."""
        await wire.open()
        if not self._checks_role:
            return
        try:
            role = read_role(await wire.ask([b"ROLE"]))
        except ErrorReply as error:
            if error.leaves_command_out:  # the user may not run ROLE: writes fail on a replica anyway
                return
            raise
        except UnreadableReply as error:
            raise MalformedReply(str(error)) from error
        if not role.is_primary:
            raise NotPrimary(self.shown, role.primary)

    async def _check_server(self, wire: AsyncWire) -> None:
        info = read_info(await wire.ask([b"INFO"]))
        if self.node is not None and info.get("role") == "slave":
            raise NotPrimary(self.shown, None)
        check_server(info, self.shown, allow_eviction=self._allow_eviction)
        if not self._allow_eviction and hides_eviction(info):
            _note_hidden(self.shown)
        self._note_process(info)
        self.is_checked = True
        self._check_eviction_at = time.monotonic() + _CHECK_EVICTION_EVERY

    def _note_process(self, info: Mapping[str, str]) -> None:
        """Note which server process answers. A hidden run id cannot be compared."""
        self.may_be_restarted = False
        run_id = info.get("run_id", "")
        if not self.incarnation.run_id:
            self.incarnation.run_id = run_id
        elif run_id != self.incarnation.run_id:
            self.incarnation = Incarnation(self.shown, run_id)

    async def check_eviction(self, wire: AsyncAsker) -> None:
        """Log if the server may evict keys since the last check, and if it no longer may.

        Calls are not refused, since leased messages have to be settled.
        """
        self._check_eviction_at = time.monotonic() + _CHECK_EVICTION_EVERY
        if self._allow_eviction:
            return
        danger = eviction_of(read_info(await wire.ask([b"INFO", b"memory"])), self.shown)
        may_evict, self._may_evict = self._may_evict, bool(danger)
        if danger and not may_evict:
            _LOG.error("%s", danger)
        elif may_evict and not danger:
            _LOG.warning("%s no longer evicts keys", self.shown)

    async def take_waiting(self) -> AsyncWire:
        """Take a connection for a blocking command. Its client id is known."""
        self._check_open()
        wire = _popped(self._waiting)
        if wire is not None and wire.is_open:
            self._used.add(wire)
            return wire
        await self._ensure_server()
        wire = self._make_wire()
        self._used.add(wire)
        try:
            await self._open(wire)
            wire.client_id = await wire.ask([b"CLIENT", b"ID"])
        except BaseException:
            self._used.discard(wire)
            await wire.close()
            raise
        return wire

    def give_waiting(self, wire: AsyncWire) -> None:
        """Put a connection for blocking commands back. One that was closed is dropped."""
        self._keep(wire, self._waiting)

    async def unblock(self, wire: AsyncWire, is_over: Callable[[], bool] = lambda: False) -> None:
        """End a blocking call from another connection. The blocked connection stays usable, and no token is lost.

        A server may hold back the blocking call: CLIENT PAUSE and a planned failover pause writes, and BLPOP is a
        write. CLIENT UNBLOCK of such a client crashes Redis before 7.4.6 and 8.2, and Valkey before 8.1.2. So a script
        precedes it in the same write. While writes are paused, the server runs neither. After that, it runs both in a
        row, and no pause can begin in between.

        The other connection may overtake the blocking call, so that there is nothing to unblock. Then the command is
        sent again, unless the reply has arrived. `is_over`: whether another thread has read the reply.
        """
        command: list[Arg] = [b"CLIENT", b"UNBLOCK", wire.client_id]
        for tries in range(11):
            replies = await self.ask(lambda other: other.ask_both(DOES_NOTHING, command))
            if replies[1] or is_over() or await wire.poll(0.001 * 2**tries):
                break

    async def cut(self, wire: AsyncWire) -> None:
        """Disconnect a client on the server at once, so that the next token does not go to a closed connection."""
        with contextlib.suppress(UNREACHABLE, ReplyError):
            await self.ask(lambda other: other.ask([b"CLIENT", b"KILL", b"ID", wire.client_id]))

    async def aclose(self) -> None:
        """Close all connections. Those in use are closed when they are put back."""
        self.mark_closed()
        for wires in (self._free, self._waiting):
            while wire := _popped(wires):
                await wire.close()

    def abandon(self) -> None:
        """Drop all connections that are not in use, from any thread."""
        for wires in (self._free, self._waiting):
            while wire := _popped(wires):
                wire.abandon()

    # --- async only
    def abandon_used(self) -> None:
        """Drop all connections in use. The event loop of their calls has ended."""
        for wire in self._used:
            wire.abandon()

    # --- end
    def disown(self) -> list[object]:
        """Return all connections, in use or not, and forget them without closing them."""
        owned: list[object] = [self._free, self._waiting, self._used]
        self._free, self._waiting, self._used = [], [], set()
        return owned

    def mark_closed(self) -> None:
        """Refuse new calls: the app is closed."""
        self._end = closed(self.shown)

    def retire(self, why: Exception) -> None:
        """Abort all connections, in use or not, and open no more. Calls in progress are sent to another pool."""
        self._end = why
        self.abandon()
        for wire in list(self._used):
            wire.hang_up()

    def _keep(self, wire: AsyncWire, spare: list[AsyncWire]) -> None:
        self._used.discard(wire)
        if self._end is not None:
            wire.abandon()
        if not wire.is_open:
            return
        now = wire.idle_since = time.monotonic()
        if spare and (idle := _popped_idle(spare, now)):
            idle.abandon()
        spare.append(wire)

    def _check_open(self) -> None:
        if self._end is not None:
            raise copied(self._end)


_hiding: Final[set[str]] = set()
"""Servers that do not show whether they evict keys, which was logged."""


def _note_hidden(shown: str) -> None:
    """Log, once per server and process, that eviction cannot be checked."""
    if shown not in _hiding:
        _hiding.add(shown)
        _LOG.warning(
            "%s does not show its maxmemory-policy, so Duly cannot check whether it evicts keys, which would lose "
            "messages. Check the settings of its provider",
            shown,
        )


def closed(shown: str) -> UsageError:
    """Return the error of a call on an app that is closed."""
    return UsageError(f"the app on {shown} is closed: open another one")


def _popped(spare: list[T]) -> T | None:
    """Pop an item, or return None. Threads share the list, so a check before the pop would not be enough."""
    try:
        return spare.pop()
    except IndexError:
        return None


def _popped_idle(spare: list[AsyncWire], now: float) -> AsyncWire | None:
    """Pop the wire that was idle longest, if it was idle long enough. Threads share the list."""
    try:
        if now - spare[0].idle_since < _CLOSE_AFTER:
            return None
        oldest = spare.pop(0)
    except IndexError:
        return None
    if now - oldest.idle_since >= _CLOSE_AFTER:
        return oldest
    spare.insert(0, oldest)  # another thread took the wire that was checked
    return None
