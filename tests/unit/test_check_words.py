"""The report of phrases to avoid reads prose and nothing else."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tools import check_words
from tools.check_words import Prose, hits_in, prose_of_lua, prose_of_page, prose_of_python, prose_of_template

PYTHON = '''"""Tell what is taken."""

tell = {"tell": 1, "anew": "made anew # whoever"}  # nobody
# The answer comes by
# itself, and it is no
# error.
text = f"{tell} is mended {tell!r:>10} in vain, too"
code = "`nobody` calls `tell()`"
def test_what_waits_is_told(whoever): ...
'''
LUA = """--[[ Nobody looks. ]]
local look = redis.error_reply("ERR nobody holds it")
-- The key is made
-- anew.
return 'anew'
"""
TEMPLATE = """<p class="so many">{{ tell }} so
many {% if nobody %}</p>
{# somebody #}"""
PAGE = """# What waits

A message is `mended`, see [the page](mended.md#anew).

```python
nobody()  # anew
```

- It is made
  anew.
- Who waits gets it.

| call | what is returned |
"""

Reader = Callable[[str], Iterator[Prose]]


@pytest.mark.parametrize(
    ("reader", "source", "expected"),
    [
        (
            prose_of_python,
            PYTHON,
            {("tell", 1), ("what is", 1), ("anew", 3), ("whoever", 3), ("somebody", 3), ("itself", 4), ("is no", 5)}
            | {("mend", 7), ("in vain", 7), ("too", 7), ("what is", 9), ("tell", 9)},
        ),
        (prose_of_lua, LUA, {("somebody", 1), ("look", 1), ("somebody", 2), ("anew", 4)}),
        (prose_of_template, TEMPLATE, {("so many", 1), ("somebody", 3)}),
        (prose_of_page, PAGE, {("what is", 1), ("anew", 10), ("what is", 11), ("what is", 13)}),
    ],
)
def test_phrases_are_found_in_comments_texts_pages_and_test_names_with_their_lines(
    reader: Reader, source: str, expected: set[tuple[str, int]]
) -> None:
    found = [hit for prose in reader(source) for hit in hits_in(prose)]
    assert sorted((hit.name, hit.line) for hit in found) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        "What does it return? See what happens.",
        "There is no key, and it is no longer needed.",
        "Look up the name. It looks like an id. A look-up is fast.",
        "It ran so long that it was killed.",
        "Besides, the sheet amends the mission.",
        "The fault is named `x` or leased to nobody, and the lane k belongs to nobody.",
    ],
)
def test_plain_english_is_not_counted(text: str) -> None:
    assert list(hits_in(Prose(text, 1))) == []


@pytest.mark.parametrize("text", ["What waits is due.", "It is due. Who waits gets it.", "Return what is due."])
def test_a_relative_clause_without_a_noun_counts_once(text: str) -> None:
    assert [hit.name for hit in hits_in(Prose(text, 1))] == ["what is"]


def test_a_part_above_its_ceiling_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_words, "CEILINGS", {"worker": 2, "web": 1})
    counts = {"worker": Counter(tell=2), "web": Counter(say=1, anew=1), "new": Counter(tell=1)}
    assert [problem.partition(":")[0] for problem in check_words.above(counts)] == ["new", "web"]
    assert check_words.table(counts).splitlines()[-1].split() == ["all", "1", "3", "1", "5", "3"]
