"""`duly cancel`, `promote`, `reschedule`, `pause`, `resume`, `purge` and `delete`."""

from datetime import UTC, datetime, timedelta

import pytest

import duly
from tests.cli.conftest import Call
from tests.cli.shell import Shell, given_dead


def test_cancel_and_promote_act_on_each_id_and_fail_if_one_remains(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    ids = queue.send_many([duly.Send(n, delay=600) for n in range(3)])

    promoted = shell.ok("promote", "q", ids[0], ids[1], "--json").json
    unknown = shell.run("promote", "q", "nothing")
    cancelled = shell.ok("cancel", "q", ids[0], ids[2]).lines
    mixed = shell.run("cancel", "q", ids[0], ids[1], "--json")

    assert promoted == {"results": [{"id": ids[0], "promoted": True}, {"id": ids[1], "promoted": True}]}
    assert (unknown.status, unknown.out) == (1, "nothing  not waiting\n")
    assert cancelled == [f"{ids[0]}  cancelled", f"{ids[2]}  cancelled"]
    assert mixed.status == 1
    assert [each["cancelled"] for each in mixed.json["results"]] == [False, True]
    assert queue.stats().live == 0


def test_cancel_keeps_a_held_message_without_running(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    id_ = queue.send("x")
    (delivery,) = queue.receive(1, wait=0)

    left = shell.run("cancel", "q", id_, "gone")
    told = shell.run("cancel", "q", id_, "--json")
    state = queue.pending().total
    taken = shell.ok("cancel", "q", id_, "--running").lines

    has_it = "not cancelled: a consumer holds it; --running cancels it anyway"
    assert left.status == 1
    assert left.out.splitlines() == [
        f"{id_}  {has_it}",
        "gone  not cancelled: unknown, finished, or cancelled before",
    ]
    assert (told.status, told.json) == (1, {"results": [{"id": id_, "cancelled": False, "reason": has_it}]})
    assert (state, taken) == (1, [f"{id_}  cancelled"])
    with pytest.raises(duly.LeaseLost):
        delivery.ack()


def test_a_repeated_id_is_cancelled_and_reported_once(shell: Shell, app: duly.Duly) -> None:
    id_ = app.queue("q").send("x")

    assert shell.ok("cancel", "q", id_, id_).lines == [f"{id_}  cancelled"]


def test_reschedule_gives_another_due_time(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    id_ = queue.send("x", delay=600)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)

    moved = shell.ok("reschedule", "q", id_, "--at", at.isoformat(), "--json").json
    told = shell.ok("reschedule", "q", id_, "--delay", "2h").out
    unknown = shell.run("reschedule", "q", "nothing", "--delay", "2h")

    assert datetime.fromisoformat(moved["due_at"]) == at
    assert id_ in told
    assert unknown.status == 1
    assert "'nothing' of queue 'q' is not waiting" in unknown.err


def test_pause_and_resume(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    queue.send("x")

    paused = shell.ok("pause", "q").out
    assert queue.receive(1, 0) == []
    resumed = shell.ok("resume", "q", "--json").json

    assert "`duly resume q` continues" in paused
    assert resumed == {"queue": "q", "paused": False}
    assert queue.receive(1, 0) != []


def test_purge_of_a_state_leaves_the_others_and_asks_without_yes(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    given_dead(queue, "dead")
    queue.send_many(["a", "b"])
    queue.send("later", delay=600)

    refused = shell.run("purge", "q")
    some = shell.ok("purge", "q", "--state", "delayed", "--yes", "--json").json
    after = queue.stats()
    rest = shell.ok("purge", "q", "--yes").out
    nothing = shell.ok("purge", "q").out

    assert refused.status == 2
    assert refused.err.startswith(
        "duly: Purge 4 live, dead and finished message(s) of q permanently? Confirm with --yes"
    )
    assert some == {"queue": "q", "state": "delayed", "purged": 1}
    assert (after.ready, after.delayed, after.dead) == (2, 0, 1)
    assert rest == "3 purged from q\n"
    assert nothing == "0 purged from q\n"


def test_messages_that_arrive_after_the_count_are_not_purged(
    call: Call, app: duly.Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue("q")
    queue.cancel(queue.send("gone"))
    count = duly.Queue.stats

    def count_and_send(self: duly.Queue) -> duly.Stats:
        counted = count(self)
        queue.send("arrives now")
        return counted

    monkeypatch.setattr(duly.Queue, "stats", count_and_send)
    for words in (
        ("purge", "q", "--state", "delayed"),
        ("purge", "q", "--state", "leased", "--yes"),
        ("dead", "purge", "q"),
    ):
        assert call(*words).out == "0 purged from q\n"

    assert len(queue.list("ready")) == 3


def test_a_wrong_id_is_refused_before_the_first_cancellation(shell: Shell, app: duly.Duly) -> None:
    id_ = app.queue("q").send("x")

    refused = shell.run("cancel", "q", id_, "")

    assert (refused.status, refused.err) == (2, "duly: id must not be empty\n")
    assert app.queue("q").stats().ready == 1


def test_delete_removes_a_queue_and_a_group(shell: Shell, app: duly.Duly) -> None:
    app.queue("q").send("x")
    app.topic("events").group("archive").create()

    refused = shell.run("delete", "q")
    shell.ok("delete", "q", "--yes")
    group = shell.ok("delete", "events/archive", "--yes", "--json").json

    assert refused.status == 2
    assert "Delete q with 1 live and 0 dead message(s) permanently?" in refused.err
    assert app.queues() == []
    assert group == {"queue": "events/archive", "deleted": True}
    assert app.topic("events").groups() == []
