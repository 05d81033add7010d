"""Which dead letters are meant, without a server."""

import re
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duly
from duly.message import Failure, Message
from duly.selection import checked_function, selection_of

DIED = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def failure(error: str) -> Failure:
    return Failure(DIED, 1, "c", error, "Traceback")


LETTER = Message(
    id="a",
    queue="orders",
    state="dead",
    body=1,
    raw=b"1",
    headers={"tenant": "acme", "kind": "mail"},
    key="customer-17",
    priority=0,
    sent_at=DIED,
    due_at=DIED,
    failures=2,
    crashes=0,
    defers=0,
    releases=0,
    reason="failed at attempt 2 of 2",
    finished_at=DIED,
    errors=(failure("KeyError: 'x'"), failure("TimeoutError: the bank\nsent [nothing] (yet)")),
)
BARE = replace(LETTER, headers={}, key=None, errors=(), reason="poison")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"error": "TimeoutError"},
        {"error": "sent [nothing]"},
        {"error": "Timeout*"},
        {"error": "*bank*(yet)"},
        {"error": "*"},
        {"reason": "failed"},
        {"reason": "failed at *"},
        {"since": DIED},
        {"since": DIED.timestamp()},
        {"since": DIED.astimezone(timezone(timedelta(hours=8)))},
        {"until": DIED + timedelta(microseconds=1)},
        {"since": DIED, "until": DIED + timedelta(seconds=1)},
        {"headers": {"tenant": "acme"}},
        {"headers": {"tenant": "acme", "kind": "mail"}},
        {"headers": {}},
        {"key": "customer-17"},
        {"key": "customer-*"},
        {"key": "*"},
        {"ids": ["a", "b"]},
        {"ids": {"a"}, "error": "bank", "key": "c*", "headers": {"kind": "mail"}},
    ],
    ids=str,
)
def test_a_letter_is_meant(given: dict[str, Any]) -> None:
    assert duly.Where(**given).matches(LETTER)
    assert selection_of(given)(LETTER)
    assert selection_of(duly.Where(**given))(LETTER)


@pytest.mark.parametrize(
    "given",
    [
        {"error": "KeyError"},  # not the last one
        {"error": "timeouterror"},
        {"error": "bank*"},  # a pattern is all of it
        {"error": "Timeout?rror*"},
        {"reason": "poison"},
        {"reason": "failed*x"},
        {"since": DIED + timedelta(microseconds=1)},
        {"until": DIED},
        {"headers": {"tenant": "other"}},
        {"headers": {"tenant": "acme", "colour": "red"}},
        {"key": "customer"},
        {"key": "customer-1"},
        {"key": "customer-*9"},
        {"ids": ["b"]},
        {"ids": []},
        {"error": "bank", "ids": ["b"]},
    ],
    ids=str,
)
def test_a_letter_is_not_meant(given: dict[str, Any]) -> None:
    assert not duly.Where(**given).matches(LETTER)


@pytest.mark.parametrize("given", [{"error": "*"}, {"key": "*"}, {"headers": {"tenant": "acme"}}], ids=str)
def test_a_field_that_a_letter_lacks_does_not_match(given: dict[str, Any]) -> None:
    assert not duly.Where(**given).matches(BARE)
    assert duly.Where(reason="poison").matches(BARE)


@given(st.text("ab*", max_size=8).filter("".__ne__), st.text("ab\n", max_size=12))
def test_a_star_stands_for_anything(pattern: str, key: str) -> None:
    is_meant = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), key, re.DOTALL) is not None
    assert duly.Where(key=pattern).matches(replace(LETTER, key=key)) == is_meant


def test_many_stars_take_no_time() -> None:
    """To try all divisions of such a text would take forever."""
    assert not duly.Where(reason="*a" * 100 + "*b").matches(replace(LETTER, reason="a" * 10_000))


def test_a_message_that_did_not_die_has_no_time_of_death() -> None:
    assert not duly.Where(since=0).matches(replace(LETTER, finished_at=None))


@pytest.mark.parametrize(
    "given",
    [
        {"error": ""},
        {"error": 5},
        {"reason": b"x"},
        {"key": ""},
        {"since": "yesterday"},
        {"since": datetime(2026, 5, 1)},  # noqa: DTZ001
        {"until": True},
        {"headers": ["tenant"]},
        {"headers": {"tenant": 5}},
        {"ids": "a"},
        {"ids": [5]},
        {"ids": 5},
        {"colour": "red"},
        {5: "red"},
    ],
    ids=str,
)
def test_a_selection_that_makes_no_sense_is_refused(given: dict[Any, Any]) -> None:
    with pytest.raises(duly.UsageError):
        selection_of(given)


async def _later(_: Message) -> bool:
    return True


@pytest.mark.parametrize("given", ["x", 5, ["a"], _later, duly.Where])
def test_a_filter_that_selects_nothing_is_refused(given: Any) -> None:
    with pytest.raises(duly.UsageError, match="where"):
        selection_of(given)


@pytest.mark.parametrize("given", [_later, dict, "x"])
def test_only_a_plain_function_is_one(given: Any) -> None:
    with pytest.raises(duly.UsageError, match="edit must be"):
        checked_function(given, "edit", "a function")
    assert callable(checked_function(len, "edit", "a function"))


def test_a_function_selects_and_nothing_means_all() -> None:
    assert selection_of(lambda message: message.failures == 2)(LETTER)
    assert not selection_of(lambda message: message.failures == 3)(LETTER)
    assert selection_of(None)(BARE)


def test_a_selection_is_a_frozen_value() -> None:
    headers = {"tenant": "acme"}
    where = duly.Where(headers=headers, ids=["b", "a"])
    headers["tenant"] = "other"

    assert where == duly.Where(headers={"tenant": "acme"}, ids={"a", "b"})
    with pytest.raises(FrozenInstanceError):
        where.error = "x"  # type: ignore[misc]
