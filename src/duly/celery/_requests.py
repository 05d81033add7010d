"""Makes a task that has exceeded its time limit a dead letter."""

from typing import Any

from celery.exceptions import TimeLimitExceeded
from celery.worker import state
from celery.worker.request import Request


class KeptRequest(Request):  # type: ignore[misc]
    """A request whose message is dead after its time limit.

    Without `task_acks_on_failure_or_timeout`, Celery returns the message to its queue. So the task would run until its
    time limit again, as often as the delivery limit allows.
    """

    _is_over_time = False

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        """Settle the message of a task that raised an error. A pool of processes calls it for a time limit as well."""
        error = exc_info.exception
        self._is_over_time = isinstance(getattr(error, "exc", error), TimeLimitExceeded)
        return super().on_failure(exc_info, *args, **kwargs)

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001 - Celery calls it so
        """Settle the message. Celery 5.5 and 5.6 do so in pools of processes only, and gevent would keep the lease."""
        self._is_over_time = not soft
        super().on_timeout(soft, timeout)
        if not soft:
            self.reject(requeue=True)

    def reject(self, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - Celery calls it so
        """Reject the message, unless it is settled. A cold shutdown ends tasks early: their messages run again."""
        super().reject(requeue=requeue and (not self._is_over_time or bool(state.should_terminate)))
