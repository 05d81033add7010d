"""Encode and decode everything that is stored of a message: bodies, envelopes and records.

A record is the stamps that the scripts write (sent, due), then the part that the client writes:
version, flags, priority, the options that the flags announce, the envelope. See docs/protocol.md.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

import msgspec
import msgspec.inspect

from duly._core.pieces import LARGE_PIECE, Pieces
from duly.errors import CodecError, UsageError
from duly.message import MessageId
from duly.options import Repeat, Retry

Part = bytes | Pieces
"""The client's part of a record. It is in pieces if the body is large."""

VERSION: Final = 1

FLAG_TTL: Final = 1
FLAG_DEDUP: Final = 2
FLAG_KEY: Final = 4
FLAG_OWN_ID: Final = 8
FLAG_REPLACE: Final = 16
FLAG_REPEAT: Final = 32

CONTENT_BYTES: Final = 0
CONTENT_JSON: Final = 1
CONTENT_FIELDS: Final = 2
"""The fields of an entry that another program added to a stream: lengths and bytes of names and values, in turn."""

STAMPS: Final = struct.Struct("<dd")
"""When a message was sent and when it is due, as doubles, at the beginning of its record."""
_HEAD: Final = struct.Struct("<BBB")
_STAMPED_HEAD: Final = struct.Struct("<ddBBB")
_FLAGS_AT: Final = _STAMPED_HEAD.size - 2
_US: Final = struct.Struct("<d")
_LENGTH: Final = struct.Struct("<H")
_FIELD_LENGTH: Final = struct.Struct("<I")
_LEASE: Final = struct.Struct("<dIBB")
_NO_OPTIONS: Final = bytes([VERSION, 0])
_PLAIN_HEAD: Final = _HEAD.pack(VERSION, 0, 0)
_NO_BODY: Final = b"\xc4\x00"
"""A body of no bytes, in MessagePack. The fields before it do not contain this."""
_BIN_32: Final = 0xC6
_LARGE_HEAD: Final = struct.Struct(">BI")
"""The type and the length of a large body, in MessagePack."""


class Envelope(msgspec.Struct, array_like=True):
    """The part of a record that scripts do not read."""

    content: int
    body: bytes
    headers: dict[str, str] | None = None
    retry: tuple[int, float, float, float, float, list[float] | None] | None = None
    repeat: tuple[float, float, int | None, float] | None = None


class Record(msgspec.Struct):
    """A decoded message. Times are microseconds."""

    sent: int
    due: int
    flags: int
    priority: int
    ttl: int
    dedup_for: int
    dedup: str | None
    key: str | None
    envelope: Envelope


class Counts(msgspec.Struct, array_like=True):
    """The counters of a message's deliveries. `due` is 0 unless a retry or defer set it."""

    failures: int = 0
    crashes: int = 0
    defers: int = 0
    releases: int = 0
    due: int = 0
    cycles: int = 0
    redrives: int = 0


class Fault(msgspec.Struct, array_like=True):
    """One error that a consumer reported."""

    at: int
    attempt: int
    consumer: str
    error: str
    traceback: str


class Event(msgspec.Struct, array_like=True):
    """One entry of a timeline. `since` is when the delivery that it ended was claimed; 0: it ended no delivery."""

    at: int
    what: str
    consumer: str
    since: int
    detail: str


class Why(msgspec.Struct, array_like=True):
    """The history of a message: why it is dead (`reason`), its errors, its timeline, and its handler's result."""

    reason: str
    failures: int
    crashes: int
    defers: int
    releases: int
    errors: list[Fault]
    rejects: int = 0
    timeline: list[Event] = []
    cycles: int = 0
    result: str = ""
    redrives: int = 0
    result_until: int = 0
    """The latest time at which the result of a finished message may arrive; 0: it is stored, or there is none."""


class Lease(msgspec.Struct):
    """A current lease, as stored."""

    fence: int
    size: int
    flags: int
    priority: int
    consumer: str
    key: str | None = None


NO_COUNTS: Final = Counts()

_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_decode_counts = msgspec.msgpack.Decoder(Counts).decode
_decode_why = msgspec.msgpack.Decoder(Why).decode


