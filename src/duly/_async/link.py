"""The link between the client and the server: sends calls, and retries them during an outage.

A call keeps its stream and sequence number when it is sent again, so the server
carries it out once (I6).
"""

import contextlib
import functools
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from duly._async.asking import AsyncAsker, AsyncAskingWire

# --- async only
from duly._async.begun_call import AsyncBegunCall

# --- end
from duly._async.connections import AsyncConnections
from duly._async.durability import Confirmation, confirmation_of
from duly._async.ends import AsyncEnds, AsyncEndWatch
from duly._async.pool import DOES_NOTHING, AsyncPool
from duly._async.primitives import nothing_in_background, sleep, uninterrupted
from duly._async.routing import AsyncRoute
from duly._async.waiter import AsyncWaiter
from duly._async.wire import REPLY_TIMEOUT, UNREACHABLE, AsyncWire
from duly._core import failures, outages, patience, replies
from duly._core.address import Address
from duly._core.call import Call, CallStream
from duly._core.keys import (
    GroupKeys,
    QueueKeys,
    TopicKeys,
    queue_of_key,
    queue_pattern,
    topic_of_key,
    topic_pattern,
)
from duly._core.resp import Arg, ErrorReply, ReplyError
from duly._core.topology import Away, Node, Placed

# --- sync only
# | from duly._sync.primitives import LEAVING_TIMEOUT
# | from duly._sync.waiter import Blocks
# --- end
from duly.errors import DulyError, Unavailable
from duly.options import Durable

T = TypeVar("T")
Ask = Callable[[AsyncPool, AsyncAsker, CallStream], Awaitable[T]]
"""One try of a call: sends it on a connected wire of a pool, with the number of its stream."""

_LOG: Final = logging.getLogger("duly")
_MAX_SCANS: Final = 5
"""How often the nodes are scanned for names while slots move."""
_PROBE_TIMEOUT: Final = 1.0
"""Seconds after which tools show the other nodes."""
_REDIRECTS_AT_ONCE: Final = 2
"""Redirections that a call follows without a pause. More of them mean that nodes disagree, while a slot moves."""


