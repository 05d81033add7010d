"""Removes the data of a `memory://` app between tests that share it."""

from duly._async.app import AsyncDuly
from duly._sync.app import Duly
from duly.errors import UsageError


def empty(app: Duly | AsyncDuly) -> None:
    """Remove all queues, topics, schedules and locks of an app on `memory://`. Its handlers stay.

    The records of `once`, the list of workers, and the user's keys in its store are removed as well. Raises UsageError
    for an app on a server.
    """
    if app._address.kind != "memory":
        raise UsageError(f"empty is for memory://, not for {app!r}: the data on a server may belong to others")
    with Duly(app, namespace=app.namespace) as same:
        for schedule in same.schedules():
            same.unschedule(schedule.name)
        for topic in same.topics():
            same.topic(topic).delete()
        for queue in same.queues():
            same.queue(queue).delete()
        same._link.engine.forget_all_but_queues(app.namespace)