def _encode_foreign(value: Any) -> Any:
    """Convert message ids and pydantic models, which msgspec does not know, to values that it knows."""
    if isinstance(value, MessageId):
        return str(value)
    dump = getattr(type(value), "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"objects of type {type(value).__name__} cannot be encoded as JSON")
    return dump(value, mode="json", by_alias=True)


_BYTES_LIKE: Final = (bytes, bytearray, memoryview)
_NEVER_ALTERED: Final = (str, msgspec.Raw)
"""As tuples: `isinstance` would make a union of types again for each message, which takes longer than its encoding."""

_encode_msgpack = msgspec.msgpack.Encoder(enc_hook=_encode_foreign).encode  # a header may be a message id
_encode_json = msgspec.json.Encoder(enc_hook=_encode_foreign).encode
_decode_json = msgspec.json.Decoder().decode


def encoded_body(body: Any) -> tuple[int, bytes]:
    """Encode a body: bytes pass untouched, everything else becomes JSON."""
    if isinstance(body, _BYTES_LIKE):
        return CONTENT_BYTES, bytes(body)
    return CONTENT_JSON, encoded_json(body, "a body")


def encoded_json(value: Any, what: str, fate: str = "sent") -> bytes:
    """Encode a value as JSON, if nothing of it is lost. A `msgspec.Raw` is JSON already."""
    try:
        raw = _encode_json(value)
        # JSON has no NaN and no infinity: msgspec would silently write null.
        is_suspect = b"null" in raw and not isinstance(value, _NEVER_ALTERED)
        is_altered = is_suspect and _has_unwritable_number(msgspec.to_builtins(value, enc_hook=_encode_foreign))
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError, UnicodeError) as error:
        raise UsageError(f"{what} of type {type(value).__name__} cannot be {fate}: {error}") from error
    if is_altered:
        raise UsageError(f"{what} of type {type(value).__name__} cannot be {fate}: JSON has no NaN and no infinity")
    return raw


def _has_unwritable_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_unwritable_number, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_unwritable_number, value))


def decoder_of(kind: Any) -> Callable[[int, bytes], Any]:
    """Make the function that decodes bodies to a type; None: to plain Python values."""
    if kind is None:
        return _decode_plain
    if kind is bytes:
        return _decode_bytes
    decode = json_decoder_of(kind)
    takes_bytes = bytes in get_args(kind)

    def decode_typed(content: int, body: bytes) -> Any:
        if content == CONTENT_BYTES:
            if takes_bytes:
                return body
            raise CodecError(f"the body is raw bytes, not {_name_of(kind)}")
        fields = read_fields(body) if content == CONTENT_FIELDS else None
        try:
            return decode(body) if fields is None else _converted(fields, kind)
        except Exception as error:  # noqa: BLE001 - a user's validator may raise anything
            raise CodecError(f"the body does not decode to {_name_of(kind)}: {without_values(error)}") from cause_of(
                error
            )

    return decode_typed


def cause_of(error: Exception) -> Exception | None:
    """Return the cause for our error's traceback; None: the decoder's error adds nothing to our text."""
    adds_nothing = isinstance(error, msgspec.DecodeError) and error.__cause__ is None
    return None if adds_nothing else error


def json_decoder_of(kind: Any) -> Callable[[bytes], Any]:
    """Make the function that decodes JSON to a type; None: to plain Python values. It may raise any exception."""
    if kind is None:
        return _decode_json
    try:
        if hasattr(kind, "model_validate_json"):
            return kind.model_validate_json  # type: ignore[no-any-return]
        if _is_pydantic(kind):
            from pydantic import TypeAdapter

            return TypeAdapter(kind).validate_json
        unknown = _unknown_to_msgspec(msgspec.inspect.type_info(kind))
        if unknown is not None:
            raise TypeError(f"JSON cannot be converted to {_name_of(unknown)}")  # noqa: TRY301
        return msgspec.json.Decoder(kind, dec_hook=_decode_foreign).decode
    except Exception as error:
        raise UsageError(f"{_name_of(kind)} is not a type that JSON can be decoded to: {error}") from error


