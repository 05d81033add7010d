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


def setup(app: Any) -> Tasks:
    """Set safe defaults of a Celery app, and return the control of its tasks. Call it before tasks are defined.

    A setting that you have set yourself stays as it is. The log names the settings that were changed:
    that of a worker when it is ready. Safe to repeat.
    """

    def apply(**_: Any) -> None:
        changed = {name: value for name, value in SAFE.items() if not app.conf.value_set_for(name)}
        app.conf.update(changed)
        if changed:
            _log(app, changed)

    if app.configured:
        apply()
    else:
        app.on_after_configure.connect(apply, weak=False)
    return Tasks(app)


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
