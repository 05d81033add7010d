"""Real workers of taskiq, with leases of 1.5 s: kills, delays, retries, poison."""

import asyncio
import time

import pytest

from tests.foreign_workers import Program
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


async def test_delays_retries_and_results(program: Program) -> None:
    module = program.module
    program.worker()
    sent = time.time()
    await module.work.kicker().with_labels(delay=3).kiq("delayed")
    long = await module.work.kiq("long", 4)  # longer than its lease
    await module.try_again.kiq("flaky")

    await asyncio.to_thread(program.wait_for, "end", "delayed", "long", "flaky")

    (delayed,) = program.runs("start", "delayed")
    assert delayed.at >= sent + 3
    assert len(program.runs("start", "long")) == 1
    assert len(program.runs("start", "flaky")) == 3
    result = await long.wait_result(timeout=60)
    assert result.return_value.startswith("long in ")


@pytest.mark.fault
async def test_tasks_of_a_killed_worker_run_again_and_none_is_lost(program: Program) -> None:
    names = [f"t{number}" for number in range(30)]
    first = program.worker()
    for name in names:
        await program.module.work.kiq(name, 0.3)
    await asyncio.to_thread(program.wait_for, "start", *names[:3])
    first.kill()
    begun = {run.name for run in program.runs("start")}

    program.worker()

    await asyncio.to_thread(program.wait_for, "end", *names)
    twice = {name for name in names if len(program.runs("start", name)) > 1}
    assert twice <= begun


@pytest.mark.fault
@pytest.mark.long
async def test_a_task_that_kills_its_workers_is_dead(program: Program) -> None:
    await program.module.die.kiq("poison")
    program.worker()  # it starts its process again

    await asyncio.to_thread(
        wait_until, lambda: len(program.runs("start", "poison")) == 2, "it runs again", program.runs
    )
    await program.module.work.kiq("after")
    await asyncio.to_thread(program.wait_for, "end", "after")

    assert (await program.module.broker.queue.stats()).dead == 1  # the claim that found "after" has found it
    assert len(program.runs("start", "poison")) == 2
