"""retry_share: while new messages and retries are due, each kind gets its share, however many the other has."""

from typing import Any

import pytest

from duly._core import codec, ops
from duly.options import QueueOptions
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of

WAVE = 3000


@pytest.fixture
def shared(queue: Queue) -> Queue:
    """Give a queue that shares deliveries half and half."""
    queue.options = QueueOptions(retry_share=0.5)
    return queue


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}{n:05}" for n in range(count)]


def send(queue: Queue, ids: list[str], **options: Any) -> None:
    for start in range(0, len(ids), 1000):
        queue.send(*ids[start : start + 1000], **options)


def fail(queue: Queue, ids: list[str], delay: float = 0) -> None:
    """Send messages, deliver them, and retry them after a delay."""
    send(queue, ids)
    for start in range(0, len(ids), 1000):
        claimed = queue.claim(1000)
        assert ids_of(claimed) == ids[start : start + 1000]
        held = [ops.Settle(id_, claimed.fence, has_key=False) for id_ in ids_of(claimed)]
        queue.call(ops.retry(queue.keys, [(settle, delay, "boom", "") for settle in held]))


def drained(queue: Queue, limit: int, times: int) -> list[str]:
    return [id_ for _ in range(times) for id_ in ids_of(queue.claim(limit))]


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_wave_of_retries_leaves_new_messages_their_share(shared: Queue, clock: ServerClock, limit: int) -> None:
    retries, new = names("r", WAVE), names("n", 50)
    fail(shared, retries)
    clock.freeze(NOW + SECOND)
    send(shared, new)
    found = drained(shared, limit, 1 + WAVE // 500)  # a claim searches 500 messages for each kind
    got = found + drained(shared, limit, -(-120 // limit))
    assert [id_ for id_ in got if id_ in retries] == retries[: len([id_ for id_ in got if id_ in retries])]
    assert [id_ for id_ in got if id_ in new] == new, "new messages wait behind the wave, or out of order"


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_flood_of_new_messages_leaves_retries_their_share(shared: Queue, clock: ServerClock, limit: int) -> None:
    new, retries = names("n", WAVE), names("r", 50)
    fail(shared, retries, delay=1)
    send(shared, new)  # all are due before the retries
    clock.freeze(NOW + 2 * SECOND)
    found = drained(shared, limit, 1 + WAVE // 500)
    got = found + drained(shared, limit, -(-120 // limit))
    assert [id_ for id_ in got if id_ in retries] == retries
    assert [id_ for id_ in got if id_ in new] == new[: len([id_ for id_ in got if id_ in new])]


@pytest.mark.parametrize(("share", "retried"), [(0.1, 10), (0.25, 25), (0.5, 50), (0.75, 75)])
@pytest.mark.parametrize("limit", [1, 10, 100])
def test_the_share_is_exact(queue: Queue, clock: ServerClock, share: float, retried: int, limit: int) -> None:
    queue.options = QueueOptions(retry_share=share)
    fail(queue, names("r", 200))
    clock.freeze(NOW + SECOND)
    send(queue, names("n", 200))
    got = drained(queue, limit, 100 // limit)
    assert abs(sum(id_.startswith("r") for id_ in got) - retried) <= 1


def test_a_kind_that_is_used_up_leaves_its_share_to_the_other(shared: Queue, clock: ServerClock) -> None:
    fail(shared, names("r", 20))
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 2))
    assert sorted(ids_of(shared.claim(10))) == [*names("n", 2), *names("r", 8)]
    assert ids_of(shared.claim(100)) == names("r", 20)[8:]


def test_nothing_is_early(shared: Queue, clock: ServerClock) -> None:
    fail(shared, names("r", 20), delay=60)
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 10))
    assert ids_of(shared.claim(5, lease=600)) == names("n", 5)
    clock.freeze(NOW + 59 * SECOND)
    assert ids_of(shared.claim(4, lease=600)) == names("n", 9)[5:]
    clock.freeze(NOW + 61 * SECOND)
    assert ids_of(shared.claim(100)) == [*names("n", 10)[9:], *names("r", 20)]


def test_a_higher_priority_still_goes_first(shared: Queue, clock: ServerClock) -> None:
    fail(shared, names("r", 20))
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 20))
    send(shared, names("high", 3), priority=9)
    got = ids_of(shared.claim(7))
    assert got[:3] == names("high", 3)
    assert sum(id_.startswith("r") for id_ in got[3:]) == 2


def test_the_order_of_a_key_holds(shared: Queue, clock: ServerClock) -> None:
    """The first of each key has failed: the others of the key wait for it, however many turns new messages have."""
    lanes = {key: [f"{key}-{n}" for n in range(5)] for key in ("a", "b", "c")}
    for ids in lanes.values():
        send(shared, ids, key=ids[0][0])
    claimed = shared.claim(10)
    assert sorted(ids_of(claimed)) == ["a-0", "b-0", "c-0"]
    held = [ops.Settle(id_, claimed.fence, has_key=True) for id_ in ids_of(claimed)]
    shared.call(ops.retry(shared.keys, [(settle, 0, "boom", "") for settle in held]))
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 30))
    got: list[str] = []
    for _ in range(60):
        claimed = shared.claim(2)
        got += ids_of(claimed)
        keyed = [codec.has_key(record) for record in claimed.records]
        held = [ops.Settle(id_, claimed.fence, has_key) for id_, has_key in zip(ids_of(claimed), keyed, strict=True)]
        if held:
            shared.call(ops.ack(shared.keys, shared.options, held))
    for ids in lanes.values():
        assert [id_ for id_ in got if id_ in ids] == ids
    assert len(got) == 45


