"""The checks themselves: each one passes a good history and fails a bad one, else it is not believed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.conftest import StartedServer
from tests.fault.history import (
    Event,
    History,
    Recorder,
    Report,
    Type,
    Violation,
    assert_clean,
    check,
    check_h4_bounded,
    check_h10_conserved,
    check_h11_lively,
    check_h12_fault_fired,
    total_queue,
    with_violations,
)
from tests.fault.proxy import LoseReplies, Proxy

LEASE = 1_000


def event(at: int, op: str, type: Type = "ok", message: str | None = "a", **fields: Any) -> Event:  # noqa: A002
    """Make an event at a server time; a monotonic time is derived from it."""
    given: dict[str, Any] = {"process": "p", "server_us": at, "mono_ns": at * 1000, "id": message, **fields}
    return Event(op=op, type=type, **given)


def sent(at: int, message: str = "a", **fields: Any) -> list[Event]:
    return [event(at, "send", "invoke", message, server_us=None), event(at, "send", "ok", message, **fields)]


def claimed(at: int, fence: int, message: str = "a", **fields: Any) -> Event:
    return event(at, "claim", "ok", message, **{"fence": fence, "lease_us": LEASE, **fields})


def acked(at: int, fence: int, message: str = "a", **fields: Any) -> Event:
    return event(at, "ack", "ok", message, fence=fence, **fields)


def judge(*events: Event, **options: Any) -> Report:
    return check(History(events), **options)


# --- Good histories ----------------------------------------------------------------------------------------


def test_a_plain_life_is_clean() -> None:
    report = judge(*sent(1, due_us=5), claimed(6, 1), acked(7, 1), max_attempts=1, left=0, fired={"cut": 1})

    assert_clean(report)
    assert report.total.ok == report.total.acknowledged == report.total.attempts == 1
    assert report.lateness_us == {"p50": 1, "p99": 1, "max": 1}


@pytest.mark.parametrize(
    ("cause", "events"),
    [
        ("retry", [claimed(2, 1), event(3, "retry", fence=1), claimed(4, 2)]),
        (
            "release, outcome unknown",
            [claimed(2, 1), event(3, "release", "info", fence=1, server_us=None), claimed(4, 2)],
        ),
        ("lease expired", [claimed(2, 1), claimed(2 + LEASE, 2)]),
        ("holder killed", [claimed(2, 1), event(3, "kill", "info", None), claimed(2 + LEASE, 2)]),
        ("holder killed", [claimed(2, 1, lease_us=None), event(3, "kill", "info", None), claimed(9, 2)]),
        ("rollback", [claimed(2, 1), event(3, "rollback", "info", None, process="server"), claimed(4, 2)]),
    ],
)
def test_a_redelivery_with_a_cause_is_explained(cause: str, events: list[Event]) -> None:
    report = judge(*sent(1), *events, acked(5_000, 2))

    assert report.causes == {cause: 1}
    assert report.total.duplicated == 1
    assert "H3" not in report.broken()


def test_an_extended_lease_holds_longer() -> None:
    extended = event(900, "extend", fence=1, lease_us=LEASE)

    assert "H7" in judge(*sent(1), claimed(2, 1), extended, claimed(1_500, 2)).broken()
    assert "H7" not in judge(*sent(1), claimed(2, 1), extended, claimed(1_900, 2)).broken()


def rolled_back(began: int, ended: int) -> Event:
    return event(ended, "rollback", "info", None, process="server", invoked_ns=began * 1000)


@pytest.mark.parametrize(("began", "ended", "excused"), [(1, 1, False), (2, 40, True), (20, 40, True), (60, 70, False)])
def test_a_rollback_between_two_claims_excuses_both_holders(began: int, ended: int, excused: bool) -> None:
    found = judge(*sent(1), claimed(2, 1), claimed(50, 2), acked(55, 2), rolled_back(began, ended)).broken()

    assert ("H7" not in found) == excused


@pytest.mark.parametrize(("began", "ended", "excused"), [(1, 40, False), (52, 52, True), (56, 60, False)])
def test_a_rollback_excuses_a_stale_settle(began: int, ended: int, excused: bool) -> None:
    """The new server does not know the second claim, so that the first holder settles."""
    found = judge(*sent(1), claimed(2, 1), claimed(50, 2), acked(55, 1), rolled_back(began, ended)).broken()

    assert ("H8" not in found) == excused


def test_an_unknown_send_that_comes_out_is_recovered() -> None:
    invoke, _ = sent(1)
    unknown = event(1, "send", "info", server_us=None)

    report = judge(invoke, unknown, claimed(2, 1), acked(3, 1))

    assert_clean(report)
    assert (report.total.acknowledged, report.total.recovered) == (0, 1)


def test_an_unknown_send_that_never_comes_out_is_not_lost() -> None:
    assert_clean(judge(sent(1)[0], event(1, "send", "info", server_us=None), left=0))


def test_an_ack_that_died_before_its_outcome_is_not_lost() -> None:
    report = judge(*sent(1), claimed(2, 1), event(3, "ack", "invoke", fence=1, server_us=None))

    assert_clean(report)


def test_dead_letters_count_as_out() -> None:
    found_dead = event(9, "dead", server_us=None)

    assert_clean(judge(*sent(1), claimed(2, 1), event(3, "reject", fence=1), found_dead))


def test_an_id_may_be_used_again() -> None:
    assert "H6" not in judge(*sent(1), claimed(2, 1), acked(3, 1), *sent(4), claimed(5, 2), acked(6, 2)).broken()


# --- Bad histories -----------------------------------------------------------------------------------------

BAD_HISTORIES: dict[str, tuple[str, list[Event]]] = {
    "never delivered": ("H1", sent(1)),
    "delivered, holder died, never again": ("H1", [*sent(1), claimed(2, 1)]),
    "never sent": ("H2", [claimed(2, 1), acked(3, 1)]),
    "refused, yet delivered": (
        "H2",
        [sent(1)[0], event(1, "send", "fail"), claimed(2, 1), acked(3, 1)],
    ),
    "altered": ("H2", [*sent(1, digest="x"), claimed(2, 1, digest="y"), acked(3, 1)]),
    "delivered twice inside the lease": ("H3", [*sent(1), claimed(2, 1), claimed(3, 2), acked(4, 2)]),
    "given back by another delivery": (
        "H3",
        [*sent(1), claimed(2, 1), event(3, "retry", fence=9), claimed(4, 2), acked(5, 2)],
    ),
    "early": ("H5", [*sent(1, due_us=10), claimed(9, 1), acked(11, 1)]),
    "early after a retry": (
        "H5",
        [*sent(1), claimed(2, 1), event(3, "retry", fence=1, due_us=50), claimed(49, 2), acked(51, 2)],
    ),
    "early by its own word": ("H5", [*sent(1), claimed(2, 1, due_us=3), acked(4, 1)]),
    "due, but no server time": ("H5", [*sent(1), claimed(2, 1, due_us=1, server_us=None), acked(4, 1)]),
    "after ack": ("H6", [*sent(1), claimed(2, 1), acked(3, 1), claimed(2_000, 2)]),
    "after cancel": ("H6", [*sent(1), event(2, "cancel"), claimed(3, 1)]),
    "after the ack of a send that was done twice": (
        "H6",
        [sent(1)[0], event(1, "send", "info", server_us=None), claimed(2, 1), acked(3, 1), claimed(2_000, 2)],
    ),
    "two holders": ("H7", [*sent(1), claimed(2, 1), claimed(1_001, 2), acked(1_002, 2)]),
    "two holders, the first longer than the second": (
        "H7",
        [*sent(1), claimed(2, 1, lease_us=9_000), claimed(5_000, 2, lease_us=1), claimed(6_000, 3), acked(6_001, 3)],
    ),
    "the same fence twice": ("H7", [*sent(1), claimed(2, 1), claimed(2_000, 1), acked(2_001, 1)]),
    "a falling fence": ("H7", [*sent(1), claimed(2, 5), claimed(2_000, 4), acked(2_001, 4)]),
    "stale ack": ("H8", [*sent(1), claimed(2, 1), claimed(2_000, 2), acked(2_001, 1)]),
    "stale extend": (
        "H8",
        [*sent(1), claimed(2, 1), claimed(2_000, 2), event(2_001, "extend", fence=1), acked(2_002, 2)],
    ),
    "overtaken in its lane": (
        "H9",
        [
            *(*sent(1, "a", key="k"), *sent(2, "b", key="k")),
            *(claimed(3, 1, "b"), acked(4, 1, "b"), claimed(5, 2, "a"), acked(6, 2, "a")),
        ],
    ),
    "two of a lane out at once": (
        "H9",
        [
            *(*sent(1, "a", key="k"), *sent(2, "b", key="k")),
            *(claimed(3, 1, "a"), claimed(4, 2, "b"), acked(5, 1, "a"), acked(6, 2, "b")),
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_HISTORIES)
def test_a_bad_history_fails_its_check(name: str) -> None:
    broken, events = BAD_HISTORIES[name]

    assert broken in judge(*events).broken()


def test_too_many_deliveries_fail() -> None:
    claims = [claimed(at * 2_000, at, attempt=at) for at in range(1, 4)]
    history = History([*sent(1), *claims, acked(6_001, 3)])

    assert check_h4_bounded(history, 3) == []
    assert [violation.check for violation in check_h4_bounded(history, 2)] == ["H4"]


def test_a_falling_attempt_number_fails() -> None:
    history = History([*sent(1), claimed(2, 1, attempt=2), claimed(2_000, 2, attempt=1)])

    assert [violation.check for violation in check_h4_bounded(history, 9)] == ["H4"]


@pytest.mark.parametrize(("left", "is_right"), [(0, False), (1, True), (2, True), (3, False)])
def test_the_remaining_messages_must_add_up(left: int, is_right: bool) -> None:
    unknown = [sent(3, "c")[0], event(3, "send", "info", "c")]
    history = History([*sent(1, "a"), *sent(2, "b"), *unknown, claimed(4, 1, "a"), acked(5, 1, "a")])

    assert (check_h10_conserved(history, left) == []) is is_right


def test_a_stall_after_the_fault_fails() -> None:
    second = 1_000_000
    history = History([*sent(1), claimed(3 * second, 1), acked(9 * second, 1)])

    assert check_h11_lively(history, 0, first_within=3, drained_within=9) == []
    assert len(check_h11_lively(history, 0, first_within=2, drained_within=8)) == 2
    assert len(check_h11_lively(history, 10 * second * 1000, first_within=2, drained_within=8)) == 2


def test_a_fault_that_never_fired_voids_the_run() -> None:
    assert [violation.check for violation in check_h12_fault_fired({"cut": 3, "kill": 0})] == ["H12"]


def test_refused_stale_operations_are_counted() -> None:
    refused = event(2_001, "ack", "fail", fence=1)

    report = judge(*sent(1), claimed(2, 1), claimed(2_000, 2), refused, acked(2_002, 2))

    assert_clean(report)
    assert report.stale_refused == 1


def test_a_failed_report_shows_seed_and_events() -> None:
    report = with_violations(judge(*sent(1), seed=42), [Violation("H11", "too slow")])

    with pytest.raises(AssertionError) as caught:
        assert_clean(report)

    for words in ("seed 42", "H1: a was lost", '"op": "send"', "H11: too slow"):
        assert words in str(caught.value)


# --- Without the server's time -----------------------------------------------------------------------------


def windowed(op: str, began: int, ended: int, **fields: Any) -> Event:
    return event(ended, op, server_us=None, invoked_ns=began * 1000, **fields)


def test_windows_prove_two_holders_only_when_no_order_excuses_them() -> None:
    first = windowed("claim", 0, 10, fence=1, lease_us=LEASE)
    second = windowed("claim", 5, 8, fence=2, lease_us=LEASE)
    released = windowed("release", 9, 10, fence=2)

    assert "H7" in judge(*sent(0), first, second).broken()
    assert "H7" not in judge(*sent(0), first, second, released).broken()


def test_windows_prove_a_delivery_after_ack_only_when_they_are_apart() -> None:
    claim, ack = windowed("claim", 1, 2, fence=1), windowed("ack", 3, 6, fence=1)

    assert "H6" in judge(*sent(0), claim, ack, windowed("claim", 7, 8, fence=2)).broken()
    assert "H6" not in judge(*sent(0), claim, ack, windowed("claim", 5, 8, fence=2)).broken()


# --- The recorder ------------------------------------------------------------------------------------------


def test_an_operation_has_three_outcomes() -> None:
    recorder = Recorder("p")

    with recorder.operation("send", "a", "b", due_us=5):
        pass
    with pytest.raises(LookupError), recorder.operation("ack", "a", fence=1, refusals=(LookupError,)):
        raise LookupError
    with pytest.raises(TimeoutError), recorder.operation("ack", "b", refusals=(LookupError,)):
        raise TimeoutError
    with recorder.operation("claim") as done:
        done(id="a", fence=7)

    seen = [(one.op, one.type, one.id, one.fence) for one in recorder.events if one.type != "invoke"]
    assert seen == [
        ("send", "ok", "a", None),
        ("send", "ok", "b", None),
        ("ack", "fail", "a", 1),
        ("ack", "info", "b", None),
        ("claim", "ok", "a", 7),
    ]
    assert all(one.invoked_ns is not None for one in recorder.events if one.type != "invoke")


def test_a_message_of_a_batch_without_an_answer_is_unknown() -> None:
    recorder = Recorder("p")

    with recorder.operation("send", "a", "b") as done:
        done(id="a")

    history = History.of(recorder)
    assert [one.id for one in history.select("send")] == ["a"]
    assert [one.id for one in history.select("send", type="info")] == ["b"]


def test_a_file_returns_the_recorded_history(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with Recorder("p", path) as recorder:
        written = recorder.record("claim", "ok", id="ä\n", fence=3, server_us=5)
    with path.open("ab") as file:
        file.write(b'{"op": "torn')

    assert History.read(path).events == [written]


# --- Toy queues, known to be wrong -------------------------------------------------------------------------

POPPING_CONSUMER = """
import sys
import redis
from pathlib import Path
from tests.fault.history import Recorder

