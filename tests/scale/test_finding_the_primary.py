"""An app finds the primary through sentinels: scripted ones, and servers without replicas."""

import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import duly
from duly._async.sentinels import AsyncSentinels
from duly._core import address
from duly._core.topology import Node
from tests import warm
from tests.acl.users import give_rights, url_as
from tests.conftest import need
from tests.scale.fake_sentinel import FakeSentinel, url_of
from tests.servers import LOOPBACK, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

NOWHERE = Node(LOOPBACK, 1)
"""No server listens there."""


def at(server: Server) -> Node:
    return Node(LOOPBACK, server.port)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    need("valkey")
    with Server("valkey", {"appendonly": "yes"}) as one, Server("valkey") as other:
        yield one, other


@pytest.fixture
def one(servers: tuple[Server, Server]) -> Server:
    return servers[0]


@pytest.fixture
def other(servers: tuple[Server, Server]) -> Server:
    return servers[1]


@asynccontextmanager
async def opened(kind: str, url: str, **options: Any) -> AsyncIterator[Any]:
    """Open a sync or an async app. Both are used with `await`."""
    if kind == "async":
        async with duly.AsyncDuly(url, **options) as app:
            yield app
        return
    with duly.Duly(url, **options) as sync_app:
        yield _Awaited(sync_app)


class _Awaited:
    """A sync app whose calls run in a thread."""

    def __init__(self, app: duly.Duly) -> None:
        self._app = app

    def queue(self, name: str) -> Any:
        queue = self._app.queue(name)
        wrapped = {}
        for verb in ("send", "stats"):
            call = getattr(queue, verb)
            wrapped[verb] = lambda *args, call=call: asyncio.to_thread(call, *args)
        return type("Queue", (), {name: staticmethod(call) for name, call in wrapped.items()})


both = pytest.mark.parametrize("kind", ["sync", "async"])


async def count(server: Server, queue_name: str) -> int:
    async with duly.AsyncDuly(server.url) as app:
        return (await app.queue(queue_name).stats()).ready


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "duly"]


