"""The client's part of a record is written as the protocol has it, with bodies of any size."""

from typing import Any

import msgspec
import pytest

from duly._core import codec
from duly._core.pieces import LARGE_PIECE, Pieces

ENVELOPES: list[dict[str, Any]] = [
    {},
    {"headers": {"a": "b"}},
    {"retry": (3, 1.0, 2.0, 60.0, 0.0, [1.0, 2.0]), "repeat": (1.0, 1.0, None, 60.0)},
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"priority": 9},
    {"flags": codec.FLAG_TTL | codec.FLAG_DEDUP | codec.FLAG_KEY, "ttl": 5, "dedup_for": 7, "dedup": b"d", "key": b"k"},
]


@pytest.mark.parametrize("size", [0, 1, 255, 256, LARGE_PIECE - 1, LARGE_PIECE, LARGE_PIECE + 1, 1_000_000])
@pytest.mark.parametrize("content", [codec.CONTENT_BYTES, codec.CONTENT_JSON, codec.CONTENT_FIELDS])
@pytest.mark.parametrize("rest", ENVELOPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_body_of_any_size_is_written_as_the_encoder_does(
    size: int, content: int, rest: dict[str, Any], options: dict[str, Any]
) -> None:
    envelope = codec.Envelope(content, b"\xc4\x00" * (size // 2) + b"x" * (size % 2), **rest)

    record = codec.stamped(1, 2, codec.written_part(envelope, **options))

    assert record.endswith(msgspec.msgpack.encode(envelope if rest else (envelope.content, envelope.body)))
    read = codec.read_record(record)
    assert (read.envelope, read.flags, read.priority) == (envelope, options.get("flags", 0), options.get("priority", 0))


@pytest.mark.parametrize("size", [0, 1, LARGE_PIECE, 1_000_000])
def test_a_plain_part_is_that_of_a_message_without_options(size: int) -> None:
    part = codec.plain_part(codec.CONTENT_JSON, b"x" * size)

    assert bytes(part) == bytes(codec.written_part(codec.Envelope(codec.CONTENT_JSON, b"x" * size)))


def test_an_envelope_of_an_earlier_version_has_all_fields() -> None:
    stored = b"\0" * 16 + b"\1\0\0" + msgspec.msgpack.encode((codec.CONTENT_JSON, b"1", None, None, None))

    assert codec.read_envelope(stored) == codec.Envelope(codec.CONTENT_JSON, b"1")


def test_a_large_body_is_not_copied() -> None:
    body = b"x" * LARGE_PIECE

    part = codec.written_part(codec.Envelope(codec.CONTENT_BYTES, body, {"a": "b"}), flags=codec.FLAG_KEY, key=b"k")

    assert isinstance(part, Pieces)
    assert any(piece is body for piece in part.pieces)
    assert codec.stored_size(part) == len(codec.stamped(1, 2, part))
