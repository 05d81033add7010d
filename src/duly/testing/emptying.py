"""An app on `memory://` that many tests share, emptied between them."""

from duly._async.app import AsyncDuly
from duly._sync.app import Duly
from duly.errors import UsageError


def empty(app: Duly | AsyncDuly) -> None:
    """Remove all queues, topics and schedules of an app on `memory://`, and free its locks. Its handlers stay.

    What `once` and the list of workers know is forgotten, too, and the keys of the user in its store are removed.
    """
    if app._address.kind != "memory":
        raise UsageError(f"empty is for memory://, not for {app!r}: what is on a server may be somebody's")
    with Duly(app, namespace=app.namespace) as same:
        for schedule in same.schedules():
            same.unschedule(schedule.name)
        for topic in same.topics():
            same.topic(topic).delete()
        for queue in same.queues():
            same.queue(queue).delete()
        same._link.engine.forget_all_but_queues(app.namespace)
