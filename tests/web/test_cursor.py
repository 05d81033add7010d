"""Cursors encode a position in a list of messages. All other texts are rejected."""

import base64
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import duly
from duly.errors import UsageError
from duly.message import Message
from duly.web import opaque
from duly.web.opaque import decode_cursor, encode_cursor, encode_opaque

_ANYTHING = st.one_of(
    st.text(max_size=100),
    st.binary(max_size=100).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")),
)
_SCORE = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


def _message(id_: str, state: Any, place: tuple[int, int], key: str | None) -> Message:
    return Message(id_, "q", state, None, None, {}, key, place[1], None, None, 0, 0, 0, 0, cursor=place)


def _signed(packed: bytes) -> str:
    """Forge a cursor with a valid digest."""
    return "next~" + encode_opaque(packed, opaque._CURSOR_PURPOSE)


@given(_TEXT.filter(bool), _SCORE.filter(lambda score: score != -1), st.integers(0, 9), st.none() | _TEXT)
@settings(max_examples=100, deadline=None, database=None)
def test_a_cursor_is_decoded_as_it_was_encoded(id_: str, score: int, priority: int, key: str | None) -> None:
    written = encode_cursor(_message(id_, "dead", (score, priority), key))

    found = decode_cursor(written, "dead")

    assert isinstance(found, Message)
    assert (found.id, found.cursor, found.key) == (id_, (score, priority), key)
    assert written.isascii()


@pytest.mark.parametrize("id_", ["order-17", "next", "", "AAAA", "next/~"])
def test_a_text_without_the_prefix_is_an_id(id_: str) -> None:
    assert decode_cursor(id_, "ready") == id_


def test_truncated_and_changed_texts_are_rejected() -> None:
    written = encode_cursor(_message("order-17", "ready", (1_794_821_400_000_000, 3), "user-42"))
    for at in range(len("next~"), len(written)):
        with pytest.raises(UsageError, match="not a whole cursor"):
            decode_cursor(written[:at], "ready")
    for at in range(len("next~"), len(written) - 1):  # some bits of the last character are unused
        with pytest.raises(UsageError, match="not a whole cursor"):
            decode_cursor(f"{written[:at]}{'B' if written[at] == 'A' else 'A'}{written[at + 1 :]}", "ready")


def test_a_cursor_of_another_state_is_rejected() -> None:
    written = encode_cursor(_message("order-17", "ready", (1, 0), None))
    with pytest.raises(UsageError, match="'ready' messages, not of 'dead'"):
        decode_cursor(written, "dead")


def test_the_cursor_of_an_unread_entry_has_an_entry_id() -> None:
    assert isinstance(decode_cursor(encode_cursor(_message("17-0", "ready", (-1, 0), None)), "ready"), Message)
    with pytest.raises(UsageError):
        decode_cursor(encode_cursor(_message("order-17", "ready", (-1, 0), None)), "ready")


@given(_ANYTHING)
@example("")
@example("=")
@example("AAAA\n")
@example("é" * 9)
@settings(max_examples=100, deadline=None, database=None)
def test_no_other_text_is_a_cursor(text: str) -> None:
    with pytest.raises(UsageError):
        decode_cursor("next~" + text, "ready")


_FIELDS = st.tuples(
    st.sampled_from(["ready", "parked", "late"]),
    st.sampled_from(["", "a", "17-0", "99999999999999999999-0", "\x00"]) | _TEXT,
    st.sampled_from([-(2**63), -2, -1, 0, 2**53 + 1, 2**63 - 1, 2**64 - 1]) | _SCORE | st.none(),
    st.sampled_from([-1, 0, 9, 10, 255, 256]),
    st.none() | _TEXT,
)


@pytest.mark.parametrize("state", ["ready", "parked"])
@pytest.mark.parametrize("inbox", ["queues/orders", "topics/events/groups/archive"])
async def test_any_signed_cursor_gives_a_page_or_422(
    site_app: duly.AsyncDuly,
    client: httpx.AsyncClient,
    server_app: duly.AsyncDuly,
    server_client: httpx.AsyncClient,
    inbox: str,
    state: str,
) -> None:
    asked = _signed_cursors()
    for app, caller in ((site_app, client), (server_app, server_client)):
        await _filled(app)
        for after in asked:
            response = await caller.get(f"/api/v1/{inbox}/messages", params={"state": state, "after": after})
            assert response.status_code in (200, 422), (after, response.text)


async def _filled(app: duly.AsyncDuly) -> None:
    await app.topic("events").group("archive").create()
    await app.topic("events").publish_many(range(3))
    await app.queue("orders").send_many([duly.Send(1, key="k"), duly.Send(2, key="k")])


def _signed_cursors() -> list[str]:
    found = list[str]()

    @given(_FIELDS)
    @settings(max_examples=60, deadline=None, database=None)
    def one(fields: Any) -> None:
        found.append(_signed(msgspec.msgpack.encode(fields)))

    one()
    return found
