"""Prepare messages for a send script: check options and encode bodies."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from duly._core import codec
from duly._core.naming import title_of
from duly.errors import CodecError, TooLarge, UsageError
from duly.options import (
    MAX_BATCH,
    MAX_DELAY,
    QueueOptions,
    Repeat,
    Retry,
    Seconds,
    Send,
    checked_count,
    checked_epoch,
    checked_flag,
    checked_positive_seconds,
    checked_seconds,
    shown_time,
)

NOW: Final = "0"
MAX_TEXT_BYTES: Final = 1024
"""The largest id, key or dedup value."""

MAX_CALL_BYTES: Final = 4 << 20


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """The arguments of a send script for one message. It is made for each send, so it is a struct, the fastest kind."""

    id: str
    part: codec.Part
    when: str
    flags: int = 0
    priority: int = 0

    @property
    def row(self) -> tuple[str, codec.Part, str]:
        """The row in the arguments of a script."""
        return self.id, self.part, self.when


def batches(
    messages: Sequence[Outgoing], most: int = MAX_BATCH, most_bytes: int = MAX_CALL_BYTES
) -> list[list[Outgoing]]:
    """Cut messages into calls of bounded number and size."""
    sizes = [codec.stored_size(message.part) for message in messages]
    if 0 < len(sizes) <= most and sum(sizes) <= most_bytes:  # true for nearly all concurrent sends
        return [list(messages)]
    found: list[list[Outgoing]] = []
    size = 0
    for message, stored in zip(messages, sizes, strict=True):
        if not found or size + stored > most_bytes or len(found[-1]) == most:
            found.append([])
            size = 0
        found[-1].append(message)
        size += stored
    return found


def microseconds(seconds: float) -> int:
    """Convert a duration and round up, so that nothing is early."""
    return math.ceil(seconds * 1_000_000)


_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""The control characters of Unicode (category Cc): below a space, DEL, and C1 such as NEL."""


def due_in(delay: Seconds | None, at: datetime | float | None, now: float, later: int = 0) -> str:
    """Return the due time as the scripts read it, moved by `later` microseconds."""
    if delay is not None and at is not None:
        raise UsageError(f"delay={delay!r} and at={at!r} exclude each other: give one")
    if at is not None:
        epoch = checked_epoch(at)
        if epoch - now > MAX_DELAY:
            is_in_ms = abs(epoch / 1000 - now) < MAX_DELAY  # the unit of some other languages
            hint = ": it seems to be in milliseconds, divide it by 1000" if is_in_ms else ""
            raise UsageError(f"at={shown_time(at)} is more than ten years ahead{hint}")
        return f"={microseconds(epoch) + later}"
    wait = later if delay is None else microseconds(checked_seconds(delay, "delay")) + later
    return f"+{wait}" if wait else NOW


def _part_of_spread(spread: Seconds | None, share: float) -> int:
    """Return a share of a spread, in whole microseconds."""
    return 0 if spread is None else int(checked_seconds(spread, "spread") * 1_000_000 * share)


def new_due(delay: Seconds | None, at: datetime | float | None, now: float) -> str:
    """Return the new due time of a waiting message."""
    if delay is None and at is None:
        raise UsageError("reschedule needs delay= or at=; promote() makes a message due now")
    when = due_in(delay, at, now)
    return "+0" if when == NOW else when


def checked_new_text(value: object, what: str) -> bytes:
    """Encode an id, key, dedup value or name that is about to be stored."""
    encoded = checked_text(value, what)
    if _CONTROLS.search(str(value)):
        raise UsageError(f"{what}={value!r} must not contain control characters")
    return encoded


