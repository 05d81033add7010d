"""The table of explain() is complete: each row is a sentence that occurs, and none is missing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly
from duly.testing import clock

ROOT = Path(__file__).parents[2]
PAGES = ["docs/inspecting.md", "docs/zh/inspecting.md"]
ROW = re.compile(r"^\| .* \| `((?:is|was|has been) .*)` \|$", re.MULTILINE)
TURN = r"(?:, first in line|, behind \d+ others?)"


def pattern_of(row: str) -> re.Pattern[str]:
    """Make a pattern of a row: `<anything>`, any number, and both forms of the position in the line."""
    pattern = re.escape(row)
    for shown in (", first in line", ", behind 7 others"):
        pattern = pattern.replace(re.escape(shown), TURN)
    pattern = re.sub(r"<[^>]*>", ".+?", pattern)
    return re.compile(re.sub(r"(?<![\\\w])\d+(?!\w)", r"\\d+", pattern))


@pytest.fixture
def app() -> Iterator[duly.Duly]:
    with duly.Duly("memory://") as app:
        clock.freeze()
        yield app
    clock.reset()


def sentences(app: duly.Duly) -> Iterator[str]:
    """Bring messages into every state that explain() distinguishes, and call it."""
    later = app.queue("later")
    yield later.explain(later.send("later", delay=60))
    yield later.explain("nobody")

    plain = app.queue("plain", retry=duly.Retry(attempts=2, first=60), done=duly.Keep(count=10))
    ready = plain.send("now")
    yield plain.explain(ready)
    plain.pause()
    yield plain.explain(ready)
    plain.resume()
    [d] = plain.receive(wait=0)
    yield plain.explain(ready)
    d.retry(error="no answer")
    yield plain.explain(ready)
    clock.advance(120)
    plain.receive(wait=0)[0].retry(error="no answer")
    yield plain.explain(ready)
    finished = plain.send("done")
    plain.receive(wait=0)[0].ack()
    yield plain.explain(finished)

    busy = app.queue("busy")
    deferred = busy.send("busy")
    for _ in range(2):
        clock.advance(61)
        busy.receive(wait=0)[0].defer(60)
    yield busy.explain(deferred)
    clock.advance(61)
    busy.receive(wait=0)[0].defer(60, "the shop is closed")
    yield busy.explain(deferred)

    few = app.queue("few", max_in_flight=1)
    slow = app.queue("slow", rate="1/s")
    for limited in (few, slow):
        ids = limited.send_many(["a", "b"])
        limited.receive(wait=0)
        yield limited.explain(ids[1])

    shared = app.queue("shared", retry_share=0.5)
    yield shared.explain(shared.send_many(["a", "b"])[1])

    suspect = app.queue("suspect", crash_limit=2)
    id_ = suspect.send("kills")
    suspect.receive(wait=0)
    clock.advance(31)
    yield suspect.explain(id_)
    suspect.receive(wait=0)[0].release()
    yield suspect.explain(id_)

    yield from sentences_of_lanes(app)


def sentences_of_lanes(app: duly.Duly) -> Iterator[str]:
    """Bring messages behind others of their key, and ask."""
    pair = [duly.Send("a", key="k"), duly.Send("b", key="k")]
    lane, blocking = app.queue("lane"), app.queue("blocking", on_dead="block")
    _, second = lane.send_many(pair)
    lane.receive(wait=0)
    yield lane.explain(second)
    _, second = blocking.send_many(pair)
    [d] = blocking.receive(wait=0)
    yield blocking.explain(second)
    d.reject("no use")
    yield blocking.explain(second)

    waiting = app.queue("waiting")
    _, second = waiting.send_many(pair)
    waiting.receive(wait=0)[0].retry(delay=60)
    yield waiting.explain(second)


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_sentences_is_true_and_complete(page: str, app: duly.Duly) -> None:
    rows = ROW.findall((ROOT / page).read_text())
    said = [re.sub(r"^message \S+ of queue '\S+' (.*)\.$", r"\1", sentence) for sentence in sentences(app)]

    assert len(rows) == len(said)
    assert [row for row in rows if not any(pattern_of(row).fullmatch(each) for each in said)] == []
    assert [each for each in said if not any(pattern_of(row).fullmatch(each) for row in rows)] == []


def test_a_false_row_is_found() -> None:
    row = pattern_of("has been ready since <time>, behind 7 others: it is delivered when a consumer asks for messages")

    first = "has been ready since 2026-11-16, first in line"
    assert row.fullmatch(f"{first}: it is delivered when a consumer asks for messages")
    assert not row.fullmatch(f"{first}: it is delivered tomorrow")
