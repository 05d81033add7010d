"""The user's keys in the store of a `memory://` app, which commits change."""

from typing import Any

from duly._async.app import AsyncDuly
from duly._core.effects import checked_effects
from duly._sync.app import Duly
from duly.errors import UsageError
from duly.memory.engine import Engine


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
    """Return the user's keys in the store of an app on `memory://`. Raises UsageError for an app on a server."""
    engine = getattr(app._link, "engine", None)
    if not isinstance(engine, Engine):
        raise UsageError(f"user_keys is for memory://, not for {app!r}: read keys of a server with redis-py")
    return UserKeys(engine)
