"""What was probably meant is found, without comparing with every name that there is."""

import difflib
import random
from typing import Any

import pytest

from duly._core.naming import nearest


@pytest.mark.parametrize("asked", ["ordres", "order", "Orders", "rders", "orders-eu"])
def test_the_nearest_name_is_found_among_thousands(asked: str) -> None:
    known = sorted(["orders", *(f"queue-{number}" for number in range(3000))])
    assert nearest(asked, known) == " Did you mean 'orders'?"


def test_nothing_is_offered_where_nothing_is_near() -> None:
    assert nearest("mail", ["orders", "stock"]) == ""
    assert nearest("mail", []) == ""


def test_few_names_are_compared_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare two long names takes milliseconds, and everybody else waits meanwhile."""
    letters, compared = random.Random(7), list[int]()
    known = ["".join(letters.choices("abcdef", k=128)) for _ in range(3000)]
    compare = difflib.get_close_matches

    def counted(word: str, names: Any, *more: Any) -> Any:
        compared.append(len(names))
        return compare(word, names, *more)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    nearest("".join(letters.choices("abcdef", k=128)), known)
    assert compared == [20]