@both
async def test_a_larger_epoch_counts_and_a_smaller_one_is_ignored(
    kind: str, one: Server, other: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeSentinel(at(one), epoch=5) as sentinel:
        async with opened(kind, url_of(sentinel)) as app:
            queue = app.queue(queue_name)
            await queue.send("first")
            sentinel.primary, sentinel.epoch = at(other), 4
            asked = len(sentinel.heard)
            sent = 1
            while len(sentinel.heard) == asked:  # it is asked each second
                await asyncio.sleep(0.3)
                await queue.send("to the known primary")
                sent += 1
            assert (await count(one, queue_name), await count(other, queue_name)) == (sent, 0)

            sentinel.epoch = 6
            while not await count(other, queue_name):
                await asyncio.sleep(0.3)
                await queue.send("to the new primary")
    assert [line for line in lines_of(caplog) if "primary" in line] == [
        f"{url_of(sentinel)}: the primary is {at(other)} now, and was {at(one)}"
    ]


@both
async def test_after_a_failure_the_largest_epoch_of_all_sentinels_counts(
    kind: str, one: Server, other: Server, queue_name: str
) -> None:
    """A sentinel that was cut off names an old primary. It may even be a primary again."""
    with (
        FakeSentinel(NOWHERE, epoch=5) as first,
        FakeSentinel(at(other), epoch=3) as stale,
        FakeSentinel(at(one), epoch=6) as right,
    ):
        async with opened(kind, url_of(first, stale, right)) as app:
            await app.queue(queue_name).send("x")
        assert stale.heard, "the stale sentinel was not asked"
    assert (await count(one, queue_name), await count(other, queue_name)) == (1, 0)


@both
async def test_epochs_may_begin_again_when_the_known_primary_has_failed(
    kind: str, one: Server, queue_name: str
) -> None:
    with FakeSentinel(NOWHERE, epoch=9) as sentinel:
        async with opened(kind, url_of(sentinel)) as app:
            sending = asyncio.create_task(app.queue(queue_name).send("x"))
            await asyncio.to_thread(wait_until, lambda: sentinel.heard)
            sentinel.primary, sentinel.epoch = at(one), 0
            await asyncio.wait_for(sending, 20)
    assert await count(one, queue_name) == 1


@both
async def test_calls_go_on_with_the_known_primary_when_all_sentinels_are_away(
    kind: str, one: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "duly")
    with FakeSentinel(at(one)) as first, FakeSentinel(at(one)) as second:
        url = url_of(first, second)
        async with opened(kind, url) as app:
            queue = app.queue(queue_name)
            await queue.send("before")
            first.stop()
            second.stop()
            for _ in range(2):
                await asyncio.sleep(1.1)
                await queue.send("after")
    assert await count(one, queue_name) == 3
    (line,) = lines_of(caplog)
    assert line.startswith(f"no sentinel of {url} names the primary; continuing with the primary {at(one)}: ")


@both
async def test_the_next_sentinel_is_asked_when_one_is_away(kind: str, one: Server, queue_name: str) -> None:
    with FakeSentinel(NOWHERE) as gone, FakeSentinel(at(one)) as right:
        gone.stop()
        async with opened(kind, url_of(gone, right)) as app:
            await app.queue(queue_name).send("x")
    assert await count(one, queue_name) == 1


@both
async def test_an_unknown_service_is_named(kind: str, one: Server, queue_name: str) -> None:
    with FakeSentinel(at(one)) as sentinel:
        async with opened(kind, url_of(sentinel, service="yours"), patience=0.3) as app:
            with pytest.raises(duly.Unavailable, match=f"{sentinel.node} does not know the service 'yours'"):
                await app.queue(queue_name).send("x")


@both
async def test_a_closed_app_raises_and_asks_no_sentinel(kind: str, one: Server, queue_name: str) -> None:
    with FakeSentinel(at(one)) as sentinel:
        async with opened(kind, url_of(sentinel)) as app:
            queue = app.queue(queue_name)
            await queue.send("x")
        heard = len(sentinel.heard)
        await asyncio.sleep(1.1)
        with pytest.raises(duly.UsageError, match="is closed"):
            await queue.send("x")
        assert len(sentinel.heard) == heard


@both
async def test_sentinels_have_their_own_user_and_password(kind: str, one: Server, queue_name: str) -> None:
    with FakeSentinel(at(one), password="s3same") as sentinel:
        url = f"{url_of(sentinel)}?sentinel_username=watch&sentinel_password=s3same"
        async with opened(kind, url) as app:
            await app.queue(queue_name).send("x")
        assert sentinel.heard[0] == ["AUTH", "watch", "s3same"]
        async with opened(kind, url_of(sentinel), patience=0.2) as app:
            with pytest.raises(duly.Unavailable, match="NOAUTH"):
                await app.queue(queue_name).send("x")


async def test_the_tls_options_are_those_of_the_wire_to_a_sentinel(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    class Wire:
        is_open = False

        def __init__(self, kind: str, options: dict[str, Any]) -> None:
            opened.append((kind, options))

        async def open(self, timeout: float) -> None:
            raise ConnectionRefusedError

    monkeypatch.setattr("duly._async.sentinels.AsyncWire", Wire)
    url = "rediss+sentinel://app:pw@s1:26380/mymaster?ssl_cert_reqs=none&sentinel_password=other"

    assert await AsyncSentinels(address.parse(url)).primary() is None
    assert opened == [
        ("tls", {"host": "s1", "port": 26380, "password": "other", "ssl_cert_reqs": "none"}),
    ]


@pytest.mark.parametrize("role", ["producer", "consumer", "admin"])
async def test_users_of_the_roles_may_use_it(role: str, one: Server, queue_name: str) -> None:
    with redis.Redis.from_url(one.url) as root, FakeSentinel(at(one)) as sentinel:
        give_rights(root, f"sentinel-{role}", role)
        root.acl_log_reset()
        async with opened("async", url_as(url_of(sentinel), f"sentinel-{role}")) as app:
            queue = app.queue(queue_name)
            if role == "consumer":
                assert await queue.receive(1, wait=0.1) == []
            else:
                await queue.send("x")
        assert root.acl_log() == []


def run(*words: str, directory: Path) -> Any:
    return warm.run([sys.executable, "-m", "duly", *words], cwd=directory, timeout=60)


def test_commands_examine_the_primary(one: Server, tmp_path: Path) -> None:
    with FakeSentinel(at(one)) as sentinel:
        url = url_of(sentinel)
        rules = run("acl", "--role", "consumer", "--url", url, directory=tmp_path)
        found = run("doctor", "--url", url, "--json", directory=tmp_path)
        wrong = run("doctor", "--url", url_of(sentinel, service="yours"), directory=tmp_path)

    assert rules.returncode == 0, rules.stderr
    assert "+role" in rules.stdout
    assert '"persistence"' in found.stdout, found.stderr
    assert "does not know the service 'yours'" in wrong.stdout + wrong.stderr


def test_a_forked_child_asks_the_sentinels_itself(one: Server, queue_name: str) -> None:
    with FakeSentinel(at(one)) as sentinel, duly.Duly(url_of(sentinel)) as app:
        queue = app.queue(queue_name)
        queue.send("parent")
        heard = len(sentinel.heard)
        pid = os.fork()
        if pid == 0:
            try:
                queue.send("child")
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a child must not return into the test
                traceback.print_exc()
                os._exit(1)
        status = []

        def has_ended() -> bool:
            found, code = os.waitpid(pid, os.WNOHANG)
            status.append(code)
            return found == pid

        wait_until(has_ended, "the child ends")
        assert status[-1] == 0
        assert len(sentinel.heard) > heard
        queue.send("parent again")
        assert queue.stats().ready == 3


def test_an_app_is_used_in_two_event_loops(one: Server, queue_name: str) -> None:
    with FakeSentinel(at(one)) as sentinel:
        app = duly.AsyncDuly(url_of(sentinel))

        async def send() -> int:
            await app.queue(queue_name).send("x")
            return (await app.queue(queue_name).stats()).ready

        async def end() -> None:
            assert await send() == 3
            await app.aclose()

        assert asyncio.run(send()) == 1
        time.sleep(1.1)  # the sentinel is asked again
        assert asyncio.run(send()) == 2
        asyncio.run(end())


def test_a_client_of_redis_py_finds_the_primary_by_its_sentinels(one: Server, queue_name: str) -> None:
    with FakeSentinel(at(one)) as sentinel:
        manager: Any = redis.Sentinel([tuple(sentinel.node)])  # type: ignore[no-untyped-call]
        with duly.Duly(manager.master_for("mymaster")) as app:
            app.queue(queue_name).send(1)
    with duly.Duly(one.url) as direct:
        assert direct.queue(queue_name).stats().ready == 1
