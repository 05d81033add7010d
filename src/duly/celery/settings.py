"""Settings of Celery that lose no task if a worker dies."""

import logging
from collections.abc import Mapping
from typing import Any, Final

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

    A setting that you have set yourself stays as it is. The log names the settings that were changed. Safe to repeat.
    """

    def apply(**_: Any) -> None:
        changed = {name: value for name, value in SAFE.items() if not app.conf.value_set_for(name)}
        app.conf.update(changed)
        if changed:
            shown = ", ".join(f"{name}={value}" for name, value in changed.items())
            _LOG.info("Celery app %r: set %s. Set them yourself to change that", app.main, shown)

    if app.configured:
        apply()
    else:
        app.on_after_configure.connect(apply, weak=False)
    return Tasks(app)
