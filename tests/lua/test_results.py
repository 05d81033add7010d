"""await_end, and the scripts that announce the end of an awaited message."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from duly._core import ops, views
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue

VIEWER = views.Viewer("orders", lambda _content, body: body)
KEPT = Keep(count=10)


def looked_at(queue: Queue, id_: str, wait: float = 10) -> views.End:
    """Ask how a message ended."""
    call = ops.await_end(queue.keys, VIEWER, id_, wait)
    return call.decode(queue.call(call))


def awaited(queue: Queue) -> dict[str, int]:
    """Return the awaited messages, and until when."""
    flat = queue.wire.run("ZRANGE", queue.keys.key("awaited"), 0, -1, "WITHSCORES")
    return {id_.decode(): int(float(until)) for id_, until in zip(flat[0::2], flat[1::2], strict=True)}


def told(queue: Queue) -> list[str]:
    """Name the messages whose ends were announced, in order."""
    return [fields[1].decode() for _, fields in queue.wire.run("XRANGE", queue.keys.key("ends"), "-", "+")]


def finish(queue: Queue, settles: list[ops.Settle], result: str = "j1", keep: Keep | None = KEPT) -> Any:
    options = replace(queue.options, done=keep)
    return queue.call(ops.finish(queue.keys, options, [(settle, result) for settle in settles]))


def test_an_unknown_message_is_not_awaited(queue: Queue) -> None:
    assert looked_at(queue, "a") == views.End(None)
    assert queue.key_names() == set()


@pytest.mark.parametrize("state", ["ready", "delayed", "leased", "parked"])
def test_the_end_of_a_live_message_will_be_announced(queue: Queue, state: str) -> None:
    queue.send("a", delay=60 if state == "delayed" else 0, key="k")
    if state in ("leased", "parked"):
        queue.claim()
    if state == "parked":
        queue.send("b", key="k")
        queue.claim()
    id_ = "b" if state == "parked" else "a"
    before = queue.dump()

    assert looked_at(queue, id_) == views.End(None, after="0-0")

    assert awaited(queue) == {id_: NOW + 10 * SECOND}
    assert queue.wire.run("PTTL", queue.keys.key("awaited")) == 10_000
    assert queue.dump() == before


def test_a_caller_that_does_not_wait_stores_nothing(queue: Queue) -> None:
    queue.send("a")
    before = queue.key_names()

    assert looked_at(queue, "a", wait=0).after == "0-0"

    assert queue.key_names() == before


def test_a_longer_wait_is_kept_and_a_shorter_one_does_not_cut_it(queue: Queue) -> None:
    queue.send("a")
    for wait in (10, 50, 5):
        looked_at(queue, "a", wait)

    assert awaited(queue) == {"a": NOW + 50 * SECOND}
    assert queue.wire.run("PTTL", queue.keys.key("awaited")) == 50_000


def test_callers_that_stopped_waiting_are_removed_a_bounded_number_per_call(queue: Queue, clock: ServerClock) -> None:
    ids = [f"m{n:03d}" for n in range(150)]
    queue.send(*ids, "later", "live")
    looked_at(queue, "later", wait=60)
    for id_ in ids:
        looked_at(queue, id_, wait=1)

    clock.freeze(NOW + 2 * SECOND)
    looked_at(queue, "live")
    assert len(awaited(queue)) == 52
    looked_at(queue, "live")

    assert set(awaited(queue)) == {"later", "live"}


@pytest.mark.parametrize("state", ["ready", "delayed", "parked"])
def test_an_expired_message_is_unknown_even_before_it_is_removed(queue: Queue, clock: ServerClock, state: str) -> None:
    if state == "parked":
        queue.send("first", key="k")
        queue.claim(lease=60)
        queue.send("a", key="k", ttl=2)
        queue.claim()
    elif state == "delayed":
        (settle,) = queue.hold("a", ttl=2)
        queue.call(ops.retry(queue.keys, [(settle, 60, "e", "t")]))
    else:
        queue.send("a", ttl=2)

    clock.freeze(NOW + 2 * SECOND - 1)
    assert looked_at(queue, "a", wait=0).after == "0-0"
    clock.freeze(NOW + 2 * SECOND + 5)
    before = queue.dump()

    assert looked_at(queue, "a") == views.End(None)

    assert queue.dump() == before
    assert awaited(queue) == {}


def test_a_leased_message_may_be_finished_after_its_ttl(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", ttl=2)
    queue.claim(lease=60)

    clock.freeze(NOW + 3 * SECOND)

    assert looked_at(queue, "a").after == "0-0"


def test_a_finished_message_has_its_result(queue: Queue) -> None:
    finish(queue, queue.hold("a"), 'j{"n":1}')

    end = looked_at(queue, "a")

    assert end.message is not None
    assert (end.message.state, end.message.result, end.result, end.after) == ("done", {"n": 1}, 'j{"n":1}', None)
    assert awaited(queue) == {}


def test_a_dead_message_has_its_reason(queue: Queue) -> None:
    queue.bury("a", reason="bad")

    end = looked_at(queue, "a")

    assert end.message is not None
    assert (end.message.state, end.message.reason, end.after) == ("dead", "bad", None)


def _rejects(queue: Queue, settles: list[ops.Settle]) -> Any:
    return queue.call(ops.reject(queue.keys, queue.options, [(settle, "bad", "", "") for settle in settles]))


def _cancels(queue: Queue, settles: list[ops.Settle]) -> Any:
    return [queue.call(ops.cancel(queue.keys, settle.id, running=True)) for settle in settles]


ENDS: dict[str, Callable[[Queue, list[ops.Settle]], Any]] = {"finish": finish, "reject": _rejects, "cancel": _cancels}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


@every_end
def test_the_ends_of_awaited_messages_are_announced_once_and_no_others(
    queue: Queue, end: Callable[[Queue, list[ops.Settle]], Any]
) -> None:
    settles = queue.hold("a", "b", "c")
    for id_ in ("a", "a", "c"):
        looked_at(queue, id_)

    end(queue, settles)

    assert told(queue) == ["a", "c"]
    assert awaited(queue) == {}
    assert 0 < queue.wire.run("PTTL", queue.keys.key("ends")) <= 60_000


@every_end
def test_without_a_waiting_caller_nothing_is_announced(
    queue: Queue, end: Callable[[Queue, list[ops.Settle]], Any]
) -> None:
    end(queue, queue.hold("a"))

    assert queue.key_names() & {"awaited", "ends"} == set()


def test_announcements_come_after_the_position_in_the_reply(queue: Queue) -> None:
    settles = queue.hold("a", "b")
    looked_at(queue, "a")
    finish(queue, settles[:1])

    after = looked_at(queue, "b").after
    finish(queue, settles[1:])

    ((_, entries),) = queue.wire.run("XREAD", "STREAMS", queue.keys.key("ends"), after)
    assert [fields for _, fields in entries] == [[b"id", b"b"]]


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "recycle"])
def test_a_message_that_goes_back_has_not_ended(queue: Queue, verb: str) -> None:
    (settle,) = queue.hold("a")
    looked_at(queue, "a")
    rests: dict[str, tuple[Any, ...]] = {"retry": (5, "e", "t"), "defer": (5, ""), "recycle": (5, b"")}
    row: Any = (settle, *rests[verb]) if verb in rests else settle

    queue.call(getattr(ops, verb)(queue.keys, [row]))

    assert told(queue) == []
    assert set(awaited(queue)) == {"a"}


def test_a_lost_lease_announces_nothing(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    looked_at(queue, "a")

    finish(queue, [ops.Settle("a", settle.fence - 1)])

    assert told(queue) == []


def test_a_finish_that_keeps_nothing_announces_nothing(queue: Queue) -> None:
    settles = queue.hold("a")
    looked_at(queue, "a")

    finish(queue, settles, keep=None)

    assert told(queue) == []
    assert looked_at(queue, "a") == views.End(None)


def test_the_ends_that_are_kept_are_bounded(queue: Queue) -> None:
    for first in range(0, 3000, 500):
        ids = [f"{n:04d}" for n in range(first, first + 500)]
        settles = queue.hold(*ids)
        for id_ in ids:
            looked_at(queue, id_)
        finish(queue, settles)

    assert 1000 <= len(told(queue)) < 1500
    assert told(queue)[-1] == "2999"


def test_delete_removes_both_keys(queue: Queue) -> None:
    settles = queue.hold("a", "b")
    looked_at(queue, "a")
    looked_at(queue, "b")
    finish(queue, settles[:1])
    assert {"awaited", "ends"} <= queue.key_names()

    queue.call(ops.delete(queue.keys))

    assert {name for name in queue.key_names() if not name.startswith("call:")} == set()
