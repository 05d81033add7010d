"""Waits for a condition of a test. The deadline is generous: it is not a measure of speed."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 60.0
"""Seconds that anything may take on a busy machine before a test gives up."""


def wait_until(
    condition: Callable[[], object],
    what: str = "it happens",
    describe: Callable[[], object] = str,
    seconds: float = PATIENCE,
) -> None:
    """Wait for a condition to become true. `describe` adds the state to the failure."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, f"waited {seconds:g} s until {what}:\n{describe()}"
        time.sleep(pause_after(waited))


def pause_after(waited: float) -> float:
    """Return how long to pause before the next check. It grows: checks cost processor time that other tests need."""
    return min(max(waited / 10, 0.005), 0.05)
