"""Names of other frameworks become names of Duly, and back."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duly import InvalidName
from duly._core.foreign_names import decoded, encoded
from duly.options import is_name


@pytest.mark.parametrize("name", ["celery", "my_queue", "a.b-c_d", "mail_xl", "x", "0"])
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    assert encoded(name) == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("celery@host.celery.pidbox", "celery_x40host.celery.pidbox"),
        ("a:b/c", "a_x3ab_x2fc"),
        ("é", "n_x-_xc3_xa9"),
        (".hidden", "n_x-.hidden"),
        ("a_x40b", "a_x5fx40b"),
        ("n_x-a", "n_x5fx-a"),
    ],
)
def test_other_characters_are_escaped(name: str, text: str) -> None:
    assert encoded(name) == text
    assert decoded(text) == name


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("_x-4an0."), min_size=1, max_size=7))
@example("_x5f")
@example("n_x-n_x-")
@example("__x2e")
@example("_x")
def test_every_name_returns_unchanged(name: str) -> None:
    assert is_name(encoded(name))
    assert decoded(encoded(name)) == name


@pytest.mark.parametrize("name", ["", "a" * 129, "@" * 40])
def test_a_name_that_is_empty_or_too_long_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="empty or too long"):
        encoded(name)
