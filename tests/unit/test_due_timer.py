"""The timer that wakes a worker at a due time: of the kernel, or of the event loop where there is none."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest

from duly.worker import due_timer
from duly.worker.due_timer import DueTimer


class Alarm:
    """A timer that notes when it fires."""

    def __init__(self) -> None:
        self.fired: list[float] = []
        self._is_fired = asyncio.Event()
        self.timer = DueTimer(self._note)

    def _note(self) -> None:
        self.fired.append(time.monotonic())
        self._is_fired.set()

    async def wait(self) -> float:
        await asyncio.wait_for(self._is_fired.wait(), 30)
        self._is_fired.clear()
        return self.fired[-1]


@pytest.fixture(params=["of the kernel", "of the event loop"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "of the event loop":
        monkeypatch.setattr(due_timer, "_KERNEL", None)
    elif due_timer._KERNEL is None:
        pytest.skip("this system has no such timers")


@pytest.fixture
async def alarm(_kind: None) -> AsyncIterator[Alarm]:
    alarm = Alarm()
    yield alarm
    alarm.timer.close()


async def test_it_fires_once_and_not_before_its_time(alarm: Alarm) -> None:
    for seconds in (0.0004, 0.0011, 0.02):
        moment = time.monotonic() + seconds
        alarm.timer.set(moment)
        assert await alarm.wait() >= moment - 0.001  # the timers of event loops count milliseconds
    await asyncio.sleep(0.05)
    assert len(alarm.fired) == 3


async def test_the_timer_of_the_kernel_is_never_early() -> None:
    if due_timer._KERNEL is None:
        pytest.skip("this system has no such timers")
    alarm = Alarm()
    for number in range(20):
        moment = time.monotonic() + 0.0001 * number
        alarm.timer.set(moment)
        assert await alarm.wait() >= moment - 1e-6
    alarm.timer.close()


async def test_a_time_that_is_over_fires_at_once(alarm: Alarm) -> None:
    alarm.timer.set(time.monotonic() - 10)
    await alarm.wait()
    alarm.timer.set(0.0)
    await alarm.wait()


async def test_only_the_last_time_that_was_set_counts(alarm: Alarm) -> None:
    later = time.monotonic() + 0.1
    alarm.timer.set(time.monotonic() + 0.01)
    alarm.timer.set(later)
    assert await alarm.wait() >= later - 0.001
    assert len(alarm.fired) == 1


async def test_the_same_time_can_be_set_again_after_it_has_fired(alarm: Alarm) -> None:
    moment = time.monotonic() + 0.01
    for _ in range(3):
        alarm.timer.set(moment)
        alarm.timer.set(moment)
        await alarm.wait()
    assert len(alarm.fired) == 3


async def test_a_timer_that_was_stopped_or_closed_does_not_fire(alarm: Alarm) -> None:
    alarm.timer.set(time.monotonic() + 0.02)
    alarm.timer.set(None)
    await asyncio.sleep(0.05)
    alarm.timer.set(time.monotonic() + 0.02)
    alarm.timer.close()
    alarm.timer.close()
    await asyncio.sleep(0.05)
    assert alarm.fired == []


async def test_closing_frees_the_file_descriptor() -> None:
    timer = DueTimer(lambda: None)
    if (descriptor := timer._kernel_timer) is None:
        pytest.skip("this system has no such timers")
    os.fstat(descriptor)
    timer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


async def test_an_event_loop_that_cannot_read_descriptors_uses_its_own_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    alarm = Alarm()
    alarm.timer.set(time.monotonic() + 0.001)
    await alarm.wait()
    alarm.timer.close()
