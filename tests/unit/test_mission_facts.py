"""Lines of docs/mission.md that no other test holds and that need no server."""

import asyncio
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


def test_each_message_shows_when_it_was_sent_when_it_was_leased_and_its_deadline(
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


def test_a_producer_continues_while_a_consumer_finishes_nothing(queue: duly.Queue) -> None:
    """001-1."""
    queue.send("slow")
    (held,) = queue.receive(wait=0)

    for number in range(2000):
        queue.send(number)

    assert queue.stats().ready == 2000
    held.ack()
    assert [delivery.body for delivery in queue.receive(1000, wait=0)] == list(range(1000))


def test_ids_of_all_processes_sort_by_their_time() -> None:
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


STOCK = [("set", 10), ("take", 5), ("read", 0), ("take", 2), ("read", 0), ("set", 5), ("set", 3), ("read", 0)]


@pytest.mark.parametrize("seed", range(5))
def test_stock_changes_of_a_key_are_applied_in_order_by_any_consumer(frozen: Clock, seed: int) -> None:
    """001-2: four consumers take what they get, fail as they like, and get round to it in any order."""
    chance, left, read = random.Random(seed), dict[str, int](), list[tuple[str, int]]()
    queue = duly.Duly("memory://").queue("stock", retry=duly.Retry(attempts=1000))
    queue.send_many([duly.Send(change, key=item) for change in STOCK for item in ("tea", "cups")])

    while queue.stats().live:
        taken = [delivery for _ in range(4) for delivery in queue.receive(limit=2, wait=0)]
        chance.shuffle(taken)
        for delivery in taken:
            if chance.random() < 0.3:
                delivery.retry(delay=0)
                continue
            (what, count), item = delivery.body, delivery.key
            assert item is not None
            if what == "read":
                read.append((item, left[item]))
            else:
                left[item] = count if what == "set" else left[item] - count
            delivery.ack()
        frozen.advance(1)

    for item in ("tea", "cups"):
        assert [number for whose, number in read if whose == item] == [5, 3, 3]
        assert left[item] == 3


def test_each_message_appears_in_the_queue_it_is_for_after_its_own_delay(frozen: Clock) -> None:
    """004-10: the one who sends names the queue, and so does a message that sends others on."""
    app = duly.Duly("memory://")
    orders, closing, mails = app.queue("orders"), app.queue("closing"), app.queue("mails")
    orders.send("order 1", delay=10)

    frozen.advance(9.999)
    assert orders.receive(wait=0) == []
    frozen.advance(0.001)
    (order,) = orders.receive(wait=0)
    order.commit(
        send=[
            (closing, duly.Send("close order 1", delay=10)),
            (closing, duly.Send("remind of order 1", delay=5)),
            (mails, duly.Send("thank you", delay=1)),
        ]
    )

    found = []
    frozen.advance(0.01)  # calls of one moment are a microsecond apart
    for second in range(12):
        found += [(second, d.queue, d.body) for queue in (orders, closing, mails) for d in queue.receive(wait=0)]
        frozen.advance(1)
    assert found == [
        (1, "mails", "thank you"),
        (5, "closing", "remind of order 1"),
        (10, "closing", "close order 1"),
    ]


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
        pytest.param(
            "docs/receiving.md", "Leases, renewal, fencing", r"without renewal .* lease .* longer", id="000-9",
        ),
        pytest.param(
            "docs/order.md", "Why parallel consumers lose the order", r"deliveries are in order, but the work overlaps",
            id="001-2 many",
        ),
        pytest.param(
            "docs/order.md", "Absolute values or changes", r"absolute values: .* the older value wins",
            id="001-3 values",
        ),
        pytest.param(
            "docs/order.md", "Absolute values or changes", r"changes: .* the sum is right in the end",
            id="001-3 changes",
        ),
        pytest.param(
            "docs/order.md", "Absolute values or changes", r"both need order if any program reads between",
            id="001-3 reads",
        ),
        pytest.param("docs/locks.md", "When the lock is busy", r"do not sleep in a handler", id="002-5 sleeping"),
        pytest.param("README.md", "Guarantees", r"delivery is \*at least once\*", id="003-3 at least once"),
        pytest.param(
            "docs/receiving.md", "Leases, renewal, fencing",
            r"is frozen for longer than its lease .* does not notice",
            id="003-3 a lost lease",
        ),
        pytest.param(
            "README.md", "Guarantees", r"redelivered until a consumer acks it, for as long as the server keeps",
            id="003-22 the guarantee",
        ),
        pytest.param(
            "docs/inspecting.md", "Audit", r"finds what other programs did to the keys", id="003-22 the exception",
        ),
    ],
)  # fmt: skip
def test_the_documentation_has_the_words(page: str, heading: str, words: str) -> None:
    assert re.search(words, section(page, heading), re.IGNORECASE)


async def test_events_of_all_workers_are_counted_and_named_for_other_clients() -> None:
    """003-21: counters, and a timeline for each message with the worker of each event."""
    both, met = [0], asyncio.Event()

    def with_handler() -> duly.AsyncDuly:
        app = duly.AsyncDuly("memory://events")

        @app.queue("orders", done=duly.Keep(count=10), retry=duly.Retry(2, delays=[0])).handler
        async def handle(body: str) -> None:
            if body == "meets":  # one in each worker
                both[0] += 1
                if both[0] == 2:
                    met.set()
                await met.wait()
            else:
                raise ValueError(body)

        return app

    async with duly.AsyncDuly("memory://events") as client, with_handler() as one, with_handler() as other:
        queue = client.queue("orders")
        good = [await queue.send("meets") for _ in range(2)]
        async with duly.Worker(one, concurrency=1), duly.Worker(other, concurrency=1):
            await asyncio.wait_for(met.wait(), 60)
            bad = await queue.send("fails")
            async with asyncio.timeout(60):
                while (stats := await queue.stats()).dead < 1 or stats.acked < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while len(workers := {each.id for each in await client.workers()}) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        events = [event for id_ in (*good, bad) for event in (await queue.get(id_)).timeline]  # type: ignore[union-attr]

    assert (stats.sent, stats.acked, stats.retried, stats.dead) == (3, 2, 1, 1)
    assert {event.what for event in events} == {"sent", "claimed", "ack", "retry", "fail"}
    assert {event.consumer for event in events if event.what == "ack"} == workers
