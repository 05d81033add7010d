"""Leases that are kept or lost: stopped processes, blocked event loops, busy threads, handlers over `max_runtime`."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import duly
from tests.conftest import StartedServer
from tests.fault.proxy import SCRIPT_COMMANDS, Action, BlackHole, Command, Policy, Proxy, Stage
from tests.fault.recorded import assert_accounts, assert_drained
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, ids_of, module_of

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MANNERS: Final = ("async", "def")
VERBS: Final = ("ack", "retry", "extend", "defer", "release", "reject", "recycle")
"""The body of each message is a verb: the zombie tries to settle the message with it."""

ARGUMENTS: Final = """
ARGUMENTS = {"extend": (60,), "defer": (60,), "reject": ("dead",)}

def outcome_of(error):
    return "nothing" if error is None else type(error).__name__
"""

# The first delivery goes to the zombie. The second one ends when the test allows it.
ZOMBIES: Final = {
    "async": """
        @orders.handler
        async def on_order(verb, d):
            note("begin", id=d.id, attempt=d.attempt)
            if d.attempt > 1:
                while not os.path.exists("open"):
                    await asyncio.sleep(0.01)
                note("end", id=d.id, lost=d.lost)
                return
            error = None
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                note("cancelled", id=d.id, lost=d.lost)
                try:
                    await getattr(d, verb)(*ARGUMENTS.get(verb, ()))
                except Exception as raised:
                    error = raised
                note("tried", id=d.id, outcome=outcome_of(error))
                raise
    """,
    "def": """
        @orders.handler
        def on_order(verb, d):
            note("begin", id=d.id, attempt=d.attempt)
            if d.attempt > 1:
                while not os.path.exists("open"):
                    time.sleep(0.01)
                note("end", id=d.id, lost=d.lost)
                return
            error = None
            while not d.lost:
                time.sleep(0.01)
            note("cancelled", id=d.id, lost=d.lost)
            try:
                getattr(d, verb)(*ARGUMENTS.get(verb, ()))
            except Exception as raised:
                error = raised
            note("tried", id=d.id, outcome=outcome_of(error))
    """,
    # This handler does not wait for `d.lost`: the event loop is blocked, so the settle precedes the cancellation.
    "async, blocked": """
        @orders.handler
        async def on_order(verb, d):
            note("begin", id=d.id, attempt=d.attempt)
            if d.attempt > 1:
                while not os.path.exists("open"):
                    await asyncio.sleep(0.01)
                note("end", id=d.id, lost=d.lost)
                return
            error = None
            try:
                await asyncio.sleep(0)
                while not os.path.exists("taken"):
                    time.sleep(0.01)
                await getattr(d, verb)(*ARGUMENTS.get(verb, ()))
            except (duly.DulyError, asyncio.CancelledError) as raised:
                error = raised
            note("tried", id=d.id, outcome=outcome_of(error))
            note("cancelled", id=d.id, lost=d.lost)
    """,
}


@pytest.mark.parametrize("manner", ZOMBIES)
def test_a_zombie_changes_nothing(manner: str, server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=3", ARGUMENTS + ZOMBIES[manner].replace("\n        ", "\n"))
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as zombie, ExitStack() as stack:
        queue = app.queue(queue_name)
        ids = queue.send_many(VERBS)
        wait_until(lambda: len(zombie.notes("begin")) >= (1 if manner == "async, blocked" else len(VERBS)))
        zombie.freeze()
        heir = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: sorted(b["id"] for b in heir.notes("begin") if b["pid"] == heir.pid) == sorted(ids))
        (tmp_path / "taken").touch()
        zombie.thaw()
        wait_until(lambda: ids_of(zombie.notes("tried")) != [])
        (tmp_path / "open").touch()
        wait_until(lambda: queue.stats().live == 0)

        assert [zombie.stop(), heir.stop()] == [0, 0], zombie.log() + heir.log()
        # Collected only now: a handler that was stopped during its start continues with the process.
        begun = {begin["id"] for begin in zombie.notes("begin") if begin["pid"] == zombie.pid}
        assert {note["id"] for note in zombie.notes("tried")} == begun
        outcomes = {note["outcome"] for note in zombie.notes("tried")}
        # A handler that blocked the event loop may be cancelled before it settles.
        assert outcomes in (
            {"LeaseLost"},
            *([{"CancelledError"}, {"CancelledError", "LeaseLost"}] if "blocked" in manner else []),
        )
        assert {(note["id"], note["lost"]) for note in zombie.notes("cancelled")} == {(id_, True) for id_ in begun}
        ends = heir.notes("end")
        assert Counter(ids_of(ends)) == Counter(ids)
        assert {(end["pid"], end["lost"]) for end in ends} == {(heir.pid, False)}
        assert_drained(
            queue, sent=len(ids), acked=len(ids), delivered=2 * len(ids), crashed=len(ids), retried=0, deferred=0,
            released=0, recycled=0, buried=0,
        )  # fmt: skip


# --- Messages that a zombie had not started ----------------------------------------------------------------

AHEAD: Final = {
    # The first handler blocks the event loop, so that the other messages are held and cannot start.
    "async": """
        @orders.handler(concurrency=20)
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            while body == "slow" and d.attempt == 1 and not os.path.exists("open"):
                time.sleep(0.01)
    """,
    "def": """
        @orders.handler(concurrency=1)
        def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            while body == "slow" and d.attempt == 1 and not os.path.exists("open"):
                time.sleep(0.01)
    """,
    "async, one at a time": """
        @orders.handler(concurrency=1)
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            while body == "slow" and d.attempt == 1 and not os.path.exists("open"):
                await asyncio.sleep(0.01)
    """,
}


@pytest.mark.parametrize("manner", AHEAD)
def test_messages_that_a_zombie_claimed_ahead_are_not_started(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=3", AHEAD[manner])
    before = 0 if manner == "async" else 1000  # quick ones first, so that it claims ahead
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        ids = queue.send_many(["fast"] * before + ["slow"] + ["fast"] * 300)
        zombie = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: ids[before] in ids_of(zombie.notes("begin")))
        wait_until(lambda: queue.stats().leased > 1)
        zombie.freeze()
        begun = ids_of(zombie.notes("begin"))
        held = {row.id for row in queue.pending(limit=1000).messages}
        heir = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: queue.stats().live == 0)
        assert heir.stop() == 0, heir.log()
        (tmp_path / "open").touch()
        zombie.thaw()
        last = queue.send("last")
        wait_until(lambda: queue.stats().live == 0)

        assert zombie.stop() == 0, zombie.log()
        assert begun == ids[: before + 1]
        assert len(held) > 1
        of_zombie = [begin["id"] for begin in zombie.notes("begin") if begin["pid"] == zombie.pid]
        assert of_zombie == [*begun, last]
        assert_drained(queue, sent=len(ids) + 1, acked=len(ids) + 1, crashed=len(held), retried=0)


# --- Leases that are kept ----------------------------------------------------------------------------------

LEASE: Final = 2
BUSY: Final = {
    "blocks the event loop": """
        @orders.handler(concurrency=2)
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            time.sleep(3)
            note("end", id=d.id, lost=d.lost)
    """,
    "spins in the event loop": """
        @orders.handler(concurrency=2)
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                pass
            note("end", id=d.id, lost=d.lost)
    """,
    "spins in a thread": """
        @orders.handler(concurrency=2)
        def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                pass
            note("end", id=d.id, lost=d.lost)
    """,
    "sleeps": """
        @orders.handler(concurrency=2)
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
            await asyncio.sleep(3)
            note("end", id=d.id, lost=d.lost)
    """,
}
"""Longer than a lease."""


# Two workers that spin in their event loops take both processors for six seconds.
@pytest.mark.parametrize(
    "handler", [pytest.param(name, marks=[pytest.mark.long] * name.startswith("spins in the event")) for name in BUSY]
)
def test_a_handler_that_is_busy_keeps_its_lease(
    handler: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """Even with more messages than it can handle, and another worker that would take over."""
    url = server("valkey").url
    source = module_of(queue_name, f"lease={LEASE}", BUSY[handler])
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        workers = [stack.enter_context(WorkerProcess(url, tmp_path, source)).wait_for_start() for _ in range(2)]
        ids = [queue.send(n) for n in range(4)]
        wait_until(lambda: queue.stats().live == 0)

        assert [worker.stop() for worker in workers] == [0, 0]
        assert Counter(ids_of(workers[0].notes("begin"))) == Counter(ids)
        assert [end["lost"] for end in workers[0].notes("end")] == [False] * 4
        assert_drained(queue, sent=4, acked=4, retried=0)
        # A blocked loop cannot read the reply to a claim in progress, so the leases of these messages may be lost.
        assert queue.stats().crashed == 0 or "event loop" in handler


# --- Leases that are lost ----------------------------------------------------------------------------------

TOO_LONG: Final = {
    "async": """
        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt, crashes=d.crashes, failures=d.failures)
            if d.attempt == 1:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    note("lost", id=d.id, lost=d.lost)
                    raise
    """,
    "def": """
        @orders.handler
        def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt, crashes=d.crashes, failures=d.failures)
            while d.attempt == 1 and not d.lost:
                time.sleep(0.01)
            if d.attempt == 1:
                note("lost", id=d.id, lost=d.lost)
    """,
}


@pytest.mark.parametrize("manner", TOO_LONG)
def test_a_handler_that_exceeds_max_runtime_loses_its_lease(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=1, max_runtime=1", TOO_LONG[manner])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as worker:
        queue = app.queue(queue_name)
        ids = queue.send_many(["one", "two"])
        wait_until(lambda: queue.stats().live == 0)
        wait_until(lambda: len(worker.notes("lost")) == 2)

        assert worker.stop() == 0, worker.log()
        begins = [
            (begin["id"], begin["attempt"], begin["crashes"], begin["failures"]) for begin in worker.notes("begin")
        ]
        assert sorted(begins) == sorted((id_, n + 1, n, 0) for id_ in ids for n in (0, 1))
        assert sorted((note["id"], note["lost"]) for note in worker.notes("lost")) == [
            (id_, True) for id_ in sorted(ids)
        ]
        assert_accounts(queue, sent=2, acked=2, delivered=4, crashed=2, retried=0, dead=0)


def test_a_message_that_always_exceeds_max_runtime_is_poison(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = """
        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id, crashes=d.crashes)
            await asyncio.sleep(600 if body == "slow" else 0)
    """
    module = module_of(queue_name, "lease=1.5, max_runtime=0.5, crash_limit=2", source)
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, module) as worker:
        queue = app.queue(queue_name)
        slow = queue.send("slow")
        queue.send_many(["fast"] * 10)
        wait_until(lambda: queue.stats().live == 0)

        assert worker.stop() == 0, worker.log()
        assert [(each.id, each.reason, each.crashes) for each in queue.list("dead")] == [(slow, "poison", 2)]
        assert [begin["crashes"] for begin in worker.notes("begin") if begin["id"] == slow] == [0, 1]
        assert_accounts(queue, sent=11, acked=10, dead=1, crashed=2)


# --- Replies that are read late ----------------------------------------------------------------------------


class HoldFirstClaim(Policy):
    """Delays the reply to the first claim of a worker."""

    def choose(self, command: Command) -> Action | None:
        is_claim = b"stay" in command.args()
        return BlackHole(Stage.EXECUTED) if is_claim and not self.fired else None


@pytest.mark.parametrize("manner", AHEAD)
def test_a_claim_answered_after_the_lease_starts_no_handler(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """The leases that the worker knows are renewed during that time. It does not know this one."""
    source = module_of(queue_name, "lease=2", AHEAD[manner])
    policy = HoldFirstClaim(only=SCRIPT_COMMANDS)
    with duly.Duly(server("valkey").url) as app, Proxy(server("valkey").port, policy) as proxy, ExitStack() as stack:
        queue = app.queue(queue_name)
        assert queue.receive(1, wait=0) == []  # from now on the server knows the script
        id_ = queue.send("fast")
        worker = stack.enter_context(WorkerProcess(proxy.url, tmp_path, source))
        wait_until(lambda: policy.fired == 1)
        (taken,) = queue.receive(1, wait=30, lease=60)
        proxy.heal()
        last = queue.send("fast")
        wait_until(lambda: queue.stats().acked == 1)
        taken.ack()

        assert worker.stop() == 0, worker.log()
        assert (taken.id, taken.crashes) == (id_, 1)
        assert ids_of(worker.notes("begin")) == [last]
        assert_drained(queue, sent=2, acked=2, crashed=1, retried=0)


def test_a_settle_that_is_under_way_is_not_taken_for_a_loss(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """The message is acked, but a blocked event loop has not read the reply. A renewal then finds no lease."""
    url = server("valkey").url
    source = """
        @orders.handler
        async def on_order(steps, d):
            ack = asyncio.ensure_future(d.ack())
            for _ in range(steps):
                await asyncio.sleep(0)
            note("blocks", is_acked=ack.done())
            time.sleep(2)
            await ack
            await asyncio.sleep(0.1)
            note("end", id=d.id, lost=d.lost)
    """
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        ids = [queue.send(steps) for steps in (2, 3, 4)]
        worker = stack.enter_context(
            WorkerProcess(url, tmp_path, module_of(queue_name, "lease=1", source), "--concurrency", "1")
        )
        wait_until(lambda: queue.stats().live == 0)

        assert worker.stop() == 0, worker.log()
        assert not all(note["is_acked"] for note in worker.notes("blocks"))
        assert [(note["id"], note["lost"]) for note in worker.notes("end")] == [(id_, False) for id_ in ids]
        assert "lease.lost" not in worker.log()
        assert_drained(queue, sent=3, acked=3, delivered=3, crashed=0, retried=0)
