"""A wire whose questions come to an end, also when an answer comes in drops."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly._core.address import Kind
from duly._core.call import Arg
from duly._sync.wire import REPLY_TIMEOUT, Wire

LONGEST: Final = 10.0
"""Seconds that one question may take in all."""
_LOOKS: Final = 0.1


class Unfinished(RedisTimeoutError):
    """An answer began and did not end."""


class BoundedWire(Wire):
    """Hangs up on an answer that goes on for too long: the time-out of a socket begins anew with every byte."""

    def __init__(self, kind: Kind, options: Mapping[str, Any]) -> None:
        super().__init__(kind, options)
        self._ends_at = math.inf
        self._is_closed = threading.Event()

    def open(self) -> None:
        """Connect."""
        threading.Thread(target=self._watch, name="duly-doctor", daemon=True).start()
        with self._bounded():
            super().open()

    def ask(self, command: list[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and read its reply."""
        with self._bounded():
            return super().ask(command, timeout)

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self._is_closed.set()
        super().close()

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        self._ends_at = ends_at = time.monotonic() + LONGEST
        try:
            yield
        except (RedisError, OSError) as error:
            if time.monotonic() < ends_at:
                raise
            raise Unfinished(str(error)) from error
        finally:
            self._ends_at = math.inf

    def _watch(self) -> None:
        while not self._is_closed.wait(_LOOKS):
            if time.monotonic() >= self._ends_at:
                self.hang_up()
