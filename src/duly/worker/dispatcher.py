"""Hands the messages of one queue to what runs its handler: slots for `async def`, threads for `def`."""

from collections.abc import Iterable, Sequence

from duly._async.delivery import AsyncDelivery
from duly._core.handlers import TaskSet
from duly._core.hooks import Hooks
from duly.worker.collector import Collector
from duly.worker.settler import Settler
from duly.worker.slots import Slots
from duly.worker.station import AnyDelivery, Station
from duly.worker.threads import Threads
from duly.worker.work import RELEASE, BatchWork, HandlerWork, Item, TaskWork, Work


class Dispatcher:
    """One queue's runners."""

    def __init__(self, station: Station, hooks: Hooks, settler: Settler) -> None:
        self._station = station
        self._settler = settler
        self._work = _work_for(station, hooks, settler)
        self._slots = Slots(self._work, station.slots)
        self._threads = Threads(self._work, station.slots)
        self._runners = (self._slots, self._threads)
        batch = station.handler.batch
        self._collector = None if batch is None else Collector(station, self._runner_for(station.is_async), batch)

    def dispatch(self, deliveries: Sequence[AnyDelivery], *, alone: bool = False) -> None:
        """Handle these. `alone`: nothing else is claimed until they are done."""
        if self._collector is not None:
            self._collector.add(deliveries, at_once=alone)
        elif self._station.is_mixed:
            self._slots.add([each for each in deliveries if isinstance(each, AsyncDelivery)])
            self._threads.add([each for each in deliveries if not isinstance(each, AsyncDelivery)])
        else:
            self._runner_for(self._station.is_async).add(deliveries)

    def release(self, deliveries: Iterable[AnyDelivery]) -> None:
        """Give these back."""
        for delivery in deliveries:
            self._settler.add(self._station, delivery, RELEASE)

    def release_waiting(self) -> None:
        """Give back what was not started."""
        if self._collector is not None:
            self.release(self._collector.take_back())
        for runner in self._runners:
            for item in runner.take_back():
                self._work.settle(item, self._work.alike(item, RELEASE))

    def cut_off(self) -> int:
        """Give back what runs, and return how many."""
        running = self._running()
        for runner, item in running:
            for delivery in self._work.deliveries(item):
                delivery.lost = True
            runner.cancel(item, "stop")
        return len(running)

    def note_lost(self, delivery: AnyDelivery) -> None:
        """Cancel the handler of a message that somebody else has by now."""
        for runner, item in self._running():
            if delivery in self._work.deliveries(item) and self._work.is_lost(item):
                runner.cancel(item, "lost")

    def close(self) -> None:
        """Let nothing more be run, without waiting for what is."""
        for runner in self._runners:
            runner.close()

    async def aclose(self) -> None:
        """End slots and threads."""
        for runner in self._runners:
            await runner.aclose()

    def _runner_for(self, is_async: bool) -> Slots | Threads:  # noqa: FBT001
        return self._slots if is_async else self._threads

    def _running(self) -> list[tuple[Slots | Threads, Item]]:
        return [(runner, item) for runner in self._runners for item in runner.running()]


def _work_for(station: Station, hooks: Hooks, settler: Settler) -> Work:
    handler = station.handler
    if isinstance(handler, TaskSet):
        return TaskWork(station, hooks, settler, handler)
    kind = HandlerWork if handler.batch is None else BatchWork
    return kind(station, hooks, settler, handler)
