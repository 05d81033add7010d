"""Entries of topics: check, encode and decode them. Positions in a stream.

A publish without a delay becomes the fields of a stream entry; one with a delay waits as a message.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from duly._core import codec
from duly._core.outgoing import MAX_CALL_BYTES, NOW, Encoder, Outgoing, checked_new_text, due_in
from duly._core.refused_options import INSTEAD_OF_SEND
from duly._core.topic_ops import Publication
from duly._core.views import moment
from duly.errors import UsageError
from duly.message import Entry, Event, Message
from duly.options import MAX_BATCH, Send, TopicOptions, checked_epoch, shown_time

BODY: Final = b"body"
BYTES: Final = b"bytes"
KEY: Final = b"key"
SENT: Final = b"sent"
HEADER: Final = b"header:"
"""The fields of an entry that Duly published."""

_LONGEST_TIME: Final = 16
"""The most digits of `sent`. Longer numbers are not from Duly."""

MAX_HEADERS: Final = 1000
"""Far below the 8,000 values that Lua can unpack: each header takes two."""

_FIELD_OF_BODY: Final = {codec.CONTENT_JSON: BODY.decode(), codec.CONTENT_BYTES: BYTES.decode()}

_PLAIN: Final = Send(None)

UNREAD: Final = (-1, 0)
"""The cursor of an entry that its group has not read: it comes after all messages of the group."""

_MOST_AHEAD: Final = 60.0
"""Seconds by which a start may be in the future, since clocks differ. A later start is a mistake."""


class Publisher:
    """Checks and encodes the publishes to one topic."""

    def __init__(self, topic: str, options: TopicOptions) -> None:
        self._encoder = Encoder(topic, options.of_group(), title=f"topic {topic!r}")

    def prepared(self, given: Any, new_id: Callable[[], str], now: float) -> Publication | Outgoing:
        """Check and encode a body or a `Send`. With a delay, it becomes a message with a new id."""
        if not isinstance(given, Send):
            content, raw = self._encoder.body(given)
            return Publication((_FIELD_OF_BODY[content], raw))
        for name, instead in INSTEAD_OF_SEND.items():
            if getattr(given, name) != getattr(_PLAIN, name):
                raise UsageError(f"{name}= is for messages of a queue, not for entries of a topic: {instead}")
        if isinstance(given.headers, Mapping) and len(given.headers) > MAX_HEADERS:
            raise UsageError(f"an entry may have at most {MAX_HEADERS} headers, not {len(given.headers)}")
        if due_in(given.delay, given.at, now) != NOW:
            return self._encoder.outgoing(given, new_id(), now)
        return self._entry(given)

    def _entry(self, send: Send) -> Publication:
        content, raw = self._encoder.body(send.body)
        fields: list[str | bytes] = [_FIELD_OF_BODY[content], raw]
        if send.key is not None:
            fields += (KEY, checked_new_text(send.key, "key"))
        for name, value in (self._encoder.headers(send, raw) or {}).items():
            fields += (HEADER + name.encode(), value)
        dedup, dedup_for = self._encoder.dedup(send)
        return Publication(fields, dedup.decode(), dedup_for)


def batches(publications: Sequence[Publication]) -> list[list[Publication]]:
    """Cut entries into calls of bounded number and size."""
    found: list[list[Publication]] = []
    size = 0
    for publication in publications:
        stored = sum(map(len, publication.fields))
        if not found or size + stored > MAX_CALL_BYTES or len(found[-1]) == MAX_BATCH:
            found.append([])
            size = 0
        found[-1].append(publication)
        size += stored
    return found


class Opened(NamedTuple):
    """The decoded fields of an entry."""

    content: int
    body: bytes
    key: str | None
    headers: dict[str, str]
    sent: int | None
    """Microseconds, if it was delayed."""


def opened(fields: Sequence[bytes]) -> Opened:
    """Decode the fields of an entry. If Duly did not publish it, all fields but the headers are the body."""
    content, body, key, sent = codec.CONTENT_FIELDS, b"", None, None
    headers: dict[str, str] = {}
    for name, value in zip(fields[0::2], fields[1::2], strict=True):
        if name == BODY:
            content, body = codec.CONTENT_JSON, value
        elif name == BYTES:
            content, body = codec.CONTENT_BYTES, value
        elif name == KEY:
            key = _text(value) or None
        elif name == SENT:
            sent = int(value) if value.isdigit() and len(value) <= _LONGEST_TIME else sent
        elif name.startswith(HEADER):
            headers[_text(name.removeprefix(HEADER))] = _text(value)
    if content == codec.CONTENT_FIELDS:
        return Opened(content, codec.packed_fields(_without_headers(fields)), None, headers, None)
    return Opened(content, body, key, headers, sent)


def _without_headers(fields: Sequence[bytes]) -> list[bytes]:
    pairs = zip(fields[0::2], fields[1::2], strict=True)
    return [text for pair in pairs if not pair[0].startswith(HEADER) for text in pair]


def _text(value: bytes) -> str:
    """Decode a text that another program may have written."""
    return value.decode(errors="backslashreplace")


def entry_of(topic: str, decode: Callable[[int, bytes], Any], id_: str, fields: Sequence[bytes]) -> Entry:
    """Return the view of an entry of a stream: a view never fails."""
    found = opened(fields)
    body, raw = codec.shown_body(decode, found.content, found.body)
    published = parsed_id(id_)[0] * 1000 if found.sent is None else found.sent
    return Entry(id_, topic, body, raw, found.headers, found.key, moment(published))


def message_of(group: str, decode: Callable[[int, bytes], Any], id_: str, fields: Sequence[bytes]) -> Message:
    """Return the view of an entry as a message of a group that has not read it yet."""
    entry = entry_of("", decode, id_, fields)
    return Message(
        id=id_,
        queue=group,
        state="ready",
        body=entry.body,
        raw=entry.raw,
        headers=entry.headers,
        key=entry.key,
        priority=0,
        sent_at=entry.published_at,
        due_at=moment(parsed_id(id_)[0] * 1000),
        failures=0,
        crashes=0,
        defers=0,
        releases=0,
        timeline=(Event(entry.published_at, "sent"),),
        cursor=UNREAD,
    )


# Positions

_ID: Final = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")
_LARGEST: Final = 2**64 - 1
_BEGINNING: Final = "beginning"
_END: Final = ("new", "end")
AT_END: Final = "$"


def parsed_id(id_: str) -> tuple[int, int]:
    """Read the id of an entry: milliseconds, and its number within them."""
    milliseconds, _, number = id_.partition("-")
    return int(milliseconds), int(number or 0)


def is_id(text: str) -> bool:
    """Whether a text is the full id of an entry."""
    match = _ID.fullmatch(text) if text.isascii() else None
    return match is not None and match[2] is not None and max(int(match[1]), int(match[2])) <= _LARGEST


def checked_id(value: object, what: str) -> str:
    """Return the full id of an entry, like `1700000000000-0`. The number after the hyphen is optional in `value`."""
    match = _ID.fullmatch(value) if isinstance(value, str) and value.isascii() else None
    parts = (int(match[1]), int(match[2] or 0)) if match else (_LARGEST + 1, 0)
    if max(parts) > _LARGEST:
        raise UsageError(f"{what} must be the id of an entry like '1700000000000-0', not {value!r}")
    return f"{parts[0]}-{parts[1]}"


def start_of(position: object, what: str, now: float) -> str:
    """Return the id after which a group starts; 0 is the beginning, $ the end. `now`: the time in seconds."""
    if position == _BEGINNING:
        return "0"
    if position in _END:
        return AT_END
    if isinstance(position, datetime):
        milliseconds = _milliseconds(position, what)
        if milliseconds / 1000 > now + _MOST_AHEAD:
            raise UsageError(
                f"{what}={shown_time(position)} is in the future: use 'new' to start with entries published from now on"
            )
        return f"{milliseconds - 1}-{_LARGEST}" if milliseconds else "0"
    return _checked_position(position, what)


def after_of(position: object, what: str) -> str:
    """Return where to read from, as for XRANGE: - is the beginning, $ the end, `(` excludes an id."""
    if position is None or position == _BEGINNING:
        return "-"
    if position in _END:
        return AT_END
    if isinstance(position, datetime):
        return f"{_milliseconds(position, what)}-0"
    return f"({_checked_position(position, what, none='None, ')}"


def range_of(start: object, end: object) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first and the last id of a range; None: no bound. An end without a number includes its millisecond."""
    first = (0, 0) if start is None else parsed_id(checked_id(start, "start"))
    last = (_LARGEST, _LARGEST) if end is None else parsed_id(checked_id(end, "end"))
    return first, (last[0], _LARGEST) if isinstance(end, str) and "-" not in end else last


