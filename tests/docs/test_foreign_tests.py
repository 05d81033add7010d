"""The pages name each test of another project that may fail."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tools import test_foreign as of_celery
from tools import test_foreign_dramatiq as of_dramatiq

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("language", [".", "zh"])
@pytest.mark.parametrize(("page", "tests"), [("celery", of_celery.KNOWN), ("dramatiq", of_dramatiq.KNOWN)])
def test_a_page_names_exactly_the_tests_that_may_fail(language: str, page: str, tests: Iterable[str]) -> None:
    lines = (DOCS / language / f"{page}.md").read_text().splitlines()
    named = {line.split("`")[1] for line in lines if line.startswith("| `test_")}

    assert named == {test.rpartition("::")[2] for test in tests}
