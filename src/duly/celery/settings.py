"""Settings of Celery that lose no task if a worker dies."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from celery import signals

from duly.celery.tasks import Tasks

_LOG: Final = logging.getLogger("duly.celery")

SAFE: Final[Mapping[str, Any]] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
}
"""A task is acked when it has ended. A task whose process was killed runs again. A worker fetches what it can run."""

KEEPING: Final[Mapping[str, Any]] = {"task_acks_on_failure_or_timeout": False}
"""A task that has failed for good is rejected, and not acked."""

DEFAULT: Final = "celery.worker.request:Request"
KEPT: Final = "duly.celery._requests:KeptRequest"
"""Names of classes, for `Task.Request`: only workers import them."""


def setup(app: Any, *, keep_failed: bool = False) -> Tasks:
    """Set safe defaults of a Celery app, and return the control of its tasks. Call it before tasks are defined.

    A setting that you have set yourself stays as it is. The log names the settings that were changed:
    that of a worker when it is ready. Safe to repeat.

    Celery acks a task that has failed, so nothing of it stays on the server. With `keep_failed`, a task becomes a dead
    letter if it raised an error, if its retries are spent, or if it exceeded its `time_limit`. `Tasks.redrive` runs it
    once more. This sets `task_acks_on_failure_or_timeout=False`.
    """

    def apply(**_: Any) -> None:
        wanted = {**SAFE, **KEEPING} if keep_failed else SAFE
        changed = {name: value for name, value in wanted.items() if not app.conf.value_set_for(name)}
        app.conf.update(changed)
        if changed:
            _log(app, changed)

    if app.configured:
        apply()
    else:
        app.on_after_configure.connect(apply, weak=False)
    if keep_failed:
        _keep_after_time_limits(app)
    return Tasks(app)


def _keep_after_time_limits(app: Any) -> None:
    """Reject the message of a task that exceeds its time limit, which Celery would return to its queue."""

    def apply(sender: Any, **_: Any) -> None:
        """A class of requests that you have chosen stays."""
        if sender.app is app:
            for task in app.tasks.values():
                if task.Request == DEFAULT:
                    task.Request = KEPT

    signals.worker_init.connect(apply, weak=False)


def _log(app: Any, changed: Mapping[str, Any]) -> None:
    """Log the settings once: now if a log shows the line, or else when the worker is ready and logging is set up."""
    shown = ", ".join(f"{name}={value}" for name, value in changed.items())

    def log() -> None:
        _LOG.info("Celery app %r: set %s. Set them yourself to change that", app.main, shown)

    def log_if_ready(sender: Any, **_: Any) -> None:
        if sender.app is app:
            log()

    if _LOG.isEnabledFor(logging.INFO) and _LOG.hasHandlers():
        log()
    else:
        signals.worker_ready.connect(log_if_ready, weak=False)
