"""Real workers of Dramatiq, with leases of 1.5 s: kills, delays, retries, dead letters."""

import time

import pytest

from tests.foreign_workers import Program
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_delays_retries_results_and_dead_letters(program: Program) -> None:
    module = program.module
    program.worker()
    sent = time.time()
    module.work.send_with_options(args=("delayed",), delay=3000)
    long = module.work.send("long", 4)  # longer than its lease
    module.try_again.send("flaky")
    module.mail.send("mailed")
    module.fail.send("failed")

    program.wait_for("end", "delayed", "long", "flaky")
    program.wait_for("start", "mailed", "failed")

    (delayed,) = program.runs("start", "delayed")
    assert delayed.at >= sent + 3
    assert len(program.runs("start", "long")) == 1
    assert len(program.runs("start", "flaky")) == 3
    assert long.get_result(block=True).startswith("long in ")
    queue = module.broker.queues["default"]
    wait_until(lambda: queue.stats().dead == 1, "the failed message is dead", queue.stats)
    (dead,) = queue.list("dead")
    assert (dead.reason, dead.headers["actor"]) == ("ValueError: never", "fail")


@pytest.mark.fault
def test_messages_of_a_killed_worker_run_again_and_none_is_lost(program: Program) -> None:
    names = [f"m{number}" for number in range(30)]
    first = program.worker()
    for name in names:
        program.module.work.send(name, 0.3)
    program.wait_for("start", *names[:3])
    first.kill()
    begun = {run.name for run in program.runs("start")} - {run.name for run in program.runs("end")}

    program.worker()

    program.wait_for("end", *names)
    program.module.broker.join("default", timeout=60000)
    ends = [run.name for run in program.runs("end")]
    assert sorted(ends) == sorted(names)  # one that was running had not ended
    twice = {name for name in names if len(program.runs("start", name)) > 1}
    assert twice <= begun


@pytest.mark.fault
@pytest.mark.long
def test_a_message_that_kills_its_workers_is_dead(program: Program) -> None:
    program.module.die.send("poison")
    queue = program.module.broker.queues["default"]

    program.worker()  # Dramatiq's master ends with its process
    program.wait_for("start", "poison")
    program.worker()
    wait_until(lambda: len(program.runs("start", "poison")) == 2, "it runs again", program.runs)
    program.module.work.send("after")
    program.worker()

    program.wait_for("end", "after")
    wait_until(lambda: queue.stats().dead == 1, "it is dead", queue.stats)
    assert len(program.runs("start", "poison")) == 2


@pytest.mark.long
def test_a_stopped_worker_finishes_running_messages_and_returns_the_others(program: Program) -> None:
    worker = program.worker()
    names = [f"m{number}" for number in range(8)]
    for name in names:
        program.module.work.send(name, 2)
    program.wait_for("start", *names[:4])

    assert worker.stop() == 0

    assert {run.name for run in program.runs("end")} == {run.name for run in program.runs("start")}
    stats = program.module.broker.queues["default"].stats()
    assert (stats.ready, stats.leased) == (8 - len(program.runs("end")), 0)


def test_a_running_message_is_cancelled_and_its_actor_interrupted(program: Program) -> None:
    worker = program.worker()
    message = program.module.work.send("endless", 60)
    program.wait_for("start", "endless")

    assert program.module.broker.cancel(message) is False
    assert program.module.broker.cancel(message, running=True) is True

    wait_until(lambda: "LostLease" in worker.log, "the actor is interrupted", lambda: worker.log)
    program.module.broker.join("default", timeout=60000)
    assert program.runs("end") == []
    assert program.module.broker.queues["default"].stats().dead == 0
