"""The store of an app on `memory://`: emptying it between tests, and the keys that commits change."""

from typing import Any

from duly._async.app import AsyncDuly
from duly._core.effects import checked_effects
from duly._port import memory_engine
from duly._sync.app import Duly
from duly.errors import UsageError
from duly.memory.engine import Engine


def empty(app: Duly | AsyncDuly) -> None:
    """Remove all queues, topics and schedules of an app on `memory://`, and free its locks. Its handlers stay.

    The records of `once`, the list of workers and the user's keys in its store are removed as well.
    """
    engine = memory_engine(app)
    if engine is None:
        raise UsageError(f"empty is for memory://, not for {app!r}: the data on a server may belong to other programs")
    with Duly(app, namespace=app.namespace) as same:
        for schedule in same.schedules():
            same.unschedule(schedule.name)
        for topic in same.topics():
            same.topic(topic).delete()
        for queue in same.queues():
            same.queue(queue).delete()
        engine.forget_all_but_queues(app.namespace)


class UserKeys:
    """Reads and writes the user's keys. On a real server, use redis-py."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, key: str | bytes) -> Any:
        """Return the value of a key, or None if it does not exist.

        A string is bytes, a hash and a sorted set are dicts, a set is a set, a list is a list, and a stream is
        a list of pairs of id and fields. A HyperLogLog (PFADD) is the set of added values.
        """
        return self._engine.read_key(key if isinstance(key, bytes) else key.encode())

    def run(self, *command: Any) -> None:
        """Run a command as a commit would: `run("SET", "stock:1", 10)`. Raises UsageError if it is refused."""
        (effect,) = checked_effects([command], [])
        problem = self._engine.change_key(effect)
        if problem is not None:
            raise UsageError(f"{effect.name} of key {command[1]!r} cannot be: {problem}")


def user_keys(app: Duly | AsyncDuly) -> UserKeys:
    """Return the keys of the user in the store of an app on `memory://`."""
    engine = memory_engine(app)
    if engine is None:
        raise UsageError(f"user_keys is for memory://, not for {app!r}: read keys of a server with redis-py")
    return UserKeys(engine)
