"""The limits of a role, and the actions that rules for commands and keys cannot prevent."""

from collections.abc import Callable

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

import duly
from duly.acl import ROLES
from duly.errors import ServerError
from tests.acl.conftest import NewUser

Connect = Callable[[str], "redis.Redis"]
every_role = pytest.mark.parametrize("role", ROLES)
HARMFUL = (
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "me", "+@all"),
    ("CLIENT", "LIST"),
    ("SCRIPT", "FLUSH"),
    ("SHUTDOWN",),
    ("MONITOR",),
    ("REPLICAOF", "NO", "ONE"),
    ("RENAME", "duly:{a}:meta", "duly:{b}:meta"),
    ("PUBLISH", "duly:{a}:news", "hello"),
)
WRITES = (
    ("HSET", "1", "1"),
    ("HDEL", "1"),
    ("ZADD", "1", "1"),
    ("SET", "1"),
    ("DEL",),
    ("UNLINK",),
    ("RPUSH", "1"),
    ("XADD", "*", "a", "1"),
    ("XGROUP", "DESTROY", "g"),
    ("PEXPIRE", "1"),
    ("BLPOP", "0.01"),
)


def run(client: "redis.Redis", *command: str) -> object:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]


def key_of(command: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Insert a key into a command."""
    at = 2 if command[0] == "XGROUP" else 1
    return (*command[:at], key, *command[at:])


@every_role
def test_no_role_may_harm_the_server(role: str, plain: Connect) -> None:
    client = plain(role)

    for command in HARMFUL:
        with pytest.raises(NoPermissionError):
            run(client, *command)


@every_role
def test_other_keys_are_out_of_reach(role: str, plain: Connect) -> None:
    """Even by a script that does not declare them."""
    client = plain(role)

    for key in ("stock:1", "duly2:{orders}:meta", "shop:{orders}:meta", "duly:orders", "x:duly:{orders}:meta"):
        with pytest.raises(NoPermissionError):
            client.hget(key, "field")
        with pytest.raises(ResponseError, match=r"can't|o permissions"):
            client.eval(f"return redis.call('HGET', '{key}', 'field')", 0)


def test_an_observer_cannot_write_by_commands_or_scripts(plain: Connect, root: "redis.Redis") -> None:
    client, key = plain("observer"), "duly:{observed}:meta"

    for command in WRITES:
        with pytest.raises(NoPermissionError):
            run(client, *key_of(command, key))
        words = ", ".join(f"'{word}'" for word in key_of(command, key))
        with pytest.raises(ResponseError, match=r"can't run|o permissions|not allowed from script"):
            client.eval(f"return redis.call({words})", 1, key)
    assert not root.exists(key)


def test_an_observer_cannot_send_claim_settle_or_delete(new_user: NewUser, queue_name: str) -> None:
    with duly.Duly(new_user("producer")) as producer, duly.Duly(new_user("observer")) as observer:
        id_ = producer.queue(queue_name).send("body")
        queue = observer.queue(queue_name)
        for act in (
            lambda: queue.send("more"),
            lambda: queue.receive(wait=0),
            lambda: queue.cancel(id_),
            lambda: queue.promote(id_),
            queue.pause,
            queue.purge,
            queue.delete,
            lambda: queue.audit(repair=True),
            lambda: observer.lock("l", ttl=1).__enter__(),
            lambda: observer.topic(queue_name).publish(1),
        ):
            with pytest.raises(ServerError, match="duly acl --role"):
                act()

        assert queue.stats().ready == 1


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_only_an_admin_may_delete(role: str, new_user: NewUser, queue_name: str) -> None:
    with duly.Duly(new_user(role)) as app, duly.Duly(new_user("admin")) as admin:
        app.queue(queue_name).send("body")

        with pytest.raises(ServerError, match="duly acl --role"):
            app.queue(queue_name).delete()
        with pytest.raises(ServerError, match="duly acl --role"):
            app.queue(queue_name).stats()
        with pytest.raises(ServerError, match="duly acl --role"):
            app.queues()

        admin.queue(queue_name).delete()
        assert queue_name not in admin.queues()


def test_a_producer_cannot_join_a_group(new_user: NewUser, queue_name: str) -> None:
    with duly.Duly(new_user("producer")) as app:
        app.topic(queue_name).publish(1)

        with pytest.raises(ServerError, match="duly acl --role"):
            app.topic(queue_name).group("archive").receive(wait=0)


def test_a_producer_can_read_messages_of_other_producers(plain: Connect, new_user: NewUser, queue_name: str) -> None:
    """Its scripts read records, so it may read them as well. Only another namespace prevents this."""
    with duly.Duly(new_user("admin")) as other:
        id_ = other.queue(queue_name).send("secret")

    assert b"secret" in (plain("producer").hget(f"duly:{{{queue_name}}}:msgs", id_) or b"")


def test_a_producer_can_receive_messages_of_a_queue(new_user: NewUser, queue_name: str) -> None:
    """The commands for send and cancel are enough to receive and ack."""
    with duly.Duly(new_user("producer")) as app:
        queue = app.queue(queue_name)
        queue.send("body")

        (delivery,) = queue.receive()
        delivery.ack()


def test_a_namespace_isolates(new_user: NewUser, queue_name: str) -> None:
    url = new_user("admin", namespace="shop")
    with duly.Duly(url, namespace="shop") as shop:
        shop.queue(queue_name).send("body")
        shop.queue(queue_name).delete()

    with duly.Duly(url) as elsewhere, pytest.raises(ServerError, match="duly acl --role"):
        elsewhere.queue(queue_name).send("body")
