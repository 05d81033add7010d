"""Blocking waits on the server: for wake tokens, for stream entries, and for ends of messages."""

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from duly._async.connections import AsyncConnections
from duly._async.ends import EndEntries
from duly._async.pool import AsyncPool
from duly._async.primitives import before_leaving, sleep
from duly._async.wire import UNREACHABLE, AsyncWire
from duly._core import ops, patience
from duly._core.call import Call
from duly._core.keys import GroupKeys, QueueKeys, TopicKeys
from duly._core.resp import Arg, ErrorReply, ReplyError

_LOG: Final = logging.getLogger("duly")

Blocks = Callable[[AsyncPool, AsyncWire], bool]
"""Is called with the connection of a wait. False: do not wait."""


class AsyncWaiter:
    """Blocks on `wake`, `ends` and the streams of topics, without taking messages.

    Each wait is for one queue or group, so that it names keys of one slot of a cluster.
    """

    def __init__(self, connections: AsyncConnections, carry: Callable[[Call[bool]], Awaitable[object]]) -> None:
        self._connections = connections
        self._carry = carry
        self._blocked: dict[AsyncWire, tuple[AsyncPool, QueueKeys | None]] = {}
        """The blocked connections, each with its pool, and the queue whose wake token it may take."""
        self._polls = False
        """Whether it was logged that waits are refused."""

    async def wait(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait up to `seconds` for a wake token. True: one was taken.

        `exact`: the wait ends at a due time. A timeout of the server fires up to 100 ms late, and not at all if its
        clock steps back. So the client ends the wait, and the timeout of the server is a backstop.
        """
        if seconds <= 0:
            return False
        backstop = max(seconds, 0.001) + (5 if exact else 0)
        command: list[Arg] = [b"BLPOP", keys.key("wake"), f"{backstop:.3f}"]
        return await self._block(keys, command, seconds if exact else seconds + 0.3, takes_token=True) is not None

    # --- sync only
    # | def wait_for_any(self, keys: Sequence[QueueKeys], seconds: float, *, exact: bool, blocks: Blocks) -> Any:
    # |     """Wait up to `seconds` for the wake token of any of these queues. Return the name of its key, or None.
    # |
    # |     All keys are in one slot. `blocks` is called before the command is sent, and may refuse it with False.
    # |     """
    # |     backstop = max(seconds, 0.001) + (5 if exact else 0)
    # |     command: list[Arg] = [b"BLPOP", *(each.key("wake") for each in keys), f"{backstop:.3f}"]
    # |     most = seconds if exact else seconds + 0.3
    # |     reply = self._block(keys[0], command, most, takes_token=True, blocks=blocks)
    # |     return None if reply is None else reply[0]
    # |
    # --- end
    async def wait_for_entry(
        self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float, *, exact: bool
    ) -> bool:
        """Wait up to `seconds` for an entry or a bell after a position. True: there is one.

        No token is taken, so none has to be passed on. `exact` is as in `wait`.
        """
        if seconds <= 0:
            return False
        backstop = max(round((seconds + (5 if exact else 0)) * 1000), 1)
        command: list[Arg] = [b"XREAD", b"COUNT", 1, b"BLOCK", backstop, b"STREAMS", *keys.watched, *position]
        return bool(await self._block(keys, command, seconds if exact else seconds + 0.3))

    async def read_ends(self, keys: QueueKeys, after: str, seconds: float) -> EndEntries:
        """Read the entries of `ends` after an entry, and wait up to `seconds` for the first."""
        command: list[Arg] = [b"XREAD", b"COUNT", 1000, b"BLOCK", max(round(seconds * 1000), 1)]
        reply = await self._block(keys, [*command, b"STREAMS", keys.key("ends"), after], seconds + 0.3)
        return [(entry.decode(), fields[1].decode()) for entry, fields in reply[0][1]] if reply else []

    async def _block(
        self,
        keys: QueueKeys,
        command: list[Arg],
        seconds: float,
        *,
        takes_token: bool = False,
        blocks: Blocks | None = None,
    ) -> Any:
        """Run a blocking command on keys of a queue for up to `seconds`; None: no reply."""
        pool = wire = None
        woken = keys if takes_token else None
        try:
            pool = await self._connections.serving_pool(keys)
            wire = await pool.take_waiting()
            self._blocked[wire] = pool, woken
            if blocks is not None and not blocks(pool, wire):
                pool.give_waiting(wire)
                return None
            await wire.begin(command)
            if not await wire.poll(seconds):
                await pool.unblock(wire)
            reply = await wire.finish()
        except (UNREACHABLE, ReplyError) as error:
            if wire is not None:
                await wire.close()
            self._note_refusal(error)
            if pool is None or not self._connections.has_moved(pool, error):
                await sleep(min(seconds, patience.backoff(6, random.random)))
            return None
        except BaseException:
            # --- async only
            await before_leaving(self._leave(pool, wire, woken))
            # --- sync only
            # | self._leave(pool, wire, woken)
            # --- end
            raise
        finally:
            if wire is not None:
                self._blocked.pop(wire, None)
        pool.give_waiting(wire)
        return reply

    def _note_refusal(self, error: Exception) -> None:
        """Log, once per app, that calls poll, since the server denies or lacks a command that a wait needs."""
        if isinstance(error, ErrorReply) and error.leaves_command_out and not self._polls:
            self._polls = True
            _LOG.warning("%s: waiting is refused, so calls that wait poll: %s", self._connections.address.shown, error)

    async def leave_all(self) -> None:
        """End all waits when the app is closed, and wake other consumers instead."""
        for wire, (pool, keys) in list(self._blocked.items()):
            if keys is None:
                wire.hang_up()
                continue
            await pool.cut(wire)
            wire.hang_up()
            await self._carry(ops.wake(keys))
        for ends in list(self._connections.ends.values()):
            ends.ring_all()

    async def _leave(self, pool: AsyncPool | None, wire: AsyncWire | None, keys: QueueKeys | None) -> None:
        """Abort a wait, and wake the next consumer, since a token may have been taken."""
        try:
            if pool is not None and wire is not None:
                if keys is not None:
                    await pool.cut(wire)
                await wire.close()
            if keys is not None:
                await self._carry(ops.wake(keys))
        except Exception:  # noqa: BLE001, S110 - other consumers poll after a while anyway
            pass