def test_a_message_that_returns_before_those_that_were_searched_is_found(shared: Queue, clock: ServerClock) -> None:
    """Redrive puts a letter back in its own place, where claims have already searched."""
    shared.bury("letter")
    fail(shared, names("r", 700))
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 20))
    drained(shared, 2, 4)
    shared.call(ops.redrive(shared.keys, limit=10))
    assert "letter" in drained(shared, 2, 4)


def test_a_message_that_was_remembered_may_wait_elsewhere_by_now(shared: Queue, clock: ServerClock) -> None:
    retries = names("r", 30)
    fail(shared, retries)
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 30))
    claimed = shared.claim(58)
    last = [ops.Settle(id_, claimed.fence, has_key=False) for id_ in ids_of(claimed) if id_ in retries]
    shared.call(ops.retry(shared.keys, [(settle, 500, "boom", "") for settle in last]))
    clock.freeze(NOW + 2 * SECOND)
    send(shared, names("later", 4))
    assert set(drained(shared, 1, 20)) >= set(names("later", 4))


def test_a_claim_searches_a_bounded_number_and_the_next_one_continues(shared: Queue, clock: ServerClock) -> None:
    retries = names("r", WAVE)
    fail(shared, retries)
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 1))
    for searched in (500, 1000, 1500):
        assert len(ids_of(shared.claim(1))) == 1
        assert shared.dump().meta["before_new0"].endswith(f" {retries[searched - 1]}")


def test_damaged_fields_do_not_stop_a_claim(shared: Queue, clock: ServerClock) -> None:
    fail(shared, names("r", 20))
    clock.freeze(NOW + SECOND)
    send(shared, names("n", 20))
    for field in ("retry_credit", "before_new0", "before_retry0"):
        shared.wire.run("HSET", shared.keys.key("meta"), field, "nonsense")
    got = ids_of(shared.claim(10))
    assert sum(id_.startswith("r") for id_ in got) == 5


def test_without_the_option_nothing_is_stored_and_due_times_decide(queue: Queue, clock: ServerClock) -> None:
    fail(queue, names("r", 20))
    clock.freeze(NOW + SECOND)
    send(queue, names("n", 20))
    assert ids_of(queue.claim(20)) == names("r", 20)
    assert not [field for field in queue.dump().meta if field.startswith(("retry_credit", "before_"))]


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_suspect_goes_alone(queue: Queue, clock: ServerClock, share: float) -> None:
    """One more crash would make it dead, so no other message is delivered with it."""
    queue.options = QueueOptions(retry_share=share, crash_limit=2)
    queue.send("suspect")
    queue.claim(1, lease=1)
    clock.freeze(NOW + 2 * SECOND)
    send(queue, names("n", 30))
    got = [ids_of(queue.claim(3, suspects="alone")) for _ in range(12)]
    assert ["suspect"] in got
    assert not [ids for ids in got if "suspect" in ids and len(ids) > 1]
