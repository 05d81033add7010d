"""The error for a missing permission names the roles that have it and the command that prints their rules."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

import duly
from duly._core import rights
from duly._core.call import Call
from duly._core.rights import roles_of
from duly.acl.roles import KINDS_OF, ROLES
from duly.errors import ServerError
from tests.acl.conftest import NewUser
from tests.acl.users import give_rights
from tests.binaries import Kind
from tests.conftest import StartedServer

TITLES = {"queue": "queue 'q'", "topic": "topic 't'", "group": "group 't/g'", "freeing": "group 't/g'"}


def advice(roles: str, first: str, user: str, call: str) -> str:
    whom = (
        f", or for this one with `--user {user}`: an admin can do everything"
        if first == "admin"
        else f": given to {user!r}, they would replace its current ones"
    )
    return (
        f"The user {user!r} of this connection lacks a permission: {call} is for {roles}. `duly acl --role {first}` "
        f"prints the permissions, for a separate user{whom}"
    )


def user_of(url: str) -> str:
    return url.partition("://")[2].partition(":")[0]


CALLS: dict[str, Callable[[duly.Duly, str], object]] = {
    "send": lambda app, name: app.queue(name).send("body"),
    "receive": lambda app, name: app.queue(name).receive(wait=0),
    "stats": lambda app, name: app.queue(name).stats(),
    "purge": lambda app, name: app.queue(name).purge(),
    "redrive": lambda app, name: app.queue(name).redrive(),
    "audit": lambda app, name: app.queue(name).audit(),
}


@pytest.mark.parametrize(
    ("role", "call", "first", "roles"),
    [
        ("observer", "send", "producer", "the roles producer, consumer and admin"),
        ("observer", "receive", "consumer", "the roles consumer and admin"),
        ("consumer", "stats", "observer", "the roles observer and admin"),
        ("consumer", "purge", "admin", "the role admin alone"),
        ("consumer", "redrive", "admin", "the role admin alone"),
        ("consumer", "audit", "observer", "the roles observer and admin"),
    ],
)
def test_a_refusal_names_the_call_the_user_and_the_roles_that_may(
    new_user: NewUser, queue_name: str, role: str, call: str, first: str, roles: str
) -> None:
    url = new_user(role)

    with duly.Duly(url) as app, pytest.raises(ServerError) as refused:
        CALLS[call](app, queue_name)

    assert str(refused.value).startswith(f"{call} on queue {queue_name!r} failed on ")
    assert f". {advice(roles, first, user_of(url), call)}" in str(refused.value)


@pytest.mark.parametrize(
    ("role", "own", "call"),
    [("producer", "send", "stats"), ("observer", "stats", "send"), ("consumer", "send", "purge")],
)
def test_the_suggested_role_allows_the_call_and_all_previous_calls(
    new_user: NewUser, root: "redis.Redis", queue_name: str, role: str, own: str, call: str
) -> None:
    url = new_user(role)
    with duly.Duly(url) as app, pytest.raises(ServerError) as refused:
        CALLS[call](app, queue_name)

    advised = re.search(r"`duly acl --role (\w+)(?: --user (\S+))?`", str(refused.value))
    assert advised is not None
    if advised[2] is None:
        url_for_call = new_user(advised[1])
    else:
        give_rights(root, advised[2], advised[1])
        url_for_call = url

    with duly.Duly(url_for_call) as app:
        CALLS[call](app, queue_name)
    with duly.Duly(url) as app:
        CALLS[own](app, queue_name)


def test_a_refused_command_of_the_client_is_named(new_user: NewUser) -> None:
    url = new_user("producer")

    with duly.Duly(url) as app, pytest.raises(ServerError, match="'scan' command") as refused:
        app.queues()

    assert str(refused.value).startswith("listing the queues failed on ")
    assert advice("the roles observer and admin", "observer", user_of(url), "listing") in str(refused.value)


async def test_the_async_client_raises_the_same_error(new_user: NewUser, queue_name: str) -> None:
    url = new_user("producer")
    says = f"`duly acl --role observer` prints the permissions, for a separate user: given to '{user_of(url)}'"

    async with duly.AsyncDuly(url) as app:
        with pytest.raises(ServerError, match=says):
            await app.queue(queue_name).stats()
        with pytest.raises(ServerError, match=says):
            await app.queues()


def test_a_user_of_another_namespace_gets_a_hint_about_namespaces(new_user: NewUser, queue_name: str) -> None:
    with duly.Duly(new_user("producer"), namespace="other") as app, pytest.raises(ServerError, match="--namespace"):
        app.queue(queue_name).send("body")


def test_the_named_roles_are_those_that_may_run_the_call() -> None:
    for script, kinds in KINDS_OF.items():
        for kind in kinds:
            title = Call.titled(script, TITLES[kind])
            has = {role.name for role in ROLES.values() if role.runs(script, kind)}
            assert set(roles_of(title)) == has, title


def test_a_user_whose_name_the_shell_would_split_is_quoted_in_the_advice() -> None:
    said = rights.advice("purge on queue 'q'", "shop; reboot", "NOPERM")

    assert "`--user 'shop; reboot'`: an admin can do everything" in said


def test_a_wrong_password_is_not_reported_as_a_missing_permission(new_user: NewUser, queue_name: str) -> None:
    url = new_user("producer").replace("@", "-wrong@")

    with duly.Duly(url) as app, pytest.raises(ServerError, match="refused the connection") as refused:
        app.queue(queue_name).send("body")

    assert "duly acl" not in str(refused.value)


def test_the_error_of_a_wrong_password_has_one_full_stop(server: StartedServer, kind: Kind, queue_name: str) -> None:
    url = server(kind).url.replace("://", "://:secret@")

    with duly.Duly(url) as app, pytest.raises(ServerError, match=r"[^.?]\? Check user and password in the URL"):
        app.queue(queue_name).send("body")


@pytest.mark.parametrize("durable", ["replica", 1, "fsync"])
def test_a_send_that_the_server_does_not_confirm_is_stored_and_not_durable(
    new_user: NewUser, root: "redis.Redis", queue_name: str, durable: Any
) -> None:
    url = new_user("producer")
    # Not by name: a server may lack WAITAOF.
    root.execute_command("ACL", "SETUSER", user_of(url), "-wait", "-@blocking")  # type: ignore[no-untyped-call]
    with duly.Duly(url) as app:
        with pytest.raises(
            duly.NotDurable, match=r"did not confirm it: NOPERM|does not show whether it syncs"
        ) as raised:
            app.queue(queue_name).send("body", durable=durable)
        (stored,) = raised.value.ids
    assert root.hexists(f"duly:{{{queue_name}}}:msgs", stored)