def _milliseconds(position: datetime, what: str) -> int:
    """Convert a time and round down, so that entries of the same millisecond are included."""
    return int(checked_epoch(position, what) * 1000)


def _checked_position(position: object, what: str, none: str = "") -> str:
    try:
        return checked_id(position, what)
    except UsageError:
        raise UsageError(
            f"{what} must be {none}'beginning', 'new', 'end', the id of an entry like '1700000000000-0' or an aware "
            f"datetime, not {position!r}"
        ) from None


Filter = tuple[tuple[str, str], ...]


def checked_filter(headers: object) -> Filter:
    """Check a group's filter and return it as pairs of header and value. Values of the same name are alternatives."""
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers must be a mapping of str to str, or to a list of them, not {headers!r}")
    pairs: list[tuple[str, str]] = []
    for name, wanted in headers.items():
        values = [wanted] if isinstance(wanted, str) else wanted
        if not isinstance(values, list | tuple | set | frozenset) or not values:
            raise UsageError(f"headers[{name!r}] must be a str or a list of them, not {wanted!r}")
        for value in sorted(values, key=repr):
            if not isinstance(name, str) or not isinstance(value, str):
                raise UsageError(f"headers must be str to str, or to a list of them, not {name!r}: {value!r}")
            try:
                (name + value).encode()
            except UnicodeEncodeError:
                raise UsageError(f"header {name!r} is not valid Unicode text") from None
            pairs.append((name, value))
    return tuple(pairs)


def is_wanted(filter_: Filter, headers: Mapping[str, str]) -> bool:
    """Whether a group with this filter receives an entry, by the rule of claims."""
    return all(any((name, value) == (wanted, headers.get(wanted)) for name, value in filter_) for wanted, _ in filter_)
