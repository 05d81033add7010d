"""The commands that begin a session: log in, set a name, select a database. On a real server with users."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import duly
from duly._async.wire import AsyncWire
from duly._core.resp import ErrorReply
from duly.errors import ServerError, Unavailable, UsageError
from tests.servers import LOOPBACK, Server
from tests.wire.driven import Driver
from tests.wire.scripted import Peer, ScriptedServer

SECRET = "open-sesame"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """Give a server with users: `default` and `anna` have a password, `open` has none, `bare` may run few commands."""
    with Server("valkey", {"requirepass": SECRET}) as server:
        with redis.Redis.from_url(server.url, password=SECRET) as client:
            client.execute_command("ACL", "SETUSER", "anna", "on", f">{SECRET}", "~*", "&*", "+@all")
            client.execute_command("ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all")
            client.execute_command("ACL", "SETUSER", "bare", "on", f">{SECRET}", "~*", "+ping", "+acl|whoami")
        yield server


def options(server: Server, **more: Any) -> dict[str, Any]:
    return {"host": LOOPBACK, "port": server.port, **more}


def raising(error: Exception) -> Callable[[], str]:
    def credentials() -> str:
        raise error

    return credentials


@pytest.mark.parametrize(
    ("login", "user"),
    [
        ({"username": "anna", "password": SECRET}, b"anna"),
        ({"username": "anna", "password": SECRET.encode()}, b"anna"),
        ({"password": SECRET}, b"default"),
        ({"username": "open"}, b"open"),
        ({"credentials": lambda: ("anna", SECRET)}, b"anna"),
        ({"credentials": lambda: ["anna", SECRET.encode()]}, b"anna"),
        ({"credentials": lambda: SECRET}, b"default"),
        ({"credentials": lambda: (SECRET,)}, b"default"),
        ({"credentials": lambda: (None, SECRET)}, b"default"),
        ({"credentials": lambda: ("anna", SECRET), "username": "open"}, b"anna"),
    ],
)
def test_a_user_logs_in(driver: Driver, guarded: Server, login: dict[str, Any], user: bytes) -> None:
    assert driver.opened(options(guarded, **login)).ask("ACL", "WHOAMI") == user


@pytest.mark.parametrize(
    "login",
    [
        {"username": "anna", "password": "wrong"},
        {"username": "nobody", "password": SECRET},
        {"password": "wrong"},
        {"credentials": lambda: "wrong"},
    ],
)
def test_a_refused_login_is_raised_and_the_wire_is_closed(
    driver: Driver, guarded: Server, login: dict[str, Any]
) -> None:
    wire = driver.wire(options(guarded, **login, db=1), name="duly:client")
    with pytest.raises(ErrorReply, match="WRONGPASS") as raised:
        wire.open()
    assert raised.value.refuses_login
    assert not wire.is_open


@pytest.mark.parametrize("login", [{}, {"credentials": lambda: None}])
def test_a_missing_login_is_raised(driver: Driver, guarded: Server, login: dict[str, Any]) -> None:
    with pytest.raises(ErrorReply, match="NOAUTH"):
        driver.opened(options(guarded, **login), name="duly:client").ask("PING")


def test_credentials_are_asked_for_each_connection(driver: Driver, guarded: Server) -> None:
    calls = iter([("anna", SECRET), ("open", "anything")])
    given = options(guarded, credentials=lambda: next(calls))
    assert [driver.opened(given).ask("ACL", "WHOAMI") for _ in range(2)] == [b"anna", b"open"]


@pytest.mark.parametrize("error", [KeyError("token"), RuntimeError("no token")])
def test_credentials_that_fail_are_like_an_outage(driver: Driver, guarded: Server, error: Exception) -> None:
    wire = driver.wire(options(guarded, credentials=raising(error)))
    with pytest.raises(ConnectionError, match=rf"credentials\(\) raised {type(error).__name__}: .*token") as raised:
        wire.open()
    assert raised.value.__cause__ is error
    assert not wire.is_open


@pytest.mark.parametrize("given", [17, ("anna", 17), {"anna": SECRET}, ({}, SECRET), ("a", "b", "c")])
def test_credentials_of_another_type_are_refused_without_showing_them(
    driver: Driver, guarded: Server, given: Any
) -> None:
    with pytest.raises(UsageError, match="must return a user and a password") as raised:
        driver.opened(options(guarded, credentials=lambda: given))
    assert SECRET not in str(raised.value)


def test_credentials_that_block_do_not_block_the_event_loop(async_driver: Driver, guarded: Server) -> None:
    def slow() -> str:
        time.sleep(0.2)
        return SECRET

    async def open_and_count(wire: AsyncWire) -> int:
        opening = asyncio.create_task(wire.open())
        turns = 0
        while not opening.done():
            await asyncio.sleep(0.005)
            turns += 1
        await opening
        return turns

    wire = async_driver.wire(options(guarded, credentials=slow))
    assert async_driver.run(lambda: open_and_count(wire.wire)) > 5
    assert wire.is_open


# --- Names and databases


def test_a_user_that_may_not_set_a_name_stays_unnamed(driver: Driver, guarded: Server) -> None:
    wire = driver.opened(options(guarded, username="bare", password=SECRET), name="duly:client")
    assert wire.ask("ACL", "WHOAMI") == b"bare"
    assert wire.ask("PING") == b"PONG"


def test_a_name_of_the_user_must_be_set(driver: Driver, guarded: Server) -> None:
    with pytest.raises(ErrorReply, match="NOPERM"):
        driver.opened(options(guarded, username="bare", password=SECRET, client_name="mine"), name="duly:client")
    wire = driver.opened(options(guarded, password=SECRET, client_name="mine"), name="duly:client")
    assert wire.ask("CLIENT", "GETNAME") == b"mine"


def test_the_name_of_the_url_is_used(guarded: Server) -> None:
    with duly.Duly(f"redis://:{SECRET}@{LOOPBACK}:{guarded.port}/0?client_name=shop") as app:
        app.queue("named").stats()
        with redis.Redis.from_url(guarded.url, password=SECRET) as client:
            assert "shop" in {found["name"] for found in client.client_list()}


def test_a_database_is_selected(driver: Driver, guarded: Server) -> None:
    one, other = (driver.opened(options(guarded, password=SECRET, db=number)) for number in (1, 2))
    one.ask("SET", "selected", "one")
    assert (one.ask("GET", "selected"), other.ask("GET", "selected")) == (b"one", None)


def test_a_database_that_does_not_exist_is_refused(driver: Driver, guarded: Server) -> None:
    wire = driver.wire(options(guarded, password=SECRET, db=99), name="duly:client")
    with pytest.raises(ErrorReply, match="DB index is out of range"):
        wire.open()
    assert not wire.is_open


def test_a_session_begins_with_one_write(driver: Driver) -> None:
    seen: list[list[bytes]] = []

    def collect(peer: Peer) -> None:
        with contextlib.suppress(TimeoutError):
            peer.socket.settimeout(0.3)
            while True:
                seen.append(peer.command())

    with ScriptedServer(collect) as server:
        wire = driver.wire(options_of(server, username="me", password="x", db=3), name="duly:client")
        with pytest.raises(OSError, match=r"closed the connection|reset by peer"):
            wire.open()
    assert seen == [[b"AUTH", b"me", b"x"], [b"CLIENT", b"SETNAME", b"duly:client"], [b"SELECT", b"3"]]


def options_of(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    return {**server.options, **more}


# --- The same, as users see it


def test_a_send_with_a_refused_login_raises_at_once(guarded: Server) -> None:
    with (
        duly.Duly(guarded.url, credentials=lambda: ("anna", "wrong")) as app,
        pytest.raises(ServerError, match="refused the connection: WRONGPASS"),
    ):
        app.queue("refused").send(1)


def test_a_send_with_credentials_that_fail_raises_unavailable_with_the_reason(guarded: Server) -> None:
    with (
        duly.Duly(guarded.url, credentials=raising(KeyError("token")), patience=0.1) as app,
        pytest.raises(Unavailable, match=r"credentials\(\) raised KeyError"),
    ):
        app.queue("refused").send(1)


async def test_an_app_whose_token_expires_logs_in_with_the_next_one(guarded: Server) -> None:
    tokens = [SECRET]
    async with duly.AsyncDuly(guarded.url, credentials=lambda: ("rotated", tokens[-1])) as app:
        with redis.Redis.from_url(guarded.url, password=SECRET) as client:
            client.execute_command("ACL", "SETUSER", "rotated", "on", f">{SECRET}", "~*", "&*", "+@all")
            await app.queue("rotated").send(1)
            tokens.append("the next one")
            client.execute_command("ACL", "SETUSER", "rotated", "resetpass", ">the next one")
            client.execute_command("CLIENT", "KILL", "USER", "rotated")
        await app.queue("rotated").send(2)
        assert (await app.queue("rotated").stats()).ready == 2


def test_credentials_must_be_a_plain_function() -> None:
    async def later() -> str:
        return SECRET

    with pytest.raises(UsageError, match="plain function"):
        duly.Duly("redis://localhost", credentials=later)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be a function, not str"):
        duly.Duly("redis://localhost", credentials=SECRET)  # type: ignore[arg-type]