def without_values(error: Exception) -> str:
    """Describe an invalid body without its values: this is logged, and bodies hold secrets."""
    errors = getattr(error, "errors", None)
    if not callable(errors) or not hasattr(error, "error_count"):  # not pydantic's
        return str(error)
    found = errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in found)


def _is_pydantic(kind: Any) -> bool:
    """Whether pydantic must decode it: its models and dataclasses, and types like list[Model] or Model | None."""
    return hasattr(kind, "__pydantic_validator__") or any(map(_is_pydantic, get_args(kind)))


def _decode_foreign(kind: Any, value: Any) -> Any:
    """Decode a pydantic model that is a field of another type."""
    return kind.model_validate_json(_encode_json(value))


def _unknown_to_msgspec(info: Any, seen: set[int] | None = None) -> Any:
    """Find a class in a type that msgspec accepts but cannot decode to."""
    seen = set() if seen is None else seen
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if info.cls is object or hasattr(info.cls, "model_validate_json") else info.cls
    if isinstance(info, tuple):
        parts: Any = info
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        parts = (getattr(info, name) for name in info.__struct_fields__)
    else:
        return None
    found = (_unknown_to_msgspec(part, seen) for part in parts)
    return next((each for each in found if each is not None), None)


def _name_of(kind: Any) -> str:
    return repr(kind) if get_args(kind) else getattr(kind, "__name__", None) or repr(kind)


