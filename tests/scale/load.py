"""A load for faults of several servers: senders and consumers of several queues, their history, and its checks.

Each queue has a sync and an async sender, a sync consumer, and a worker of all queues. The `kept` queue has one sender
and no consumer until the end: a message that is missing there was lost, and was not delivered before. So the losses of
this queue are exactly the calls that the client of its sender reports as rolled back.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import duly
from duly.worker import Worker
from tests.fault.history import History, Recorder, Report, check
from tests.fault.recorded import AHEAD_NS
from tests.waiting import wait_until

PATIENCE: Final = 60.0
LEASE: Final = 10.0
DELAY: Final = 0.5
"""Seconds of delay of every tenth message."""
BATCH: Final = 10
_PAUSE: Final = 0.005
"""Seconds between two sends of a sender."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run, after all queues were drained."""

    report: Report
    confirmed: int
    lost: int
    unconfirmed: int
    """Sends that raised an error: they may have been stored."""
    rolled_back: int
    """Calls that the clients of the load report as confirmed and lost."""
    lost_leases: int
    kept_confirmed: int
    kept_lost: int
    """Messages of the kept queue that were confirmed and are missing."""
    kept_rolled_back: int
    """Calls of the sender of the kept queue that its client reports as confirmed and lost."""
    pauses: Mapping[str, float]
    """By queue: the longest time in seconds without a confirmed send."""

    def __str__(self) -> str:
        longest = ", ".join(f"{name[-12:]} {seconds:.2f} s" for name, seconds in self.pauses.items())
        return (
            f"{self.confirmed} sends confirmed, {self.lost} lost, {self.unconfirmed} raised an error; "
            f"{self.report.total.duplicated} redelivered {dict(self.report.causes)}, {self.lost_leases} leases lost; "
            f"{self.rolled_back} calls rolled back; kept queue: {self.kept_confirmed} confirmed, "
            f"{self.kept_lost} lost, {self.kept_rolled_back} rolled back; longest pauses: {longest}"
        )

    def assert_nothing_lost(self, **fired: int) -> None:
        """Fail unless every confirmed message was delivered exactly once, never early, and the faults have fired."""
        self._assert_sound(fired)
        assert (self.lost, self.report.total.duplicated, self.lost_leases) == (0, 0, 0), self
        assert (self.rolled_back, self.kept_lost, self.kept_rolled_back) == (0, 0, 0), self

    def assert_only_rolled_back(self, **fired: int) -> None:
        """Fail unless every loss and every second delivery comes from calls that the clients report as rolled back."""
        self._assert_sound(fired)
        assert self.kept_lost == self.kept_rolled_back, self
        assert self.lost <= self.rolled_back + self.kept_rolled_back, self
        assert set(self.report.causes) <= {"rollback", "lease expired"}, self
        assert self.report.causes.get("rollback", 0) <= self.rolled_back * BATCH, self

    def assert_confirmed_survive(self, **fired: int) -> None:
        """Fail unless every confirmed message was delivered. Sends that raised an error may be rolled back."""
        self._assert_sound(fired)
        assert self.lost == 0, self

    def _assert_sound(self, fired: Mapping[str, int]) -> None:
        never = [name for name, count in fired.items() if count < 1]
        assert not never, f"never fired: {never}"
        assert self.confirmed > 100, self
        others = [each for each in self.report.violations if each.check != "H1"]
        assert not others, f"{self}\n" + "\n".join(map(str, others[:20]))


