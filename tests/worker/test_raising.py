"""A handler may raise anything: the worker and other handlers continue, and the message follows its retry policy."""

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import duly
from tests.conftest import StartedServer
from tests.fault.recorded import assert_accounts
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, ids_of, module_of

pytestmark = [pytest.mark.fault, pytest.mark.slow]

OPTIONS: Final = "lease=20, retry=duly.Retry(attempts=2, first=0.01)"
LOOPS: Final = {"asyncio": 'sys.modules["uvloop"] = None\n', "uvloop": ""}
"""Which event loop the worker uses; the first line keeps it from finding uvloop."""

RAISERS: Final = """
class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("this has no text")

class Odd(Exception):
    def __str__(self):
        return 5

class Base(BaseException):
    pass

def recurse():
    return recurse()

def raised(error):
    raise error

ERRORS = {
    "Exception": lambda: raised(Exception("plain")),
    "SystemExit": lambda: sys.exit(0),
    "KeyboardInterrupt": lambda: raised(KeyboardInterrupt()),
    "CancelledError": lambda: raised(asyncio.CancelledError("mine")),
    "RecursionError": recurse,
    "MemoryError": lambda: raised(MemoryError()),
    "GeneratorExit": lambda: raised(GeneratorExit()),
    "StopIteration": lambda: next(iter(())),
    "StopAsyncIteration": lambda: raised(StopAsyncIteration()),
    "ExceptionGroup": lambda: raised(ExceptionGroup("two", [ValueError(1), TypeError(2)])),
    "BaseExceptionGroup": lambda: raised(BaseExceptionGroup("one", [KeyboardInterrupt()])),
    "Unspeakable": lambda: raised(Unspeakable()),
    "Odd": lambda: raised(Odd()),
    "Base": lambda: raised(Base("no Exception")),
    "UnicodeError": lambda: raised(UnicodeError("lone \\udcff\\ud800 surrogates")),
    "OSError": lambda: raised(OSError("\\0" + "long " * 10_000)),
    "LeaseLost": lambda: raised(duly.LeaseLost("not really")),
    "Unavailable": lambda: raised(duly.Unavailable("another server")),
}
"""
NAMES: Final = (
    "Exception", "SystemExit", "KeyboardInterrupt", "CancelledError", "RecursionError", "MemoryError",
    "GeneratorExit", "StopIteration", "StopAsyncIteration", "ExceptionGroup", "BaseExceptionGroup", "Unspeakable",
    "Odd", "Base", "UnicodeError", "OSError", "LeaseLost", "Unavailable",
)  # fmt: skip

HANDLERS: Final = {
    "async": """
@orders.handler(concurrency=4)
async def on_order(body, d):
    note("begin", id=d.id, attempt=d.attempt)
    if body in ERRORS:
        ERRORS[body]()
""",
    "async, later": """
@orders.handler(concurrency=4)
async def on_order(body, d):
    note("begin", id=d.id, attempt=d.attempt)
    await asyncio.sleep(0.01)
    if body in ERRORS:
        ERRORS[body]()
""",
    "async, timed": """
@orders.handler(concurrency=4, timeout=30)
async def on_order(body, d):
    note("begin", id=d.id, attempt=d.attempt)
    await asyncio.sleep(0.01)
    if body in ERRORS:
        ERRORS[body]()
""",
    "def": """
@orders.handler(concurrency=4)
def on_order(body, d):
    note("begin", id=d.id, attempt=d.attempt)
    if body in ERRORS:
        ERRORS[body]()
""",
}
CASES: Final = [(manner, loop) for manner in HANDLERS for loop in LOOPS if manner != "def" or loop == "uvloop"]


