"""The page on testing is a file of tests: pytest runs it as a reader would."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/testing.md", "docs/zh/testing.md"])
def test_the_tests_of_the_page_pass(page: str, pytester: pytest.Pytester) -> None:
    code = "\n\n".join(BLOCK.findall((ROOT / page).read_text()))
    pytester.makepyfile(test_page=code)
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    tests = len(re.findall(r"^(?:async )?def test_", code, re.MULTILINE))
    assert tests >= 15
    result.assert_outcomes(passed=tests)