def _decode_plain(content: int, body: bytes) -> Any:
    if content == CONTENT_BYTES:
        return body
    if content == CONTENT_FIELDS:
        return read_fields(body)
    if content != CONTENT_JSON:
        raise CodecError(f"content type {content} is unknown: it was sent by a newer version of Duly")
    try:
        return _decode_json(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise CodecError(f"the body is not JSON: {error}") from error


def _decode_bytes(content: int, body: bytes) -> bytes:
    if content != CONTENT_BYTES:
        kind = "the fields of an entry" if content == CONTENT_FIELDS else "JSON"
        raise CodecError(f"the body is {kind}, not raw bytes")
    return body


def packed_fields(fields: Sequence[bytes]) -> bytes:
    """Write names and values of fields, in turn, as a body."""
    return b"".join(_FIELD_LENGTH.pack(len(text)) + text for text in fields)


def read_fields(body: bytes) -> dict[str, str | bytes]:
    """Undo `packed_fields`. Values that are UTF-8 become text, others stay bytes."""
    found, at = list[bytes](), 0
    while at < len(body):
        end = at + _FIELD_LENGTH.size
        end += _FIELD_LENGTH.unpack(body[at:end])[0] if end <= len(body) else 0
        if end > len(body):
            raise CodecError("the fields of the entry are damaged: they are cut off")
        found.append(body[at + _FIELD_LENGTH.size : end])
        at = end
    return fields_read(found)


def fields_read(fields: Sequence[bytes]) -> dict[str, str | bytes]:
    """Read the fields of an entry that another program added: names and values, in turn."""
    names, values = fields[0::2], fields[1::2]
    return {
        name.decode(errors="backslashreplace"): _text_or_bytes(value) for name, value in zip(names, values, strict=True)
    }


def visible(text: bytes) -> str:
    """Decode an id or a name. Another program may have written it, so bytes that are not UTF-8 are escaped."""
    return text.decode("utf-8", "backslashreplace")


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _converted(fields: dict[str, str | bytes], kind: Any) -> Any:
    """Convert fields to a type. They are text, so numbers and similar values are parsed from it."""
    if hasattr(kind, "model_validate"):
        return kind.model_validate(fields)
    if _is_pydantic(kind):
        from pydantic import TypeAdapter

        return TypeAdapter(kind).validate_python(fields)
    return msgspec.convert(fields, kind, strict=False, dec_hook=_decode_foreign)


def raw_of(content: int, body: bytes) -> bytes:
    """Return a body as bytes: as it was sent, or the JSON of fields."""
    return _encode_json(read_fields(body)) if content == CONTENT_FIELDS else body


def shown_body(decode: Callable[[int, bytes], Any], content: int, stored: bytes) -> tuple[Any, bytes]:
    """Return a body, decoded if possible, and as bytes: a view never fails."""
    raw = stored
    try:
        raw = raw_of(content, stored)
        return decode(content, stored), raw
    except CodecError:
        return raw, raw


def packed_retry(retry: Retry) -> tuple[int, float, float, float, float, list[float] | None]:
    """Pack a retry policy."""
    if retry.delay is not None:
        raise UsageError("Retry(delay=<callable>) cannot be stored with a message: give it to the queue instead")
    if retry.only is not None or retry.never:
        raise UsageError(
            "Retry(only=..., never=...) cannot be stored with a message: exceptions are known where the handler runs. "
            "Give it to the queue or the task instead"
        )
    assert retry.attempts is not None
    delays = None if retry.delays is None else [_seconds(delay) for delay in retry.delays]
    return retry.attempts, _seconds(retry.first), retry.factor, _seconds(retry.max), retry.jitter, delays


def _seconds(value: Any) -> float:
    return float(value.total_seconds() if hasattr(value, "total_seconds") else value)


def unpacked_retry(packed: tuple[int, float, float, float, float, list[float] | None]) -> Retry:
    """Undo `packed_retry`."""
    attempts, first, factor, longest, jitter, delays = packed
    return Retry(attempts=attempts, first=first, factor=factor, max=longest, jitter=jitter, delays=delays)


def packed_repeat(repeat: Repeat) -> tuple[float, float, int | None, float]:
    """Pack a repeat rule."""
    return _seconds(repeat.first), repeat.factor, repeat.times, _seconds(repeat.max)


def unpacked_repeat(packed: tuple[float, float, int | None, float]) -> Repeat:
    """Undo `packed_repeat`."""
    first, factor, times, longest = packed
    return Repeat(first=first, factor=factor, times=times, max=longest)


def plain_part(content: int, body: bytes) -> Part:
    """Encode the part of a message without options."""
    if len(body) < LARGE_PIECE:
        return _PLAIN_HEAD + _encode_msgpack((content, body))
    return written_part(Envelope(content, body))


def written_part(
    envelope: Envelope,
    *,
    flags: int = 0,
    priority: int = 0,
    ttl: int = 0,
    dedup_for: int = 0,
    dedup: bytes = b"",
    key: bytes = b"",
) -> Part:
    """Encode the client's part of a record."""
    is_small = len(envelope.body) < LARGE_PIECE
    if is_small and not flags:
        return _HEAD.pack(VERSION, 0, priority) + _encode_envelope(envelope)
    pieces = [_HEAD.pack(VERSION, flags, priority)]
    if flags & FLAG_TTL:
        pieces.append(_US.pack(ttl))
    if flags & FLAG_DEDUP:
        pieces += [_US.pack(dedup_for), _LENGTH.pack(len(dedup)), dedup]
    if flags & FLAG_KEY:
        pieces += [_LENGTH.pack(len(key)), key]
    if is_small:
        return b"".join([*pieces, _encode_envelope(envelope)])
    return Pieces(b"".join(pieces), *_large_envelope(envelope))


def _encode_envelope(envelope: Envelope) -> bytes:
    """Encode an envelope. Fields behind the body are left out if it has none of them: the server keeps every byte."""
    if envelope.headers is None and envelope.retry is None and envelope.repeat is None:
        return _encode_msgpack((envelope.content, envelope.body))
    return _encode_msgpack(envelope)


def _large_envelope(envelope: Envelope) -> tuple[bytes, ...]:
    """Encode an envelope as the encoder does, but without a copy of its body."""
    before, _, behind = _encode_envelope(msgspec.structs.replace(envelope, body=b"")).partition(_NO_BODY)
    return before + _LARGE_HEAD.pack(_BIN_32, len(envelope.body)), envelope.body, behind


def read_stamps(record: bytes) -> tuple[int, int]:
    """Read when a message was sent and when it is due, in microseconds."""
    sent, due = STAMPS.unpack_from(record)
    return int(sent), int(due)


def has_key(record: bytes) -> bool:
    """Whether a message has a key."""
    return bool(record[_FLAGS_AT] & FLAG_KEY)


def is_repeating(record: bytes) -> bool:
    """Whether a message is sent again after its ack."""
    return bool(record[_FLAGS_AT] & FLAG_REPEAT)


def read_priority(record: bytes) -> int:
    """Read the priority. It works even if the rest of the record is damaged: the claim has checked this part."""
    return record[_STAMPED_HEAD.size - 1]


def stamped(sent: int, due: int, part: Part) -> bytes:
    """Write a record as the scripts do."""
    return STAMPS.pack(sent, due) + bytes(part)


def stored_size(part: Part) -> int:
    """Count the bytes that a record has."""
    return STAMPS.size + len(part)


def part_of(record: bytes) -> bytes:
    """Return the record without its stamps."""
    return record[STAMPS.size :]


def read_record(record: bytes) -> Record:
    """Decode a stored message."""
    try:
        sent, due, version, flags, priority = _STAMPED_HEAD.unpack_from(record)
        if version != VERSION:
            raise CodecError(f"record version {version} is unknown: it was sent by another version of Duly")
        at = _STAMPED_HEAD.size
        ttl = dedup_for = 0.0
        dedup = key = None
        if flags & FLAG_TTL:
            (ttl,) = _US.unpack_from(record, at)
            at += _US.size
        if flags & FLAG_DEDUP:
            (dedup_for,) = _US.unpack_from(record, at)
            dedup, at = _read_text(record, at + _US.size)
        if flags & FLAG_KEY:
            key, at = _read_text(record, at)
        envelope = _decode_envelope(memoryview(record)[at:])
        return Record(int(sent), int(due), flags, priority, int(ttl), int(dedup_for), dedup, key, envelope)
    except (struct.error, ValueError, OverflowError) as error:
        raise CodecError(f"the stored record is damaged: {error}") from error


def rewritten_part(stored: Record, envelope: Envelope) -> Part:
    """Encode the part of a stored message again, with another envelope."""
    return written_part(
        envelope,
        flags=stored.flags,
        priority=stored.priority,
        ttl=stored.ttl,
        dedup_for=stored.dedup_for,
        dedup=(stored.dedup or "").encode(),
        key=(stored.key or "").encode(),
    )


def read_envelope(record: bytes) -> Envelope:
    """Decode only the envelope. Workers do this with every message, and most have no options before it."""
    if not record.startswith(_NO_OPTIONS, STAMPS.size):
        return read_record(record).envelope
    try:
        return _decode_envelope(memoryview(record)[_STAMPED_HEAD.size :])
    except ValueError as error:
        raise CodecError(f"the stored record is damaged: {error}") from error


def _read_text(record: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(record, at)
    end = at + _LENGTH.size + length
    return record[at + _LENGTH.size : end].decode(), end


def read_counts(stored: bytes) -> Counts:
    """Decode a row of `counts`. An empty row, or one that another program has written, counts as zeros."""
    try:
        return _decode_counts(stored) if stored else NO_COUNTS
    except msgspec.DecodeError:
        return NO_COUNTS


def size_of_why(why: Why) -> int:
    """Return the bytes of a row of `why`, as scripts store it: without an end of 0."""
    size = len(msgspec.msgpack.encode(why))
    return size if why.result_until else size - 1


def read_why(stored: bytes) -> Why | None:
    """Decode a row of `why`; None: it is empty, or another program has written it."""
    try:
        return _decode_why(stored) if stored else None
    except msgspec.DecodeError:
        return None


def read_lease(stored: bytes) -> Lease | None:
    """Decode a row of `leases`; None: it is empty, or another program has written it."""
    if not stored:
        return None
    try:
        fence, size, flags, priority = _LEASE.unpack_from(stored)
        key, at = _read_text(stored, _LEASE.size) if flags & FLAG_KEY else (None, _LEASE.size)
        return Lease(int(fence), size, flags, priority, visible(stored[at:]).rstrip(), key)
    except (struct.error, ValueError, OverflowError):
        return None
