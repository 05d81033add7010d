"""Results of handlers, as they are stored: one letter and a text. See section 6 of docs/protocol.md."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from duly._core import codec
from duly._core.outcome_rules import storable
from duly.errors import CodecError, HandlerFailed, ResultGone, UsageError

if TYPE_CHECKING:
    from duly._core.views import End

RECHECK: Final = 5.0
"""Seconds after which a waiting caller checks again: not every end is reported, and a reply may be lost."""

REGISTERED: Final = 60.0
"""Seconds after which the server forgets a waiting caller. The caller registers again long before."""

_decode_results: Final = msgspec.msgpack.Decoder(list[str]).decode


def packed_result(value: Any, most: int) -> str:
    """Pack a result of at most `most` bytes. If it cannot be stored, the reason is packed instead: this never fails."""
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            raw = bytes(value)
            text = "b" + b64encode(raw).decode()
        else:
            raw = codec.encoded_json(value, "a result", "kept")
            text = "j" + raw.decode()
    except UsageError as error:
        return "e" + storable(str(error))
    except Exception as error:  # noqa: BLE001 - a model of the user's own may raise anything
        return "e" + storable(f"a result of type {type(value).__name__} cannot be kept: {type(error).__name__}")
    if len(raw) > most:
        return (
            f"ea result of {len(raw)} bytes is over max_message_bytes={most}: store it elsewhere and return its place"
        )
    return text


def packed_results(results: Sequence[str]) -> bytes:
    """Pack the results of several messages as one argument of a script."""
    return msgspec.msgpack.encode(results)


def unpacked_results(packed: bytes) -> list[str]:
    """Undo `packed_results`."""
    return _decode_results(packed)


def refusal_of(packed: str) -> str | None:
    """Return why a result was not stored; None: it was."""
    return packed[1:] if packed.startswith("e") else None


def unpacked_result(packed: str) -> Any:
    """Undo `packed_result`. Raises CodecError."""
    kind, text = packed[:1], packed[1:]
    try:
        if kind == "j":
            return codec.decoder_of(None)(codec.CONTENT_JSON, text.encode())
        if kind == "b":
            return b64decode(text, validate=True)
    except (CodecError, binascii.Error) as error:
        raise CodecError(f"the stored result is damaged: {error}") from error
    if not kind:
        return None
    raise CodecError(
        text if kind == "e" else f"a result of kind {kind!r} is unknown: it is from another version of Duly"
    )


def result_of(queue: str, id_: str, end: "End") -> Any:
    """Return the result of a message that has ended, or raise an error that describes how it ended."""
    message, which = end.message, f"message {id_} of queue {queue!r}"
    if message is None:
        raise ResultGone(
            f"{which} is unknown: it was never sent, or was cancelled, purged, expired or trimmed, or was finished "
            "and its queue has no done=Keep(...). Check the id, or keep finished messages for longer"
        )
    if message.state == "dead":
        error = f", last error: {message.errors[-1].error}" if message.errors else ""
        raise HandlerFailed(
            f"{which} is dead: {message.reason}{error}. get() shows its history, redrive() delivers it again",
            message=message,
        )
    try:
        return unpacked_result(end.result)
    except CodecError as error:
        raise CodecError(f"{which} is finished, but there is no result: {error}") from error
