"""The name that was probably meant is found, without comparing with every name."""

import difflib
import random
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import duly
from duly._core.naming import nearest


@pytest.mark.parametrize("asked", ["ordres", "order", "Orders", "rders", "orders-eu"])
def test_the_nearest_name_is_found_among_thousands(asked: str) -> None:
    known = sorted(["orders", *(f"queue-{number}" for number in range(3000))])
    assert nearest(asked, known) == " Did you mean 'orders'?"


def test_nothing_is_offered_where_nothing_is_near() -> None:
    assert nearest("mail", ["orders", "stock"]) == ""
    assert nearest("mail", []) == ""


def test_few_names_are_compared_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare two long names takes milliseconds, and all other tasks wait."""
    letters, compared = random.Random(7), list[int]()
    known = ["".join(letters.choices("abcdef", k=128)) for _ in range(3000)]
    compare = difflib.get_close_matches

    def counted(word: str, names: Any, *more: Any) -> Any:
        compared.append(len(names))
        return compare(word, names, *more)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    nearest("".join(letters.choices("abcdef", k=128)), known)
    assert compared == [20]


def _send_what_does_not_fit(app: duly.Duly) -> None:
    @app.task
    def welcome(user: int) -> None: ...

    welcome.send("ann")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda app: app.queue("orders", lease=-1),
        lambda app: app.queue("orders").send(1, delay=-1),
        lambda app: app.schedule("s", "orders", 1, every=-1),
        _send_what_does_not_fit,
    ],
    ids=["queue", "send", "schedule", "task"],
)
def test_misuse_has_one_traceback(misuse: Callable[[duly.Duly], object]) -> None:
    with pytest.raises(duly.UsageError) as caught:
        misuse(duly.Duly("memory://"))

    assert "".join(traceback.format_exception(caught.value)).count("Traceback (most recent call last)") == 1