port, queue, path = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
client = redis.Redis(port=port, decode_responses=True)
with Recorder("consumer", path) as recorder:
    while True:
        with recorder.operation("claim") as done:
            _, message = client.brpop(queue)
            done(id=message)
        if message == "poison":
            client.rpush(queue + ":stuck", message)
            client.blpop(queue + ":never")
        with recorder.operation("ack", message):
            pass
"""


@pytest.mark.fault
def test_a_queue_that_pops_loses_the_messages_of_a_killed_consumer(
    server: StartedServer, queue_name: str, tmp_path: Path
) -> None:
    port, path = server("valkey").port, tmp_path / "consumer.jsonl"
    sender = Recorder("sender")
    with redis.Redis(port=port, decode_responses=True) as client:
        for message in ("a", "b", "poison", "c"):
            with sender.operation("send", message):
                client.lpush(queue_name, message)
        kill_when_stuck(client, queue_name, port, path)
        drain(client, queue_name, sender)

    history = History([*sender.events, *History.read(path).events])
    assert total_queue(history).lost == {"poison"}
    assert check(history).broken() == {"H1"}


def test_a_sender_that_repeats_a_send_without_an_id_sends_twice(server: StartedServer, queue_name: str) -> None:
    port, recorder = server("valkey").port, Recorder("p")
    policy = LoseReplies(rate=0.3, seed=3, only={"LPUSH"})
    with Proxy(port, policy) as proxy, redis.Redis(port=proxy.port, decode_responses=True) as client:
        for message in map(str, range(50)):
            with recorder.operation("send", message):
                client.lpush(queue_name, message)  # redis-py repeats it when the reply is lost
        drain(client, queue_name, recorder)

    report = check(History.of(recorder), seed=policy.seed, fired={"lost replies": policy.fired})
    assert report.total.duplicated == policy.fired
    assert report.broken() == {"H3", "H6"}


def kill_when_stuck(client: redis.Redis, queue: str, port: int, path: Path) -> None:
    command = [sys.executable, "-c", POPPING_CONSUMER, str(port), queue, str(path)]
    consumer = subprocess.Popen(command, cwd=Path(__file__).parents[2])  # from where `tests` is imported
    try:
        assert client.blpop([queue + ":stuck"], timeout=30) is not None
    finally:
        os.kill(consumer.pid, signal.SIGKILL)
        consumer.wait()


def drain(client: redis.Redis, queue: str, recorder: Recorder) -> None:
    while True:
        with recorder.operation("claim") as done:
            message = client.rpop(queue)
            if message is None:
                return
            done(id=message)
        recorder.record("ack", "ok", id=message)
