"""Apps that were never closed, event loops that have ended, and forks: no connection is left, and no warning."""

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis
import uvloop

import duly
from duly._async.wire import AsyncWire
from duly._core.address import Kind
from tests.servers import Server
from tests.waiting import wait_until
from tests.wire.certificates import Authority
from tests.wire.relay import TlsRelay

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with Server("valkey") as server:
        yield server


@pytest.fixture(params=["tcp", "tls", "unix"])
def url(request: pytest.FixtureRequest, own: Server, authority: Authority) -> Iterator[str]:
    if request.param == "unix":
        yield own.unix_url
    elif request.param == "tcp":
        yield own.url
    else:
        context = authority.server_context(authority.sign("IP:127.0.0.1"))
        with TlsRelay(own.port, context) as relay:
            yield f"rediss://127.0.0.1:{relay.port}/0?ssl_ca_certs={authority.file}"


@contextmanager
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in found] == []


def connections(server: Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        return sum(found["name"].startswith("duly:") for found in client.client_list())


def test_a_sync_app_that_was_not_closed_leaves_no_connection_and_no_warning(own: Server, url: str) -> None:
    with no_warnings():
        app = duly.Duly(url)
        app.queue("unclosed").stats()
        assert connections(own) >= 1
        del app
        gc.collect()
    wait_until(lambda: connections(own) == 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_async_app_that_was_not_closed_leaves_no_connection_and_no_warning(own: Server, url: str, loop: str) -> None:
    async def use() -> None:
        app = duly.AsyncDuly(url)
        await app.queue("unclosed").stats()
        assert connections(own) >= 1
        del app
        gc.collect()
        await asyncio.sleep(0)  # the event loop aborts the connection
        await asyncio.to_thread(wait_until, lambda: connections(own) == 0)

    with no_warnings(), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(use())


@pytest.mark.parametrize("loop", LOOPS)
def test_an_async_app_that_outlives_its_event_loop_leaves_no_connection(own: Server, url: str, loop: str) -> None:
    apps: list[Any] = []

    async def use() -> None:
        if not apps:
            apps.append(duly.AsyncDuly(url))
        await apps[0].queue("unclosed").stats()
        assert connections(own) == 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # uvloop warns of transports when it is closed, and so does asyncio with TLS
        for _ in range(3):  # in each loop, the connections of the loop before are dropped
            with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                runner.run(use())
        apps.clear()
        gc.collect()
        wait_until(lambda: connections(own) == 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_send_in_progress_when_its_event_loop_ends_leaves_no_connection(own: Server, url: str, loop: str) -> None:
    apps: list[Any] = []

    async def use() -> None:
        if not apps:
            apps.append(duly.AsyncDuly(url))
        queue = apps[0].queue("unclosed")
        await queue.send("a")
        wait_until(lambda: connections(own) == 1)
        with redis.Redis.from_url(own.url) as client:
            client.client_pause(60_000, all=False)
        asyncio.create_task(queue.send("b"))  # noqa: RUF006 - it is left behind
        await asyncio.sleep(0)

    with warnings.catch_warnings(), redis.Redis.from_url(own.url) as client:
        warnings.simplefilter("ignore")  # as in the test above
        for _ in range(3):
            try:
                with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                    runner.run(use())
            finally:
                client.client_unpause()
        apps.clear()
        gc.collect()
        wait_until(lambda: connections(own) == 0)


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_connection_that_is_closed_after_its_event_loop_leaves_no_socket(
    own: Server, authority: Authority, kind: Kind
) -> None:
    """uvloop closes its transports itself, with a warning."""
    options: dict[str, Any] = {"host": "127.0.0.1", "port": own.port}
    with ExitStack() as stack:
        if kind == "tls":
            relay = stack.enter_context(TlsRelay(own.port, authority.server_context(authority.sign("IP:127.0.0.1"))))
            options = {"host": "127.0.0.1", "port": relay.port, "ssl_ca_certs": authority.file}
        stack.enter_context(no_warnings())
        wire = AsyncWire(kind, options, "duly:unclosed")
        with asyncio.Runner() as runner:
            runner.run(wire.open())
            assert connections(own) == 1
        wire.hang_up()
        wait_until(lambda: connections(own) == 0)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_program_that_ends_without_closing_its_app_writes_nothing(own: Server, url: str, kind: str) -> None:
    program = {
        "sync": f"import duly\napp = duly.Duly({url!r})\napp.queue('unclosed').stats()",
        "async": (
            f"import asyncio, duly\napp = duly.AsyncDuly({url!r})\n"
            "async def use():\n"
            "    asyncio.get_running_loop().slow_callback_duration = 60  # on a busy machine\n"
            "    await app.queue('unclosed').stats()\n"
            "asyncio.run(use())"
        ),
    }[kind]
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FORKING = """
import os, sys, duly
app = duly.Duly({url!r})
queue = app.queue("forked")
queue.send(0)
child = os.fork()
if not child:
    queue.send("of the child")  # on its own connection
    sys.exit()  # with the finalizers of a normal end
assert os.waitpid(child, 0)[1] == 0
wire = app._link.connections.router.pools[0]._free[-1]
assert wire.is_open
before = wire._socket
queue.send(1)
assert app._link.connections.router.pools[0]._free[-1]._socket is before
app.close()
"""


def test_a_child_that_ends_leaves_the_connections_of_its_parent_alone(own: Server, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", FORKING.format(url=url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
