"""Both ends of the version ranges of the extras `celery`, `dramatiq` and `taskiq`, each in a new environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.packaging.place import Place

CELERY = """
import sys, time, duly.celery
from celery import Celery
from celery.contrib.testing.worker import start_worker
app = Celery("shop", broker="duly+" + sys.argv[1], backend="rpc://")
app.conf.broker_transport_options = {"namespace": sys.argv[2]}
tasks = duly.celery.setup(app, keep_failed=True)
@app.task(name="double")
def double(number):
    return 2 * number
@app.task(name="fail")
def fail():
    raise ValueError
with start_worker(app, pool="solo", perform_ping_check=False):
    print(double.apply_async([21], countdown=0.1).get(timeout=60))
    fail.delay()
    while not (dead := tasks.dead()):
        time.sleep(0.1)
assert [task.name for task in dead] == ["fail"]
"""
DRAMATIQ = """
import sys, dramatiq
from dramatiq.results import Results
from duly.dramatiq import DulyBackend, DulyBroker
broker = DulyBroker(sys.argv[1], namespace=sys.argv[2])
broker.add_middleware(Results(backend=DulyBackend(broker.app)))
dramatiq.set_broker(broker)
@dramatiq.actor(store_results=True)
def double(number):
    return 2 * number
worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
worker.start()
print(double.send_with_options(args=(21,), delay=100).get_result(block=True, timeout=60000))
worker.stop()
broker.close()
"""
TASKIQ = """
import asyncio, sys, duly
from taskiq import ScheduledTask, TaskiqScheduler
from taskiq.api import run_receiver_task
from duly.taskiq import DulyBroker, DulyResultBackend, DulyScheduleSource
async def main():
    async with duly.AsyncDuly(sys.argv[1], namespace=sys.argv[2]) as app:
        broker = DulyBroker(app).with_result_backend(DulyResultBackend(app))
        @broker.task(task_name="double")
        async def double(number: int) -> int:
            return 2 * number
        receiver = asyncio.create_task(run_receiver_task(broker))
        sent = await double.kicker().with_labels(delay=0.1).kiq(21)
        print((await sent.wait_result(timeout=60)).return_value)
        source = DulyScheduleSource(app)
        schedule = ScheduledTask(task_name="double", labels={}, args=[1], kwargs={}, cron="* * * * *")
        await source.add_schedule(schedule)
        assert await source.get_schedules() == [schedule]
        receiver.cancel()
        await asyncio.wait([receiver])
asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "versions", "program"),
    [
        ("celery", ["celery==5.5.0", "kombu==5.5.2"], CELERY),
        ("celery", ["celery==5.7.*", "kombu==5.7.*"], CELERY),
        ("dramatiq", ["dramatiq==2.0.0"], DRAMATIQ),
        ("dramatiq", ["dramatiq==2.2.*"], DRAMATIQ),
        ("taskiq", ["taskiq==0.12.0"], TASKIQ),
        ("taskiq", ["taskiq==0.13.*"], TASKIQ),
    ],
)
def test_the_extra_works_at_this_end_of_its_range(
    wheel: Path, server: StartedServer, queue_name: str, tmp_path: Path, extra: str, versions: list[str], program: str
) -> None:
    place = Place(tmp_path / "env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place.directory)], check=True)
    wanted = [f"{wheel}[{extra}]", *versions]
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(place.python), "install", "--quiet", *wanted],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr

    done = place.run("python", "-c", program, server("valkey").url, f"{extra}-{queue_name}")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "42\n"
