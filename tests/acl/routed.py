"""A link that sends each call as the user of a role: the first of some roles that has it, in the order they are given.

Nothing is ever sent as the server's default user. A call that no role has is a failure of the test.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from duly._core.address import Address
from duly._core.call import Call
from duly._core.keys import LockKeys
from duly._sync.link import Link
from duly.acl.roles import ROLES, Role
from tests.acl.users import address_as, give_rights, open_namespaces

LEAST_FIRST: Final = ("observer", "producer", "consumer", "admin")


def user_of(role: str) -> str:
    return f"duly-{role}"


def create_users(url: str) -> None:
    """Create a user for each role, who may use any namespace, and those with commits the keys of tests."""
    client = redis.Redis.from_url(url)
    for role in ROLES:
        own_keys = ["test-*"] if ROLES[role].runs("commit", "queue") else []
        give_rights(client, user_of(role), role, own_keys=own_keys)
    open_namespaces(client, map(user_of, ROLES))
    client.close()


def routing(roles: Sequence[str]) -> Callable[..., Any]:
    """Return a replacement for `Link`. An address with a user keeps its user."""

    def make(address: Address, **options: Any) -> Any:
        if "username" in address.options:
            return Link(address, **options)
        return RoutedLink(address, roles, **options)

    return make


class RoutedLink:
    """Links to one server, one for each role."""

    is_spread = False

    def __init__(self, address: Address, roles: Sequence[str], **options: Any) -> None:
        self._roles = [ROLES[name] for name in roles]
        self._links = {name: Link(address_as(address, user_of(name)), **options) for name in roles}
        self.consumer = self._links[roles[0]].consumer
        self.patience = self._links[roles[0]].patience
        for link in self._links.values():
            link.connections.consumer = self.consumer

    def run(self, call: Call[Any]) -> Any:
        return self._for_call(call).run(call)

    def run_now(self, call: Call[Any]) -> Any:
        return self._for_call(call).run_now(call)

    def run_whole(self, call: Call[Any], _if_interrupted: object) -> Any:
        return self.run_now(call)

    def run_durably(self, call: Call[Any], durable: Any) -> Any:
        return self._for_call(call).run_durably(call, durable)

    def wait_for_token(self, keys: Any, seconds: float, *, exact: bool) -> bool:
        script = "lock" if isinstance(keys, LockKeys) else "claim"
        return self._for_script(script, keys).wait_for_token(keys, seconds, exact=exact)

    def wait_for_entry(self, keys: Any, position: Any, seconds: float, *, exact: bool) -> bool:
        script = "read_topic" if keys.kind == "topic" else "claim"
        return self._for_script(script, keys).wait_for_entry(keys, position, seconds, exact=exact)

    def watch_end(self, keys: Any, id: str) -> Any:  # noqa: A002
        return self._for_script("await_end", keys).watch_end(keys, id)

    def queues(self, namespace: str) -> list[str]:
        return self._who(lambda role: "scan" in role.sends).queues(namespace)

    def topics(self, namespace: str) -> list[str]:
        return self._who(lambda role: "scan" in role.sends).topics(namespace)

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def _who(self, has: Callable[[Role], bool]) -> Link:
        return self._links[next(role.name for role in self._roles if has(role))]

    def _for_script(self, script: str, keys: Any) -> Link:
        return self._who(lambda role: role.runs(script, keys.kind))

    def _for_call(self, call: Call[Any]) -> Link:
        name, kind = call.script.name, call.keys.kind
        is_repair = name == "audit" and call.args[call.script.argv.index("repair")] == 1
        role = next(
            each for each in self._roles if each.runs(name, kind) and not (is_repair and name in each.read_only)
        )
        if name == "read_topic" and name in role.read_only:
            self._links["admin"].run(call)  # an observer cannot move due entries into the stream, so an admin does
        return self._links[role.name]