class Load:
    """Senders and consumers, until `end`. Errors in `bears` end a send, but not its sender."""

    def __init__(
        self,
        url: str,
        queues: Sequence[str],
        *,
        kept: str | None = None,
        bears: tuple[type[Exception], ...] = (duly.NotDurable,),
        senders: int = 1,
        pause: float = _PAUSE,
        lease: float = LEASE,
        **options: Any,
    ) -> None:
        """`senders`: the async senders of each queue. `options`: of each send."""
        self._url, self._queues, self._options, self._lease = url, list(queues), options, lease
        self._kept, self._bears, self._senders, self._pause = kept, bears, senders, pause
        self.sends = Recorder("senders")
        self.receives = Recorder("consumers")
        self._marks = Recorder("server")
        self.errors: list[Exception] = []
        """Errors of sends that were borne."""
        self._is_ending = threading.Event()
        self._is_over = threading.Event()
        self._numbers = itertools.count()
        self._confirmed_at: dict[str, list[float]] = {name: [] for name in (*queues, *filter(None, [kept]))}
        self._handled: dict[str, int] = dict.fromkeys(queues, 0)
        self._worker: Worker | None = None
        self._aio: duly.AsyncDuly | None = None
        self._app = duly.Duly(url, patience=PATIENCE)
        self._kept_app = duly.Duly(url, patience=PATIENCE)
        self._pool = ThreadPoolExecutor(2 * len(queues) + 2)
        self._sending: list[Future[None]] = [self._pool.submit(self._send, self._app, name) for name in queues]
        if kept is not None:
            self._sending.append(self._pool.submit(self._send, self._kept_app, kept))
        self._receiving: list[Future[None]] = [self._pool.submit(self._receive, name) for name in queues]
        self._receiving.append(self._pool.submit(lambda: asyncio.run(self._work())))

    # Work

    def _send(self, app: duly.Duly, name: str) -> None:
        queue = app.queue(name)
        while not self._is_ending.wait(self._pause):
            with self._one_send(name) as (body, delay):
                queue.send(body, delay=delay, **self._options)

    async def _send_async(self, app: duly.AsyncDuly, name: str) -> None:
        queue = app.queue(name)
        while not self._is_ending.is_set():
            with self._one_send(name) as (body, delay):
                await queue.send(body, delay=delay, **self._options)
            await asyncio.sleep(self._pause)

    @contextmanager
    def _one_send(self, name: str) -> Iterator[tuple[str, float]]:
        """Record one send. The body is unique, and is the name of the message in the history."""
        number = next(self._numbers)
        body, delay = f"{name}/{number}", DELAY if number % 10 == 0 else 0
        due_us = round(time.time_ns() / 1000 + delay * 1e6) if delay else None
        try:
            with self.sends.operation("send", body, due_us=due_us):
                yield body, delay
            self._confirmed_at[name].append(time.monotonic())
        except self._bears as error:
            self.errors.append(error)

    def _receive(self, name: str) -> None:
        queue = self._app.queue(name)
        while not self._is_over.is_set():
            with suppress(*self._bears):
                self._settle(name, queue, queue.receive(BATCH, wait=0.2, lease=self._lease))

    def _settle(self, name: str, queue: "duly.Queue[Any]", found: list[Any]) -> None:
        if not found:
            return
        self._note_claimed(found)
        began = time.monotonic_ns()
        lost = {getattr(each, "id", each) for each in queue.ack_many(found)}
        for each in found:
            outcome = "fail" if each.id in lost else "ok"
            self.receives.record("ack", outcome, id=each.body, invoked_ns=began, fence=each.fence)  # type: ignore[arg-type]
        self._handled[name] = self._handled.get(name, 0) + len(found)

    async def _work(self) -> None:
        """Run the worker and the async senders."""
        async with duly.AsyncDuly(self._url, patience=PATIENCE) as app:
            self._aio = app
            for name in self._queues:
                app.queue(name, lease=self._lease).handler()(self._handler(name))
            async with Worker(app) as self._worker:
                await asyncio.gather(
                    *(self._send_async(app, name) for name in self._queues for _ in range(self._senders))
                )
                await asyncio.to_thread(self._is_over.wait)

    def _handler(self, name: str) -> Callable[["duly.AsyncDelivery[Any]"], Awaitable[None]]:
        async def handle(delivery: duly.AsyncDelivery[Any]) -> None:
            self._note_claimed([delivery])
            self._handled[name] += 1
            if delivery.fence % 2:  # the worker acks the others
                with (
                    suppress(duly.LeaseLost),
                    self.receives.operation("ack", delivery.body, fence=delivery.fence, refusals=(duly.LeaseLost,)),
                ):
                    await delivery.ack()
            else:
                now = time.monotonic_ns()
                self.receives.record("ack", "info", id=delivery.body, fence=delivery.fence, invoked_ns=now)

        return handle

    def _note_claimed(self, found: Sequence[Any]) -> None:
        returned = time.monotonic_ns()
        for each in found:
            # A fence is the server's time of the claim, and all servers run here: claims are placed exactly.
            self.receives.record(
                "claim",
                "ok",
                id=each.body,
                invoked_ns=min(each.fence * 1000 - AHEAD_NS, returned),
                server_us=each.fence,
                fence=each.fence,
                attempt=each.attempt,
                lease_us=round(self._lease * 1e6),
            )

    # Views

    def confirmed(self, name: str) -> int:
        """Return how many sends to a queue were confirmed."""
        return len(self._confirmed_at[name])

    def wait_for_more(self, *queues: str, count: int = 30) -> None:
        """Wait until senders and consumers of these queues, or of all, have gone on."""
        names = queues or tuple(self._confirmed_at)
        sent = {name: self.confirmed(name) + count for name in names}
        handled = {name: self._handled[name] + count for name in names if name != self._kept}

        def have_gone_on() -> bool:
            return all(self.confirmed(name) >= goal for name, goal in sent.items()) and all(
                self._handled[name] >= goal for name, goal in handled.items()
            )

        wait_until(lambda: have_gone_on() or self._has_failed(), "the load goes on", lambda: (sent, handled))
        self._raise_failure()

    def _has_failed(self) -> bool:
        return any(each.done() and each.exception() for each in (*self._sending, *self._receiving))

    def _raise_failure(self) -> None:
        for each in (*self._sending, *self._receiving):
            if each.done() and not self._is_ending.is_set():
                each.result()

    def note_rollback(self, began: float) -> None:
        """Record that servers may have forgotten calls since a moment of the monotonic clock."""
        self._marks.record("rollback", "info", invoked_ns=round(began * 1e9))

    @property
    def rolled_back(self) -> int:
        """The calls of senders and consumers that their clients report as confirmed and lost."""
        links = [self._app._link, *([self._aio._link] if self._aio else [])]
        if self._worker is not None:
            links.append(self._worker._async_app._link)
        return sum(link.rolled_back for link in {id(link): link for link in links}.values())

    # The end

    def end(self) -> Outcome:
        """Deliver all that is left, and check the history."""
        self._is_ending.set()
        try:
            for each in self._sending:
                each.result(2 * PATIENCE)
            wait_until(lambda: self._is_empty() or self._has_failed(), "all queues are empty", self._left, 2 * PATIENCE)
            self._drain_kept()
        finally:
            self._is_over.set()
        for each in self._receiving:
            each.result(2 * PATIENCE)
        for name in self._confirmed_at:
            assert self._app.queue(name).audit().ok, name
        outcome = self._outcome()
        print(outcome)  # noqa: T201
        self.close()
        return outcome

    def close(self) -> None:
        """Stop, without checks. Safe to repeat."""
        self._is_ending.set()
        self._is_over.set()
        self._app.close()
        self._kept_app.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _left(self) -> dict[str, duly.Stats]:
        return {name: self._app.queue(name).stats() for name in self._queues}

    def _is_empty(self) -> bool:
        return not any(_waiting(stats) for stats in self._left().values())

    def _drain_kept(self) -> None:
        if self._kept is None:
            return
        time.sleep(DELAY)
        queue = self._app.queue(self._kept)
        while _waiting(queue.stats()):
            self._settle(self._kept, queue, queue.receive(100, wait=1, lease=PATIENCE))

    def _outcome(self) -> Outcome:
        history = History.of(self.sends, self.receives, self._marks)
        report = check(history)
        lost = report.total.lost
        return Outcome(
            report=report,
            confirmed=report.total.acknowledged,
            lost=len(lost),
            unconfirmed=len(self.errors),
            rolled_back=self.rolled_back,
            lost_leases=len(history.select("ack", type="fail")),
            kept_confirmed=0 if self._kept is None else self.confirmed(self._kept),
            kept_lost=sum(1 for each in lost if each.rpartition("/")[0] == self._kept),
            kept_rolled_back=self._kept_app._link.rolled_back,
            pauses={name: _longest_pause(moments) for name, moments in self._confirmed_at.items()},
        )


def _waiting(stats: duly.Stats) -> int:
    return stats.ready + stats.leased + stats.delayed


def _longest_pause(moments: Sequence[float]) -> float:
    ordered = sorted(moments)
    return max((later - earlier for earlier, later in itertools.pairwise(ordered)), default=0.0)


@contextmanager
def load(url: str, queues: Sequence[str], **options: Any) -> Iterator[Load]:
    """Run a load. It is ended by the caller, with `end`, or here if the test fails."""
    work = Load(url, queues, **options)
    try:
        work.wait_for_more()
        yield work
    finally:
        work.close()
