"""The shortcut of claim for an idle worker: it stores and answers the same as the rest of the script."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from duly import _lua
from duly._core import ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Refused, Wire, settles_of
from tests.servers import Server

Prepare = Callable[[Any, Any], object]
"""Fills a queue, and may set the clock of its server."""

_TEXT: Final = _lua.script("claim").text
_BEFORE, _CONDITION, _BEHIND = _TEXT.partition("local is_idle_claim = ")
WITHOUT_SHORTCUT: Final = f"{_BEFORE}{_CONDITION}false and {_BEHIND}"
SHORTCUT_ALONE: Final = (
    _BEFORE + _CONDITION + _BEHIND[: _BEHIND.index("local function")] + "return redis.error_reply('ERR no shortcut')"
)


def _retried(queue: Queue) -> None:
    queue.send("a")
    queue.call(ops.retry(queue.keys, [(settle, 0, "boom", "") for settle in settles_of(queue.claim())]))


PLAIN: Final[dict[str, Prepare]] = {
    "one": lambda q, c: q.send("a"),
    "one, and a later one": lambda q, c: (q.send("a"), q.send("b", delay=5)),
    "two": lambda q, c: q.send("a", "b"),
    "one that was late": lambda q, c: (q.send("a", delay=5), c.freeze(NOW + 9 * SECOND)),
    "one, and a lease": lambda q, c: (q.hold("held"), q.send("a")),
    "a large one": lambda q, c: q.send("a", body=b"." * 100_000),
    "one, on a server whose clock has stepped back": lambda q, c: (q.send("a"), c.freeze(NOW - 9 * SECOND)),
}
OTHERS: Final[dict[str, Prepare]] = {
    "nothing": lambda q, c: None,
    "only a later one": lambda q, c: q.send("a", delay=5),
    "of another priority": lambda q, c: q.send("a", priority=4),
    "two, of two priorities": lambda q, c: (q.send("a"), q.send("b", priority=4)),
    "two of a key": lambda q, c: q.send("a", "b", key="k"),
    "with a ttl": lambda q, c: q.send("a", ttl=5),
    "with a dedup value": lambda q, c: q.send("a", dedup="d"),
    "expired": lambda q, c: (q.send("a", ttl=1), c.freeze(NOW + 5 * SECOND)),
    "retried": lambda q, c: _retried(q),
    "lost": lambda q, c: (q.send("a", "b"), q.lose_body("a")),
    "damaged": lambda q, c: (q.send("a"), q.wire.run("HSET", q.keys.key("msgs"), "a", b"x" * 18)),
    "a lease that ran out": lambda q, c: (q.hold("h", lease=1), q.send("a"), c.freeze(NOW + 9 * SECOND)),
    "paused": lambda q, c: (q.send("a"), q.call(ops.pause(q.keys, "me"))),
    "a new minute": lambda q, c: (q.send("a"), c.freeze(NOW + 90 * SECOND)),
    "held back by a limit": lambda q, c: (q.send("a"), q.wire.run("HSET", q.keys.key("meta"), "limited", "0")),
    "a schedule that is due": lambda q, c: (q.send("a"), q.wire.run("HSET", q.keys.key("meta"), "slot", NOW)),
}


def _claimed(server: Server, name: str, text: str, prepare: Prepare, clock: ServerClock, *, token: bool) -> Any:
    """Prepare a queue, and return the answer to a claim behind a block, and all stored data."""
    clock.freeze(NOW)
    with Wire(server, {"claim": text}) as wire, Wire(server) as usual:
        queue = Queue(usual, name)
        prepare(queue, clock)
        usual.run("DEL", queue.keys.key("wake"))
        if token:
            usual.run("RPUSH", queue.keys.key("wake"), "1")
        queue.wire = wire
        return queue.call(queue.claim_call(1, then="behind", suspects="none")), queue.dump()


@pytest.mark.parametrize("token", [False, True], ids=["no token", "a token"])
@pytest.mark.parametrize("prepare", [*PLAIN.values(), *OTHERS.values()], ids=[*PLAIN, *OTHERS])
def test_the_shortcut_answers_and_stores_as_the_rest_of_claim_does(
    still_server: tuple[Server, ServerClock], clock: ServerClock, queue_name: str, prepare: Prepare, token: bool
) -> None:
    server, _ = still_server
    found = [
        _claimed(server, f"{queue_name}-{number}", text, prepare, clock, token=token)
        for number, text in enumerate((_TEXT, WITHOUT_SHORTCUT))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("prepare", PLAIN.values(), ids=list(PLAIN))
def test_a_plain_message_takes_the_shortcut(
    still_server: tuple[Server, ServerClock], clock: ServerClock, queue_name: str, prepare: Prepare
) -> None:
    server, _ = still_server
    answer, _ = _claimed(server, queue_name, SHORTCUT_ALONE, prepare, clock, token=False)
    assert len(answer[4]) == 1


@pytest.mark.parametrize("prepare", OTHERS.values(), ids=list(OTHERS))
def test_any_other_queue_does_not_take_the_shortcut(
    still_server: tuple[Server, ServerClock], clock: ServerClock, queue_name: str, prepare: Prepare
) -> None:
    server, _ = still_server
    with pytest.raises(Refused, match="no shortcut"):
        _claimed(server, queue_name, SHORTCUT_ALONE, prepare, clock, token=False)


@pytest.mark.parametrize("limits", [{"rate": "100/s"}, {"max_in_flight": 5}], ids=str)
def test_a_queue_with_a_limit_does_not_take_the_shortcut(
    still_server: tuple[Server, ServerClock], clock: ServerClock, queue_name: str, limits: dict[str, Any]
) -> None:
    server, _ = still_server
    with Wire(server, {"claim": SHORTCUT_ALONE}) as wire:
        queue = Queue(wire, queue_name, **limits)
        queue.send("a")
        with pytest.raises(Refused, match="no shortcut"):
            queue.claim(1, then="behind", suspects="none")


def test_a_repeated_call_gets_its_message_again(queue: Queue) -> None:
    queue.send("a", "b")
    first = queue.call(queue.claim_call(1, then="behind", suspects="none"), sequence=100)
    again = queue.call(queue.claim_call(1, then="behind", suspects="none"), sequence=100)
    assert (again[3], again[4], again[5]) == (first[3], [b"a"], first[5])
    with pytest.raises(Refused, match="OVERTAKEN"):
        queue.call(queue.claim_call(1, then="behind", suspects="none"), sequence=99)
    assert set(queue.dump().leased) == {"a"}