class AsyncLink:
    """Sends calls to the server, or to the primary. Threads or tasks may share it like its app. It survives a fork."""

    def __init__(self, address: Address, *, patience: float, allow_eviction: bool) -> None:
        self._user = str(address.options.get("username") or "default")
        self._is_tls = address.kind == "tls"
        self.patience = patience
        """Seconds that a call retries while the server does not answer. Long-running programs may raise it."""
        self.connections: AsyncConnections = AsyncConnections(address, allow_eviction=allow_eviction)
        self.waiter: AsyncWaiter = AsyncWaiter(self.connections, self._carry)
        self.is_quiet = False
        """Whether outages are not logged, because another link of the program logs them."""
        self.on_return: Callable[[], object] | None = None
        """Called when this link logs that the server answers again. For commands, which do not show the log."""

    @property
    def is_down(self) -> bool:
        """Whether this link has logged an outage of a node that has not ended yet."""
        return self.connections.is_down

    def is_down_at(self, keys: QueueKeys) -> bool:
        """Whether this link has logged an outage of the node that serves these keys."""
        router, node = self.connections.router, self.node_of(keys)
        return any(pool.outage.is_on for pool in router.pools if node is None or pool.node == node)

    def node_of(self, keys: QueueKeys) -> Node | None:
        """Return the node that serves these keys, as far as known. On one server, and by sentinels, None for all."""
        return self.connections.router.node_of(keys)

    @property
    def is_spread(self) -> bool:
        """Whether the keys are spread over the slots of a cluster. Then one command cannot name two queues."""
        return self.connections.address.topology == "cluster"

    @property
    def rolled_back(self) -> int:
        """Calls that a server confirmed and then lost, since the process started."""
        return self.connections.rollbacks.total

    @property
    def consumer(self) -> str:
        """The name under which this process holds leases."""
        return self.connections.consumer

    async def run(self, call: Call[T], patience: float | None = None) -> T:
        """Send a call and return its decoded reply. If the caller is cancelled, the call still finishes.

        Retries during an outage, for `patience` seconds or those of the link, then raises Unavailable. Raises
        ServerError or QueueFull if the server refuses.
        """
        return call.decode(await uninterrupted(self._carry(call, limit=patience)))

    async def run_now(self, call: Call[T]) -> T:
        """Like `run`, for callers that are never cancelled."""
        return call.decode(await self._carry(call))

    # --- async only
    def begin(self, call: Call[T]) -> AsyncBegunCall[T] | None:
        """Write a call at once. None: no connection is free, or there is something to check before the call."""
        connections = self.connections
        connections.rebind_loop()
        pool = connections.only_pool
        if pool is None or connections.is_closed or pool.outage.is_on or pool.service in outages.unanswered:
            return None
        confirmed = connections.rollbacks.of(call.keys, pool)
        if confirmed is not None and confirmed.by is not pool.incarnation:
            return None
        wire = pool.take_at_once()
        if wire is None:
            return None
        try:
            return AsyncBegunCall(connections, pool, wire, call, confirmed)
        except BaseException:
            pool.give_with_permit(wire)
            raise

    def refusal_of(self, begun: AsyncBegunCall[Any], error: Exception) -> DulyError | None:
        """Return the refusal of a call that was begun. None: the call must be repeated."""
        if not isinstance(error, ReplyError) or self._may_retry(error) or replies.trouble_of(error) == "noscript":
            return None
        self.connections.give_stream(begun.stream)
        refusal = failures.refusal(begun.call.title, begun.pool.shown, self._user, error)
        refusal.__cause__ = error
        return refusal

    async def repeat(self, begun: AsyncBegunCall[T], failing_since: float) -> T:
        """Send a call again that was begun, and that has failed. It counts as the first try."""
        return begun.call.decode(await self._carry(begun.call, stream=begun.stream, failing_since=failing_since))

    # --- end
    # --- sync only
    # | def run_whole(self, call: Call[T], if_interrupted: Callable[[T], object]) -> T:
    # |     """Like `run_now`. If a signal handler raises during the call, `if_interrupted` still gets the reply.
    # |
    # |     The server may have carried out the call. The call is sent again with its number, so the server does not
    # |     carry it out twice, and sends the same reply (I6).
    # |     """
    # |     self.connections.rebind_loop()
    # |     stream = self.connections.take_stream()
    # |     answers: list[T] = []
    # |     try:
    # |         reply = self._with_retry(
    # |             call.keys, call.title, lambda pool, wire, _: self._ask(pool, wire, stream, call)
    # |         )
    # |         answers.append(call.decode(reply))
    # |         self.connections.give_stream(stream)
    # |         return answers[0]
    # |     except DulyError:
    # |         self.connections.give_stream(stream)
    # |         raise
    # |     except BaseException:
    # |         with contextlib.suppress(Exception):  # the lease or a timeout ends it
    # |             answer = answers[0] if answers else call.decode(self._ask_before_leaving(stream, call))
    # |             if_interrupted(answer)
    # |         raise
    # |
    # | def _ask_before_leaving(self, stream: CallStream, call: Call[Any]) -> Any:
    # |     """Send a call once more, with a short timeout. Its first connection is closed, with the unread reply."""
    # |     pool = self.connections.serving_pool(call.keys)
    # |     return pool.ask(lambda wire: self._ask(pool, wire, stream, call, LEAVING_TIMEOUT))
    # |
    # --- end
    async def run_on(self, call: Call[T]) -> T:
        """Like `run_now`, but retry without a deadline. For workers.

        If a claim were abandoned and the server still carried it out, its messages would be leased without a consumer.
        """
        return call.decode(await self._carry(call, gives_up=False))

    async def run_claim(self, call: Call[T], stream: CallStream | None = None) -> T:
        """Like `run_on`, but wait for a moment after an outage, and after a server that stood still.

        `stream` has the number of a call that was sent before, and is repeated.

        Leases may have run out although their consumers live. A late renewal is accepted unless a claim was earlier.
        """
        trying_since = time.monotonic() if self.connections.is_connected else math.inf

        async def ask(pool: AsyncPool, wire: AsyncAsker, stream: CallStream) -> Any:
            nonlocal trying_since
            pool.outage.note_delay(trying_since, time.monotonic())
            await self._let_others_renew(pool, wire)
            trying_since = time.monotonic()
            reply = await self._ask(pool, wire, stream, call)
            pool.outage.note_delay(trying_since, time.monotonic())
            return reply

        return call.decode(await self._with_retry(call.keys, call.title, ask, gives_up=False, stream=stream))

    async def _let_others_renew(self, pool: AsyncPool, wire: AsyncAsker) -> None:
        if pool.outage.is_long(time.monotonic()):
            await wire.ask(DOES_NOTHING)  # a claim that reaches a server which hangs would be its first call later
            pool.outage.note_probe(time.monotonic())
        if (seconds := pool.outage.claims_at - time.monotonic()) > 0:
            await sleep(seconds)

    async def run_durably(self, call: Call[T], durable: Durable) -> tuple[T, Confirmation]:
        """Send a call and wait until it is durable."""

        async def ask(pool: AsyncPool, wire: AsyncAsker, stream: CallStream) -> tuple[Any, Confirmation]:
            # If the connection breaks in between, the call is repeated as well: WAIT covers only the writes of its
            # connection, and a recognised repeat writes.
            return await self._ask(pool, wire, stream, call), await confirmation_of(wire, durable)

        reply, confirmation = await uninterrupted(self._with_retry(call.keys, call.title, ask))
        return call.decode(reply), confirmation

    async def wait_for_token(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait for a wake token of a queue. True: one was taken."""
        self.connections.rebind_loop()
        return await self.waiter.wait(keys, seconds, exact=exact)

    # --- sync only
    # | def wait_for_any_token(self, keys: Sequence[QueueKeys], seconds: float, *, exact: bool, blocks: Blocks) -> Any:
    # |     """Wait for a wake token of one of several queues. Return the name of its key, or None."""
    # |     return self.waiter.wait_for_any(keys, seconds, exact=exact, blocks=blocks)
    # |
    # --- end
    async def ask(self, keys: QueueKeys, title: str, command: list[Arg], patience: float | None = None) -> Any:
        """Send a command that may be repeated, to the node that serves these keys. Retries as `run` does."""

        async def ask(_pool: AsyncPool, wire: AsyncAsker, _: CallStream) -> Any:
            return await wire.ask(command)

        return await uninterrupted(self._with_retry(keys, title, ask, limit=patience))

    async def wait_for_entry(
        self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float, *, exact: bool
    ) -> bool:
        """Wait for an entry after a position of a topic or group. True: there is one. It wakes all consumers."""
        self.connections.rebind_loop()
        return await self.waiter.wait_for_entry(keys, position, seconds, exact=exact)

    def watch_end(self, keys: QueueKeys, id: str) -> AsyncEndWatch:  # noqa: A002
        """Return a watch for the end of a message. Enter it before the first check of the message."""
        self.connections.rebind_loop()
        known = self.connections.ends
        ends = known.get(keys.prefix)
        if ends is None:
            ends = known.setdefault(keys.prefix, AsyncEnds(functools.partial(self.waiter.read_ends, keys)))
        return ends.watch(id)

    async def check_eviction(self) -> None:
        """Check again whether a server may evict keys, and log changes."""

        async def check(pool: AsyncPool, wire: AsyncAsker, _: CallStream) -> None:
            await pool.check_eviction(wire)

        for pool in await self.connections.router.all_pools():
            await self._with_retry(None, "a check of the server", check, only=pool)

    async def queues(self, namespace: str, without: Collection[Node | None] = ()) -> list[str]:
        """Return the names of the queues that were used, except on nodes that are known to be away."""
        return await self._names(
            "listing the queues", queue_pattern(namespace), lambda key: queue_of_key(namespace, key), without
        )

    async def topics(self, namespace: str, without: Collection[Node | None] = ()) -> list[str]:
        """Return the names of the topics that have entries, delayed publishes or a group, as `queues` does."""
        return await self._names(
            "listing the topics", topic_pattern(namespace), lambda key: topic_of_key(namespace, key), without
        )

    async def _names(
        self,
        title: str,
        pattern: str,
        name_of: Callable[[bytes], str | None],
        without: Collection[Node | None],
    ) -> list[str]:
        """Scan all keys of all nodes. They are few, since no key belongs to a single message.

        A slot that moves in the meantime may be on neither node when it is scanned. Then all are scanned again.
        """

        async def scan(_pool: AsyncPool, wire: AsyncAsker, _: CallStream) -> set[str | None]:
            found: set[str | None] = set()
            cursor: Arg = 0
            while True:
                command: list[Arg] = [b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000]
                cursor, page = await wire.ask(command)
                found.update(map(name_of, page))
                if cursor == b"0":
                    return found

        names: set[str | None] = set()
        router = self.connections.router
        for _ in range(_MAX_SCANS):
            parts = await router.parts()
            layout = router.layout()
            for part in parts:
                if part is None or part.node not in without:
                    names |= await uninterrupted(self._with_retry(part, title, scan))
            if len(parts) == 1 or not await router.has_moved_since(layout):
                break
        return sorted(name for name in names if name is not None)

    async def nodes_away(self) -> dict[Node | None, Away] | None:
        """Return the nodes of a cluster that do not answer within a second. None: no node answers, or there is one."""
        if not self.is_spread:
            return None
        self.connections.rebind_loop()
        parts = await self.connections.router.parts()
        found: dict[Node | None, Away] = {}
        for part in parts:
            try:
                pool = await self.connections.serving_pool(part)
                await pool.probe(_PROBE_TIMEOUT)
            except (UNREACHABLE, ReplyError) as error:
                node = None if part is None else part.node
                found[node] = Away(node, failures.described(error))
        return None if len(found) == len(parts) else found

    async def aclose(self) -> None:
        """Close all connections, and release the embedded server. Data on the server stays."""
        await nothing_in_background()
        if not self.connections.is_closed:
            with contextlib.suppress(DulyError):
                await self.waiter.leave_all()
        await self.connections.aclose()

    # --- async only
    def close_from_outside(self) -> None:
        """Drop all connections, and release the embedded server, from a thread that has no event loop."""
        self.connections.close_from_outside()

    # --- end
    async def _carry(
        self,
        call: Call[Any],
        *,
        gives_up: bool = True,
        limit: float | None = None,
        stream: CallStream | None = None,
        failing_since: float = 0.0,
    ) -> Any:
        return await self._with_retry(
            call.keys,
            call.title,
            lambda pool, wire, stream: self._ask(pool, wire, stream, call),
            gives_up=gives_up,
            limit=limit,
            stream=stream,
            failing_since=failing_since,
        )

    async def _with_retry(
        self,
        keys: Placed | None,
        title: str,
        ask: Ask[T],
        *,
        gives_up: bool = True,
        limit: float | None = None,
        only: AsyncPool | None = None,
        stream: CallStream | None = None,
        failing_since: float = 0.0,
    ) -> T:
        """Ask until there is a reply, or `limit` or `patience` seconds are over, with the same sequence number.

        Each try goes to the node that serves the keys then, or to `only`. `failing_since`: when a first try failed.
        """
        self.connections.rebind_loop()
        numbered = _Numbered(self.connections, stream)
        tries, redirects = int(failing_since > 0), 0
        route: AsyncRoute | None = None
        only = only or self.connections.only_pool
        try:
            while True:
                pool = only or (route.pool if route else await self.connections.serving_pool(keys))
                try:
                    answer = await self._try(
                        pool, title, ask, numbered, is_asking=route is not None and route.is_asking
                    )
                except (UNREACHABLE, ReplyError) as error:
                    trouble: Exception = error
                else:
                    if pool.outage.is_on or outages.unanswered:
                        self._note_up(pool)
                    return answer
                route = self.connections.router.redirected(pool, trouble)
                if route is not None and redirects < _REDIRECTS_AT_ONCE:
                    redirects += 1
                    continue
                route, redirects = None, 0
                now = time.monotonic()
                failing_since = failing_since or now
                if tries and not _is_moving(trouble):  # the server may just have closed an idle connection
                    self._note_down(pool, trouble, gives_up=gives_up)
                most = self.patience if limit is None else limit  # a stop shortens the patience of calls in progress
                if gives_up and now >= failing_since + most:
                    raise self._unavailable(pool, title, trouble, most, was_asked=numbered.was_asked) from trouble
                await sleep(patience.backoff(tries, random.random))
                tries += 1
        finally:
            numbered.release()

    async def _try(self, pool: AsyncPool, title: str, ask: Ask[T], numbered: "_Numbered", *, is_asking: bool) -> T:
        """Ask once. Raises OSError or ReplyError if the call may be retried, and DulyError otherwise."""
        async with pool.gate:
            wire: AsyncWire | None = None
            try:
                wire = pool.take() or await pool.connect()
                return await ask(pool, AsyncAskingWire(wire) if is_asking else wire, numbered.stream())
            except (UNREACHABLE, ReplyError) as error:
                if isinstance(error, ReplyError) and not self._may_retry(error):
                    raise failures.refusal(title, pool.shown, self._user, error) from error
                trouble = replies.trouble_of(error) if isinstance(error, ReplyError) else "reconnect"
                if trouble in ("reconnect", "doubt"):
                    self.connections.router.doubt(pool, error)
                if trouble == "reconnect" and wire is not None:
                    pool.may_be_restarted = True
                    await wire.close()
                raise
            finally:
                if wire is not None:
                    pool.give(wire)

    async def _ask(
        self, pool: AsyncPool, wire: AsyncAsker, stream: CallStream, call: Call[Any], timeout: float = REPLY_TIMEOUT
    ) -> Any:
        """Send a call once. If the server does not know the script, send its text."""
        script = call.script
        confirmed = self.connections.rollbacks.of(call.keys, pool) if call.writes else None
        # While a slot moves, the records of its calls may still be on the other node.
        if confirmed and confirmed.by is not pool.incarnation and not isinstance(wire, AsyncAskingWire):
            await self.connections.rollbacks.compare(confirmed, pool, wire)
        asked_at, asked = time.monotonic(), pool.incarnation
        late_after = pool.claim_deadlines.late_after(asked_at) if call.is_dated else -1
        try:
            reply = await wire.ask(call.command(b"EVALSHA", script.sha, stream, late_after), timeout)
        except ErrorReply as error:
            if replies.trouble_of(error) != "noscript":
                raise
            reply = await wire.ask(call.command(b"EVAL", script.text, stream, late_after), timeout)
        if call.is_dated:
            pool.claim_deadlines.note(reply[1], asked_at)
        if confirmed is not None:
            confirmed.add(stream, asked, time.monotonic())
        return reply

    # --- async only
    def is_compared(self, call: Call[Any], pool: AsyncPool) -> bool:
        """Return whether the confirmed calls of a queue are compared with this server process, or need not be."""
        confirmed = self.connections.rollbacks.of(call.keys, pool)
        return confirmed is None or confirmed.by is pool.incarnation

    def note_confirmed(self, call: Call[Any], stream: CallStream, pool: AsyncPool) -> None:
        """Note that a server has confirmed a call that was not sent by this link."""
        confirmed = self.connections.rollbacks.of(call.keys, pool)
        if confirmed is not None:
            confirmed.add(stream, pool.incarnation, time.monotonic())

    # --- end
    def _may_retry(self, error: ReplyError) -> bool:
        trouble = replies.trouble_of(error)
        if trouble == "redirect":
            return self.is_spread
        return trouble in ("retry", "reconnect", "doubt", "moving") and not replies.is_denied(error)

    def _note_down(self, pool: AsyncPool, trouble: Exception, *, gives_up: bool) -> None:
        if not pool.outage.is_on and not self.is_quiet:
            pool.outage.begin(time.monotonic())
            if not outages.begin(pool.service):
                return
            until = f"for up to {self.patience:g} s" if gives_up else "until it does"
            _LOG.warning("%s does not answer, retrying %s: %s", pool.shown, until, failures.described(trouble))

    def _note_up(self, pool: AsyncPool) -> None:
        pool.outage.end(time.monotonic())
        if not outages.end(pool.service):
            return
        _LOG.info("%s answers again", pool.shown)
        if self.on_return is not None:
            self.on_return()

    def _unavailable(
        self, pool: AsyncPool, title: str, trouble: Exception, limit: float, *, was_asked: bool
    ) -> Unavailable:
        hint = failures.USES_TLS if self._is_tls and not was_asked else ""
        announcer = None if pool.is_checked else self.connections.router.announcer_of(pool)
        if announcer is not None and pool.node is not None:
            hint += failures.is_announced(pool.node, announcer)
        return failures.unavailable(title, pool.shown, limit, trouble, was_asked=was_asked, hint=hint)


class _Numbered:
    """The stream of one call. It is taken with the first permit, so that calls that wait for one have none."""

    def __init__(self, connections: AsyncConnections, stream: CallStream | None = None) -> None:
        """Take `stream`: that of a call which was sent before, and is repeated."""
        self._connections = connections
        self._stream = stream

    @property
    def was_asked(self) -> bool:
        """Whether the call was sent, so that the server may have carried it out."""
        return self._stream is not None

    def stream(self) -> CallStream:
        """Return the stream. Its number is the same for every try."""
        if self._stream is None:
            self._stream = self._connections.take_stream()
        return self._stream

    def release(self) -> None:
        """Let another call use the stream."""
        if self._stream is not None:
            self._connections.give_stream(self._stream)


def _is_moving(trouble: Exception) -> bool:
    """Whether the node answers, but the slot is about to move to another one."""
    return isinstance(trouble, ReplyError) and replies.trouble_of(trouble) in ("redirect", "moving")
