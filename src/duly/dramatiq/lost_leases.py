"""Interrupts an actor whose message was cancelled, purged or redelivered, and does not retry that message."""

import threading
from typing import Any, Final

import dramatiq
from dramatiq.middleware.threading import (
    Interrupt,
    current_platform,
    is_gevent_active,
    raise_thread_exception,
    supported_platforms,
)

_PERIOD: Final = 0.25
"""Seconds between two checks of the running messages."""


class LostLease(Interrupt):
    """Is raised in an actor whose message is no longer its own. It was cancelled, purged or redelivered."""


class LostLeases(dramatiq.Middleware):
    """Watches the leases of running messages. The broker adds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Any] = {}
        """Messages, by the threads that run them."""
        self._interrupts: bool = current_platform in supported_platforms and not is_gevent_active()
        self._stop = threading.Event()

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Start the thread that watches."""
        self._stop = threading.Event()
        if self._interrupts:
            threading.Thread(target=self._watch, args=(self._stop,), name="duly-dramatiq", daemon=True).start()

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """End the thread."""
        self._stop.set()

    def before_process_message(self, broker: dramatiq.Broker, message: Any) -> None:
        """Skip a message that was lost while it waited for a thread, and watch the others."""
        if message.delivery.lost:
            raise dramatiq.middleware.SkipMessage
        with self._lock:
            self._running[threading.get_ident()] = message

    def after_process_message(
        self, broker: dramatiq.Broker, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Stop watching. A lost message is not retried: it is in the queue again, or was cancelled."""
        with self._lock:
            self._running.pop(threading.get_ident(), None)
        if exception is not None and message.delivery.lost:
            message.options["throws"] = BaseException

    def after_skip_message(self, broker: dramatiq.Broker, message: Any) -> None:
        """Stop watching."""
        with self._lock:
            self._running.pop(threading.get_ident(), None)

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(_PERIOD):
            with self._lock:
                for thread, message in list(self._running.items()):
                    if message.delivery.lost:
                        del self._running[thread]  # before its thread can go on to another message
                        raise_thread_exception(thread, LostLease)
