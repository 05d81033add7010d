"""Confirms the durability of the last write, by WAIT, WAITAOF and the settings of the server."""

from typing import Final, NamedTuple

from duly._async.asking import AsyncAsker
from duly._async.wire import REPLY_TIMEOUT
from duly._core.resp import ErrorReply
from duly._core.server import is_unknown_command
from duly.message import Confirmed
from duly.options import Durable

_WAIT_MS: Final = 5000
_TIMEOUT: Final = _WAIT_MS / 1000 + REPLY_TIMEOUT


class Confirmation(NamedTuple):
    """How durable a write is."""

    reached: Confirmed = None
    missing: str = ""
    """Why it is less durable than requested; empty: it is not."""


async def confirmation_of(wire: AsyncAsker, durable: Durable) -> Confirmation:
    """Wait until the last write of this connection is durable."""
    if durable is None:
        return Confirmation()
    if durable == "fsync":
        missing = await _missing_for_fsync(wire)
        return Confirmation(None if missing else "fsync", missing)
    wanted = 1 if durable == "replica" else durable
    try:
        confirmed = await wire.ask([b"WAIT", wanted, _WAIT_MS], _TIMEOUT)
    except ErrorReply as error:  # the message is stored: some hosted servers have no WAIT, or deny it
        return Confirmation(None, f"the server did not confirm it: {error}")
    if confirmed >= wanted:
        return Confirmation(confirmed)
    missing = f"{confirmed} of {wanted} replicas confirmed it within {_WAIT_MS / 1000:g} s"
    return Confirmation(confirmed or None, missing)


async def _missing_for_fsync(wire: AsyncAsker) -> str:
    """Wait for the append-only file, and require a server that syncs every write.

    With `appendfsync everysec`, WAITAOF may answer before the file is synced, in Redis from 7.4 until redis/redis#13793
    and in Valkey 9.1. There, a power failure was observed to lose confirmed writes.
    """
    try:
        local, _ = await wire.ask([b"WAITAOF", 1, 0, _WAIT_MS], _TIMEOUT)
    except ErrorReply as error:
        if not is_unknown_command(str(error)):
            return f"the server did not confirm it: {error}"
        local = 1  # Redis before 7.2 has no WAITAOF: check only the settings
    if local < 1:
        return f"the server did not sync its append-only file within {_WAIT_MS / 1000:g} s"
    return await _missing_for_syncing(wire)


async def _missing_for_syncing(wire: AsyncAsker) -> str:
    """Check that the server syncs before it replies. Then the reply itself confirms the write."""
    settings: dict[bytes, bytes] = {}
    try:
        for name in (b"appendonly", b"appendfsync"):
            found = await wire.ask([b"CONFIG", b"GET", name])
            settings.update(zip(found[0::2], found[1::2], strict=True))
    except ErrorReply as error:
        return f"the server does not show whether it syncs every write: {error}"
    if settings.get(b"appendonly") == b"yes" and settings.get(b"appendfsync") == b"always":
        return ""
    return "the server does not sync every write (appendonly yes, appendfsync always)"
