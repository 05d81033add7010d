"""Users of a server, each with a role and a known password."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import redis

from duly._core.address import Address
from duly.acl import PASSWORD, rules, setuser
from duly.acl.servers import Knowledge, known_of

SECRET: Final = "open-sesame"


def known_by(client: "redis.Redis") -> Knowledge:
    """Return the version of a server."""
    return known_of({name: str(value) for name, value in client.info("server").items()})


def give_rights(client: "redis.Redis", user: str, role: str, namespace: str = "duly", **options: Any) -> None:
    """Create a user with the line that `duly acl` prints."""
    line = setuser(user, rules(role, known_by(client), namespace, **options))
    client.execute_command(*line.replace(f">{PASSWORD}", f">{SECRET}").split(" "))  # type: ignore[no-untyped-call]


def open_namespaces(client: "redis.Redis", users: Iterable[str]) -> None:
    """Allow users every namespace, for tests with separate namespaces."""
    for user in users:
        client.execute_command("ACL", "SETUSER", user, "~*:{*}:*")  # type: ignore[no-untyped-call]


def url_as(url: str, user: str) -> str:
    """Return the address of a server for one of its users."""
    return url.replace("://", f"://{user}:{SECRET}@", 1)


def address_as(address: Address, user: str) -> Address:
    """Return the address of the same server for another user."""
    return replace(address, options={**address.options, "username": user, "password": SECRET})
