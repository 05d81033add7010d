"""The link between the client and the server: sends calls, and retries them during an outage.

A call keeps its stream and sequence number when it is sent again, so the server
carries it out once (I6).
"""

import contextlib
import functools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from duly._async.connections import AsyncConnections
from duly._async.durability import missing_for
from duly._async.ends import AsyncEnds, AsyncEndWatch
from duly._async.pool import DOES_NOTHING, AsyncPool
from duly._async.primitives import nothing_in_background, sleep, uninterrupted
from duly._async.waiter import AsyncWaiter
from duly._async.wire import REPLY_TIMEOUT, UNREACHABLE, AsyncWire
from duly._core import outages, patience, replies, rights
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

# --- sync only
# | from duly._sync.primitives import LEAVING_TIMEOUT
# --- end
from duly.errors import DulyError, QueueFull, ServerError, Unavailable
from duly.options import Durable

T = TypeVar("T")
Ask = Callable[[AsyncWire, CallStream], Awaitable[T]]
"""One try of a call: sends it on a connected wire, with the number of its stream."""

_LOG: Final = logging.getLogger("duly")
_OUTAGE_AFTER: Final = 1.0
"""Seconds without an answer after which leases are renewed before the next claim."""
_RENEW_FIRST: Final = 1.5
"""Seconds between the end of an outage and the next claim. Renewals are retried at least each second."""
_CHECK_CREDENTIALS: Final = "Check user and password in the URL, redis://USER:PASSWORD@host"
_FEWER_DATABASES: Final = (
    "The server has no database of that number: it has 0 to 15 unless `databases` in its configuration is changed, "
    "and one in cluster mode. Use another, redis://host:6379/0"
)


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
        self._down_since = 0.0
        self._claim_at = 0.0
        """When claims may begin again after an outage."""
        self.on_return: Callable[[], object] | None = None
        """Called when this link logs that the server answers again. For commands, which do not show the log."""

    @property
    def is_down(self) -> bool:
        """Whether this link has logged an outage that has not ended yet."""
        return self.connections.pool.is_down

    @property
    def consumer(self) -> str:
        """The name under which this process holds leases."""
        return self.connections.consumer

    async def run(self, call: Call[T]) -> T:
        """Send a call and return its decoded reply. If the caller is cancelled, the call still finishes.

        Retries during an outage, then raises Unavailable. Raises ServerError or QueueFull if the server refuses.
        """
        return call.decode(await uninterrupted(self._carry(call)))

    async def run_now(self, call: Call[T]) -> T:
        """Like `run`, for callers that are never cancelled."""
        return call.decode(await self._carry(call))

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
    # |         reply = self._with_retry(call.title, lambda wire, _: self._ask(wire, stream, call))
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
    # |     return self.connections.serving_pool().ask(lambda wire: self._ask(wire, stream, call, LEAVING_TIMEOUT))
    # |
    # --- end
    async def run_on(self, call: Call[T]) -> T:
        """Like `run_now`, but retry without a deadline. For workers.

        If a claim were abandoned and the server still carried it out, its messages would be leased without a consumer.
        """
        reply = await self._with_retry(call.title, lambda wire, stream: self._ask(wire, stream, call), gives_up=False)
        return call.decode(reply)

    async def run_claim(self, call: Call[T]) -> T:
        """Like `run_on`, but wait for a moment after an outage.

        Leases may have run out although their consumers live. A late renewal is accepted unless a claim was earlier.
        """

        async def ask(wire: AsyncWire, stream: CallStream) -> Any:
            await self._let_others_renew(wire)
            return await self._ask(wire, stream, call)

        return call.decode(await self._with_retry(call.title, ask, gives_up=False))

    async def _let_others_renew(self, wire: AsyncWire) -> None:
        if self.is_down and time.monotonic() > self._down_since + _OUTAGE_AFTER:
            await wire.ask(DOES_NOTHING)  # a claim that reaches a server which hangs would be its first call later
            self._note_up(self.connections.pool)
        if (seconds := self._claim_at - time.monotonic()) > 0:
            await sleep(seconds)

    async def run_durably(self, call: Call[T], durable: Durable) -> tuple[T, str]:
        """Send a call and wait until it is durable. The second value is the reason if it is not, else empty."""

        async def ask(wire: AsyncWire, stream: CallStream) -> tuple[Any, str]:
            # If the connection breaks in between, the call is repeated as well: WAIT covers only the writes of its
            # connection, and a recognised repeat writes.
            return await self._ask(wire, stream, call), await missing_for(wire, durable)

        reply, missing = await uninterrupted(self._with_retry(call.title, ask))
        return call.decode(reply), missing

    async def wait_for_token(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait for a wake token of a queue. True: one was taken."""
        self.connections.rebind_loop()
        return await self.waiter.wait(keys, seconds, exact=exact)

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
        """Check again whether the server may evict keys, and log changes."""
        await self._with_retry("a check of the server", lambda wire, _: self.connections.pool.check_eviction(wire))

    async def queues(self, namespace: str) -> list[str]:
        """Return the names of the queues that were used."""
        return await self._names(
            "listing the queues", queue_pattern(namespace), lambda key: queue_of_key(namespace, key)
        )

    async def topics(self, namespace: str) -> list[str]:
        """Return the names of the topics that have entries, delayed publishes or a group."""
        return await self._names(
            "listing the topics", topic_pattern(namespace), lambda key: topic_of_key(namespace, key)
        )

    async def _names(self, title: str, pattern: str, name_of: Callable[[bytes], str | None]) -> list[str]:
        """Scan all keys. They are few, since no key belongs to a single message."""

        async def scan(wire: AsyncWire, _: CallStream) -> list[str]:
            found: set[str | None] = set()
            cursor: Arg = 0
            while True:
                command: list[Arg] = [b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000]
                cursor, page = await wire.ask(command)
                found.update(map(name_of, page))
                if cursor == b"0":
                    return sorted(name for name in found if name is not None)

        return await uninterrupted(self._with_retry(title, scan))

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
    async def _carry(self, call: Call[Any]) -> Any:
        return await self._with_retry(call.title, lambda wire, stream: self._ask(wire, stream, call))

    async def _with_retry(self, title: str, ask: Ask[T], *, gives_up: bool = True) -> T:
        """Ask until there is a reply or `patience` is over, with the same sequence number."""
        self.connections.rebind_loop()
        numbered = _Numbered(self.connections)
        failing_since, tries = 0.0, 0
        try:
            while True:
                pool = await self.connections.serving_pool()
                try:
                    answer = await self._try(pool, title, ask, numbered)
                except (UNREACHABLE, ReplyError) as error:
                    trouble: Exception = error
                else:
                    if pool.is_down or outages.unanswered:
                        self._note_up(pool)
                    return answer
                now = time.monotonic()
                failing_since = failing_since or now
                if tries:  # one failure is not an outage: the server may have closed an idle connection
                    self._note_down(pool, trouble, gives_up=gives_up)
                if gives_up and now >= failing_since + self.patience:
                    raise self._unavailable(pool, title, trouble, was_asked=numbered.was_asked) from trouble
                await sleep(patience.backoff(tries, random.random))
                tries += 1
        finally:
            numbered.release()

    async def _try(self, pool: AsyncPool, title: str, ask: Ask[T], numbered: "_Numbered") -> T:
        """Ask once. Raises OSError or ReplyError if the call may be retried, and DulyError otherwise."""
        async with pool.gate:
            wire = pool.take()
            try:
                if wire is None:
                    wire = await pool.connect()
                return await ask(wire, numbered.stream())
            except (UNREACHABLE, ReplyError) as error:
                if isinstance(error, ReplyError):
                    self._check_retry(pool, title, error)
                if not isinstance(error, ReplyError) or replies.trouble_of(error) == "reconnect":
                    self.connections.doubt(pool, error)
                    if wire is not None:
                        await wire.close()
                raise
            finally:
                if wire is not None:
                    pool.give(wire)

    async def _ask(self, wire: AsyncWire, stream: CallStream, call: Call[Any], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a call once. If the server does not know the script, send its text."""
        script = call.script
        try:
            return await wire.ask(call.command(b"EVALSHA", script.sha, stream), timeout)
        except ErrorReply as error:
            if replies.trouble_of(error) != "noscript":
                raise
            return await wire.ask(call.command(b"EVAL", script.text, stream), timeout)

    def _check_retry(self, pool: AsyncPool, title: str, error: ReplyError) -> None:
        """Return if the call may be retried; raise the matching exception otherwise."""
        if replies.is_denied(error):
            raise self._denied(pool, title, error) from error
        trouble = replies.trouble_of(error)
        if trouble == "full":
            raise QueueFull(
                f"{pool.shown} is at maxmemory: {title} was refused and nothing was written. Let consumers drain it, "
                "or raise maxmemory"
            ) from error
        if trouble not in ("retry", "reconnect"):
            advice = f" {_FEWER_DATABASES}" if "DB index" in str(error) else ""
            raise ServerError(
                f"{title} failed on {pool.shown}: {_ended(error) if advice else error}{advice}"
            ) from error

    def _denied(self, pool: AsyncPool, title: str, error: ReplyError) -> ServerError:
        if isinstance(error, ErrorReply) and error.refuses_login:
            return ServerError(f"{pool.shown} refused the connection: {_ended(error)} {_CHECK_CREDENTIALS}")
        advice = rights.advice(title, self._user, str(error))
        return ServerError(f"{title} failed on {pool.shown}: {_ended(error)} {advice}")

    def _note_down(self, pool: AsyncPool, trouble: Exception, *, gives_up: bool) -> None:
        if not pool.is_down and not self.is_quiet:
            pool.is_down = True
            self._down_since = time.monotonic()
            if not outages.begin(self.connections.address.shown):
                return
            until = f"for up to {self.patience:g} s" if gives_up else "until it does"
            _LOG.warning("%s does not answer, retrying %s: %s", pool.shown, until, _described(trouble))

    def _note_up(self, pool: AsyncPool) -> None:
        now = time.monotonic()
        if pool.is_down and now > self._down_since + _OUTAGE_AFTER:
            self._claim_at = now + _RENEW_FIRST
        pool.is_down = False
        if not outages.end(self.connections.address.shown):
            return
        _LOG.info("%s answers again", pool.shown)
        if self.on_return is not None:
            self.on_return()

    def _unavailable(self, pool: AsyncPool, title: str, trouble: Exception, *, was_asked: bool) -> Unavailable:
        outcome = f"{title} may or may not have been carried out" if was_asked else f"{title} was not carried out"
        advice = ""
        if was_asked and " on topic " in title and title.startswith(("publish", "send")):
            advice = ". Publish again with the same dedup= if the entry must not be stored twice"
        elif was_asked and title.startswith("send"):
            advice = ". Send again with the same id= or dedup= if the message must not be stored twice"
        tls = ", and that it speaks TLS on this port (redis:// is without)" if self._is_tls and not was_asked else ""
        return Unavailable(
            f"{pool.shown} did not answer within {self.patience:g} s ({_described(trouble)}): {outcome}. "
            f"Check that the server runs and can be reached{tls}{advice}"
        )


class _Numbered:
    """The stream of one call. It is taken with the first permit, so that there are as few streams as permits."""

    def __init__(self, connections: AsyncConnections) -> None:
        self._connections = connections
        self._stream: CallStream | None = None

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


def _ended(error: Exception) -> str:
    """Return the error text of the server as a sentence."""
    text = str(error).rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _described(error: Exception) -> str:
    return str(error) or type(error).__name__
