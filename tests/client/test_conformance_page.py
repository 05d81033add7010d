"""docs/conformance.md lists every test of the public API."""

from tests.client.conformance import FOLDER, PAGE, cases, page


def test_every_case_is_listed() -> None:
    text = PAGE.read_text()

    for path in (FOLDER / "_async").glob("test_*.py"):
        missing = [case.name for case in cases(path.read_text()) if f"`{case.name}`" not in text]
        assert missing == [], "run `make gen`"


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == page(), "run `make gen`"


def test_no_fact_is_stated_twice() -> None:
    names = [case.name for path in (FOLDER / "_async").glob("test_*.py") for case in cases(path.read_text())]

    assert sorted(names) == sorted(set(names))