def checked_text(value: object, what: str) -> bytes:
    """Encode an id, key or dedup value of a message that may be stored.

    Of the control characters only those below a space are refused: earlier versions stored the others.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a str, not {value!r}")
    if not value:
        raise UsageError(f"{what} must not be empty")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what}={value!r} is not valid Unicode text") from None
    if len(encoded) > MAX_TEXT_BYTES:
        raise UsageError(f"{what} must be at most {MAX_TEXT_BYTES} bytes, not {len(encoded)}")
    if any(ord(character) < 32 for character in value):
        raise UsageError(f"{what}={value!r} must not contain control characters")
    return encoded


def _checked_headers(headers: object) -> dict[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers must be a mapping of str to str, not {headers!r}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"headers must be str to str, not {name!r}: {value!r}")
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            raise UsageError(f"header {name!r} is not valid Unicode text") from None
    return dict(headers)


def _checked_retry(retry: object) -> Any:
    if retry is None:
        return None
    if not isinstance(retry, Retry):
        raise UsageError(f"retry must be a duly.Retry, not {retry!r}")
    return codec.packed_retry(retry)


def _checked_repeat(repeat: object) -> Any:
    if repeat is None:
        return None
    if not isinstance(repeat, Repeat):
        raise UsageError(f"repeat must be a duly.Repeat, not {repeat!r}")
    return codec.packed_repeat(repeat)


class Encoder:
    """Checks and encodes the bodies of one queue, group or topic."""

    def __init__(self, label: str, options: QueueOptions, title: str | None = None) -> None:
        self._title = title_of(label) if title is None else title
        self._limit = options.max_message_bytes
        self._dedup_for = options.dedup_for
        self._decode = None if options.type is None else codec.decoder_of(options.type)

    def body(self, body: Any) -> tuple[int, bytes]:
        """Encode a body and check its size and type."""
        if isinstance(body, Send):  # it would be encoded like any object, and its options ignored
            raise UsageError("a Send has a body and its options, and cannot be a body itself: pass its body")
        content, raw = codec.encoded_body(body)
        self._check_size(len(raw))
        if self._decode is not None:
            try:
                self._decode(content, raw)
            except CodecError as error:
                raise UsageError(f"{self._title}: {error}") from error.__cause__
        return content, raw

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise TooLarge(
                f"{size} bytes of body and headers are over max_message_bytes={self._limit} of {self._title}: "
                "store them elsewhere and send a reference, or raise the limit"
            )

    def dedup(self, send: Send) -> tuple[bytes, int]:
        """Check the options for duplicates. Return the dedup value (empty: none) and its window in microseconds."""
        if send.dedup is None:
            if send.replace:
                raise UsageError("replace needs dedup=: it replaces an earlier message with the same dedup value")
            if send.dedup_for is not None:
                raise UsageError("dedup_for needs dedup=: it is how long a second message with that value is dropped")
            return b"", 0
        window = self._dedup_for if send.dedup_for is None else send.dedup_for
        return checked_new_text(send.dedup, "dedup"), microseconds(checked_positive_seconds(window, "dedup_for"))

    def headers(self, send: Send, raw: bytes) -> dict[str, str] | None:
        """Check headers, and their size with that of the encoded body."""
        headers = _checked_headers(send.headers)
        if headers:
            self._check_size(len(raw) + sum(len(name.encode()) + len(text.encode()) for name, text in headers.items()))
        return headers

    def plain(self, body: Any, new_id: str) -> Outgoing:
        """Prepare a message without options: faster, with the same result."""
        content, raw = self.body(body)
        return Outgoing(new_id, codec.plain_part(content, raw), NOW)

    def outgoing(self, send: Send, new_id: str, now: float, share: float = 0.0) -> Outgoing:
        """Check all options of a message and encode it. `share`, 0 to 1, is the part of its spread that it waits."""
        content, raw = self.body(send.body)
        repeat = _checked_repeat(send.repeat)
        waits_for_repeat = repeat is not None and send.delay is None and send.at is None
        later = _part_of_spread(send.spread, share)
        when = due_in(repeat[0] if waits_for_repeat else send.delay, send.at, now, later)
        priority = checked_count(send.priority, "priority", least=0, most=9)
        flags = ttl = 0
        id_, key = new_id, b""
        if send.ttl is not None:
            ttl = microseconds(checked_positive_seconds(send.ttl, "ttl"))
            flags |= codec.FLAG_TTL
        dedup, dedup_for = self.dedup(send)
        if dedup:
            flags |= codec.FLAG_DEDUP
        if checked_flag(send.replace, "replace"):
            flags |= codec.FLAG_REPLACE
        if send.key is not None:
            key = checked_new_text(send.key, "key")
            flags |= codec.FLAG_KEY
        if send.id is not None:
            checked_new_text(send.id, "id")
            id_ = send.id
            flags |= codec.FLAG_OWN_ID
        if repeat is not None:
            flags |= codec.FLAG_REPEAT
        headers = self.headers(send, raw)
        envelope = codec.Envelope(content, raw, headers, _checked_retry(send.retry), repeat)
        part = codec.written_part(
            envelope, flags=flags, priority=priority, ttl=ttl, dedup_for=dedup_for, dedup=dedup, key=key
        )
        return Outgoing(id_, part, when, flags, priority)

    def with_body(self, record: bytes, body: Any) -> codec.Part:
        """Encode the part of a stored message again, with another body."""
        content, raw = self.body(body)
        old = codec.read_record(record)
        envelope = codec.Envelope(content, raw, old.envelope.headers, old.envelope.retry, old.envelope.repeat)
        return codec.rewritten_part(old, envelope)
