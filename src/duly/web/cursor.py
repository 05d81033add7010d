"""Where a page of messages ended, as a text: the next one goes on behind it, also when that message is gone by then.

It holds what the library's `list(after=message)` needs of a message, and nothing of its payload. A digest tells one
that was cut off or changed on its way. It is no secret, and opens nothing. Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from duly._core import publishing
from duly.errors import UsageError
from duly.message import Message
from duly.web.sealed import sealed, unsealed

_MARK: Final = "next~"
"""What begins so is a cursor; everything else that a page is to begin behind is the id of a message."""
_PURPOSE: Final = b"duly cursor"

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Score = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Priority = Annotated[int, msgspec.Meta(ge=0, le=255)]


class _Cursor(msgspec.Struct, array_like=True):
    state: str
    id: _Text
    score: _Score
    priority: _Priority
    key: str | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Cursor).decode


def cursor_of(message: Message) -> str:
    """Write the position of a message in the list that it was found in."""
    packed = _encode(_Cursor(message.state, message.id, *message.cursor, message.key))
    return _MARK + sealed(packed, _PURPOSE)


def position_of(after: str, state: str) -> Message | str:
    """Read what a page of a state is to begin behind: a position for the library's `list`, or the id that was given."""
    if not after.startswith(_MARK):
        return after
    found = _read(after.removeprefix(_MARK))
    if found is None:
        raise UsageError(
            "`after` is not a whole cursor: give what `next` of the page before was, or the id of a message"
        )
    if found.state != state:
        raise UsageError(f"`after` is of a page of {found.state!r} messages, not of {state!r}: begin without it")
    return _message(found)


def _read(text: str) -> _Cursor | None:
    """Undo `cursor_of`; None: it is none, or not all of one."""
    packed = unsealed(text, _PURPOSE)
    if packed is None:
        return None
    try:
        found = _decode(packed)
    except (ValueError, msgspec.DecodeError):  # sealed by somebody else
        return None
    is_sound = found.score != publishing.UNREAD[0] or publishing.is_id(found.id)
    return found if is_sound else None


def _message(found: _Cursor) -> Message:
    """Make a message of which nothing is known but its position."""
    return Message(
        id=found.id,
        queue="",
        state=found.state,  # type: ignore[arg-type]
        body=None,
        raw=None,
        headers={},
        key=found.key,
        priority=found.priority,
        sent_at=None,
        due_at=None,
        failures=0,
        crashes=0,
        defers=0,
        releases=0,
        cursor=(found.score, found.priority),
    )
