"""Lines of docs/mission.md that no other test holds and that need no server."""

import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly
from duly._core.ids import IdMaker
from duly.memory.clock import Clock
from duly.testing import clock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def frozen() -> Iterator[Clock]:
    clock.freeze()
    yield clock
    clock.reset()


@pytest.fixture
def queue() -> duly.Queue:
    return duly.Duly("memory://").queue("orders", lease=10)


def test_each_message_tells_when_it_was_sent_when_it_was_leased_and_its_deadline(
    frozen: Clock, queue: duly.Queue
) -> None:
    """000-11: a fence is the time of the claim."""
    sent_at = frozen.now_us()
    queue.send("body")
    frozen.advance(5)
    (delivery,) = queue.receive(wait=0)

    message = queue.get(delivery.id)

    assert message is not None
    assert message.sent_at is not None
    assert message.deadline is not None
    times = [message.sent_at.timestamp(), delivery.fence / 1e6, message.deadline.timestamp()]
    assert times == pytest.approx([sent_at / 1e6, sent_at / 1e6 + 5, sent_at / 1e6 + 15], abs=0.001)


@pytest.mark.parametrize("crash_limit", [1, 3], ids=["dead", "delivered again"])
def test_every_reclaimed_message_has_a_log_line_with_its_consumer_and_age_and_is_counted(
    frozen: Clock, caplog: pytest.LogCaptureFixture, crash_limit: int
) -> None:
    """000-15."""
    queue = duly.Duly("memory://").queue("orders", crash_limit=crash_limit)
    ids = queue.send_many(range(3))
    (holder,) = {queue.get(held.id).consumer for held in queue.receive(wait=0, lease=10)}  # type: ignore[union-attr]
    frozen.advance(12)

    with caplog.at_level(logging.WARNING, "duly"):
        queue.receive(wait=0)

    words = re.compile(r"message (\S+) .* ran out ([\d.]+) s ago, held by (\S+):")
    assert [words.findall(record.getMessage()) for record in caplog.records] == [
        [(id_, "2.000", holder)] for id_ in ids
    ]
    assert queue.stats().crashed == 3


def test_a_producer_goes_on_while_a_consumer_finishes_nothing(queue: duly.Queue) -> None:
    """001-1."""
    queue.send("slow")
    (held,) = queue.receive(wait=0)

    for number in range(2000):
        queue.send(number)

    assert queue.stats().ready == 2000
    held.ack()
    assert [delivery.body for delivery in queue.receive(1000, wait=0)] == list(range(1000))


def test_ids_sort_by_the_time_at_which_they_were_made_whoever_made_them() -> None:
    """001-5."""
    makers = [IdMaker(random.Random(seed).randbytes(11)) for seed in range(20)]
    moments = [1_790_000_000_000 + 7 * number for number in range(2000)]

    ids = [random.Random(moment).choice(makers).make(moment) for moment in moments]

    assert ids == sorted(set(ids))


def test_ids_made_in_one_moment_differ_and_those_of_one_process_keep_their_order() -> None:
    """001-5."""
    makers = [IdMaker(random.Random(seed).randbytes(11)) for seed in range(20)]

    ids = [[maker.make(1_790_000_000_000) for _ in range(500)] for maker in makers]

    assert all(each == sorted(each) for each in ids)
    assert len({id_ for each in ids for id_ in each}) == 10_000


def test_a_clock_that_steps_back_makes_no_id_that_sorts_before_an_earlier_one() -> None:
    """001-5."""
    maker = IdMaker(bytes(range(11)))

    ids = [maker.make(moment) for moment in (5000, 4000, 4999, 5000, 5001)]

    assert ids == sorted(set(ids))


def section(page: str, heading: str) -> str:
    """Read a section of a page as one line."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    assert found, f"{page} has no section {heading!r}"
    return " ".join(found[1].split())


@pytest.mark.parametrize(
    ("page", "heading", "words"),
    [
        pytest.param("docs/guide.md", "Leases, renewal, fencing", r"without renewal .* lease .* longer", id="000-9"),
        pytest.param("docs/guide.md", "Order", r"messages set values: .* leaves 5\b", id="001-3 absolute values"),
        pytest.param("docs/guide.md", "Order", r"the difference .* in any order", id="001-3 differences"),
        pytest.param("docs/guide.md", "Order", r"a reader in between still sees", id="001-3 reads in between"),
        pytest.param("README.md", "What you can rely on", r"this is \*at least once\*", id="003-3 at least once"),
        pytest.param(
            "docs/guide.md", "Leases, renewal, fencing", r"stands still for longer than its lease .* does not know it",
            id="003-3 a lost lease",
        ),
        pytest.param(
            "README.md", "What you can rely on", r"comes again until somebody finishes it, as long as the server keeps",
            id="003-22 the guarantee",
        ),
        pytest.param("docs/guide.md", "Audit", r"finds what other programs did to the keys", id="003-22 the exception"),
    ],
)  # fmt: skip
def test_the_documentation_says(page: str, heading: str, words: str) -> None:
    assert re.search(words, section(page, heading), re.IGNORECASE)