@pytest.mark.parametrize(("manner", "loop"), CASES)
def test_any_exception_is_retried_by_policy_and_then_dead(
    manner: str, loop: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = LOOPS[loop] + module_of(queue_name, OPTIONS, RAISERS + HANDLERS[manner])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as worker:
        queue = app.queue(queue_name)
        bodies = [body for name in NAMES for body in (name, "fine")]
        ids: dict[str, str] = dict(zip(queue.send_many(bodies), bodies, strict=True))
        wait_until(lambda: queue.stats().live == 0 or worker.process.poll() is not None)
        last = queue.send("last")
        wait_until(lambda: queue.stats().live == 0 or worker.process.poll() is not None)

        assert worker.stop() == 0, worker.log()
        assert "worker.broken" not in worker.log()
        letters = {ids[each.id]: each for each in queue.list("dead", limit=100)}
        assert set(letters) == set(NAMES)
        for name, letter in letters.items():
            assert (letter.reason, letter.failures, letter.crashes) == ("failed at attempt 2 of 2", 2, 0)
            assert [error.attempt for error in letter.errors] == [1, 2]
            # Python turns a StopIteration from a coroutine into a RuntimeError.
            expected = "RuntimeError" if name == "StopIteration" and manner != "def" else name
            assert all(error.error.startswith(expected) for error in letter.errors), letter.errors
        begins = Counter(ids_of(worker.notes("begin")))
        assert begins == {**{id_: 1 if body == "fine" else 2 for id_, body in ids.items()}, last: 1}
        assert_accounts(queue, sent=len(ids) + 1, acked=len(NAMES) + 1, dead=len(NAMES), crashed=0, released=0)


def test_an_error_that_raises_when_it_is_formatted(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    url = server("valkey").url
    handler = """
        class Silent(Exception):
            def __str__(self):
                raise SystemExit(3)

        @orders.handler
        def on_order(body):
            if body == "raise":
                raise Silent
    """
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        queue.send_many(["raise", "fine"])
        worker = stack.enter_context(
            WorkerProcess(url, tmp_path, module_of(queue_name, OPTIONS, handler), "--grace", "1")
        )
        wait_until(lambda: queue.stats().live == 0 or worker.process.poll() is not None)

        assert worker.stop() == 0, worker.log()
        assert [error.error for error in queue.list("dead")[0].errors] == ["Silent", "Silent"]
        assert_accounts(queue, sent=2, acked=1, dead=1, crashed=0, released=0)


IN_A_TASK: Final = {
    "a group": "async with asyncio.TaskGroup() as group:\n            group.create_task(leave(body))",
    "gather": "await asyncio.gather(leave(body), asyncio.sleep(0.01))",
    "wait_for": "await asyncio.wait_for(asyncio.create_task(leave(body)), 30)",
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", IN_A_TASK)
def test_an_exit_in_a_task_of_a_handler_ends_no_other_handler(
    how: str, loop: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """An event loop stops for these errors, wherever they are raised."""
    url = server("valkey").url
    handler = f"""
async def leave(error):
    raise (SystemExit(0) if error == "SystemExit" else KeyboardInterrupt)

@orders.handler(concurrency=5)
async def on_order(body, d):
    note("begin", id=d.id)
    if body == "fine":
        await asyncio.sleep(0.1)
    else:
        {IN_A_TASK[how]}
"""
    source = LOOPS[loop] + module_of(queue_name, OPTIONS, handler)
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        ids = queue.send_many(["fine", "SystemExit", "fine", "KeyboardInterrupt", "fine", "fine"])
        worker = stack.enter_context(WorkerProcess(url, tmp_path, source, "--grace", "2"))
        wait_until(lambda: queue.stats().live == 0 or worker.process.poll() is not None)

        assert worker.stop() == 0, worker.log()
        assert queue.stats().live == 0, worker.log()
        assert Counter(ids_of(worker.notes("begin"))) == {id_: 2 if n in (1, 3) else 1 for n, id_ in enumerate(ids)}
        assert {letter.id: letter.reason for letter in queue.list("dead")} == dict.fromkeys(
            (ids[1], ids[3]), "failed at attempt 2 of 2"
        )
        assert_accounts(queue, sent=6, acked=4, dead=2, crashed=0, released=0)


# --- Handlers that cancel themselves -----------------------------------------------------------------------

CANCELLING: Final = {
    "and waits": ("asyncio.current_task().cancel()\n        await asyncio.sleep(60)", "dead"),
    "and returns": ("asyncio.current_task().cancel()", "acked"),
    "twice and returns": ("asyncio.current_task().cancel(); asyncio.current_task().cancel()", "acked"),
    "and waits it out": ("asyncio.current_task().cancel()\n        await waited_out()", "acked"),
    "and fails": ("asyncio.current_task().cancel()\n        raise ValueError", "dead"),
    "later": ("asyncio.get_running_loop().call_later(0.1, asyncio.current_task().cancel)", "acked"),
}
"""The code by which a handler cancels its own task, and the outcome of its message."""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", CANCELLING)
def test_a_handler_that_cancels_itself_affects_no_other_message(
    how: str, loop: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    what, fate = CANCELLING[how]
    handler = f"""
async def waited_out():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        pass

@orders.handler(concurrency=2)
async def on_order(body, d):
    note("begin", id=d.id, attempt=d.attempt)
    if body == "cancel":
        {what}
    else:
        await asyncio.sleep(0.01)
"""
    source = LOOPS[loop] + module_of(queue_name, OPTIONS, handler)
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as worker:
        queue = app.queue(queue_name)
        first = queue.send_many(["cancel", "fine", "fine", "cancel", "fine"])
        wait_until(lambda: queue.stats().live == 0 or worker.process.poll() is not None)
        time.sleep(0.3)  # for delayed effects
        again = queue.send_many(["fine"] * 10)
        wait_until(lambda: queue.stats().live == 0 or worker.process.poll() is not None)

        assert worker.stop() == 0, worker.log()
        assert "worker.broken" not in worker.log()
        cancelling = {first[0], first[3]}
        tries = Counter(ids_of(worker.notes("begin")))
        assert {tries[id_] for id_ in (*first, *again) if id_ not in cancelling} == {1}
        assert_accounts(
            queue, sent=15, acked=15 if fate == "acked" else 13, dead=0 if fate == "acked" else 2, crashed=0
        )
