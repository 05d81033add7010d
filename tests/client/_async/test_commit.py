"""commit: messages to other queues, changes of user keys and the ack, all at once or not at all."""

import contextlib
import enum
from collections.abc import AsyncIterator
from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncQueue, Keep, LeaseLost, QueueFull, Send, TooLarge, UsageError
from duly.testing import user_keys
from tests.client._async.given import (
    InBackground,
    check_accounts,
    given_blocked,
    given_leased,
    given_read,
    settle,
    take,
    take_bodies,
    take_one,
    until,
)
from tests.client.place import MemoryPlace, Place, ServerPlace

pytestmark = pytest.mark.one_slot("commit to other queues, and with keys of the user")


class Level(enum.IntEnum):
    HIGH = 7


class Grams(float):
    """A number that writes itself in its own way, as those of numpy do."""

    def __repr__(self) -> str:
        return f"Grams({float(self)})"

    __str__ = __repr__


class Keys:
    """Keys of the user, wherever they are."""

    def __init__(self, app: AsyncDuly, place: Place, queue_name: str) -> None:
        self._name = app.namespace if app.namespace.startswith("{") else queue_name
        self._memory = user_keys(app) if isinstance(place, MemoryPlace) else None
        self._server = place.connect() if isinstance(place, ServerPlace) else None

    def __call__(self, word: str) -> str:
        """Name a key."""
        return f"{self._name}:{word}"

    def set(self, word: str, text: str) -> None:
        if self._memory is not None:
            self._memory.run("SET", self(word), text)
        else:
            assert self._server is not None
            self._server.set(self(word), text)

    def get(self, word: str) -> Any:
        if self._memory is not None:
            return self._memory.get(self(word))
        assert self._server is not None
        return self._server.get(self(word))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


@pytest.fixture
async def keys(app: AsyncDuly, place: Place, queue_name: str) -> AsyncIterator[Keys]:
    with contextlib.closing(Keys(app, place, queue_name)) as keys:
        yield keys


@pytest.fixture
def other(app: AsyncDuly, queue_name: str) -> AsyncQueue:
    return app.queue(f"{queue_name}-other")


async def test_a_commit_sends_changes_keys_and_acks(queue: AsyncQueue, other: AsyncQueue, keys: Keys) -> None:
    """I1, I2."""
    keys.set("stock", "10")
    delivery = await given_leased(queue, {"order": 1})

    done = await delivery.commit(
        send=[(other, {"ship": 1}), (queue, "next"), (other, {"bill": 1})],
        redis=[("DECRBY", keys("stock"), 3), ("incr", keys("orders"))],
    )

    assert keys.get("stock") == b"7"
    assert keys.get("orders") == b"1"
    shipped, billed = await take(other)
    assert [shipped.body, billed.body] == [{"ship": 1}, {"bill": 1}]
    (following,) = await take(queue)
    assert done == [7, 1]
    assert done.sent == [shipped.id, following.id, billed.id]
    stats = await queue.stats()
    assert (stats.acked, stats.leased) == (1, 1)
    await check_accounts(queue)
    await check_accounts(other)


async def test_a_commit_of_a_groups_delivery_sends_changes_keys_and_acks_in_its_group_alone(
    archive: AsyncGroup, live: AsyncGroup, other: AsyncQueue, keys: Keys
) -> None:
    """I1."""
    keys.set("stock", "10")
    delivery = await given_read(archive, {"order": 1})

    done = await delivery.commit(send=[(other, {"ship": 1})], redis=[("DECRBY", keys("stock"), 3)])

    assert keys.get("stock") == b"7"
    assert [(await take_one(other)).id] == done.sent
    assert (await archive.stats()).acked == 1
    assert await take_bodies(live) == [{"order": 1}]
    await check_accounts(archive)


async def test_a_commit_of_a_groups_delivery_that_is_refused_changes_nothing(
    archive: AsyncGroup, other: AsyncQueue, keys: Keys
) -> None:
    keys.set("stock", "text")
    delivery = await given_read(archive)

    with pytest.raises(UsageError, match=f"{delivery.id}.*{archive.label}.*still leased"):
        await delivery.commit(send=[(other, "never")], redis=[("DECRBY", keys("stock"), 3)])

    assert (await other.stats()).sent == 0
    assert (await archive.pending()).total == 1
    await delivery.ack()


async def test_a_commit_of_nothing_is_an_ack(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    assert await delivery.commit() == []

    assert (await queue.stats()).acked == 1
    assert await queue.get(delivery.id) is None


async def test_a_commit_keeps_the_finished_message_if_the_queue_is_set_to(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    delivery = await given_leased(queue)

    await delivery.commit()

    assert [message.id for message in await queue.list("done")] == [delivery.id]


async def test_every_option_of_a_send_works_in_a_commit(queue: AsyncQueue, other: AsyncQueue) -> None:
    await other.send("there", id="mine")
    await other.send("first", dedup="d")
    delivery = await given_leased(queue)

    done = await delivery.commit(
        send=[
            (other, Send("later", delay=60, headers={"h": "1"})),
            (other, Send("urgent", priority=9, key="k", ttl=60)),
            (other, Send("again", id="mine")),
            (other, Send("changed", dedup="d", replace=True)),
        ]
    )

    assert done.sent[2] == "mine"
    assert await take_bodies(other) == ["urgent", "there", "changed"]
    (delayed,) = await other.list("delayed")
    assert (delayed.id, delayed.headers) == (done.sent[0], {"h": "1"})
    await check_accounts(other)


async def test_a_commit_returns_the_reply_to_each_command(queue: AsyncQueue, keys: Keys) -> None:
    keys.set("large", str(2**62))
    delivery = await given_leased(queue)

    answers = await delivery.commit(
        redis=[
            ("SET", keys("text"), "x", "NX"),
            ("SET", keys("text"), "y", "NX"),
            ("INCRBY", keys("large"), 3),
            ("HINCRBY", keys("hash"), "n", 2**60 + 1),
            ("INCRBYFLOAT", keys("weight"), 1.5),
            ("SADD", keys("seen"), "a", "b"),
            ("DEL", keys("nothing")),
        ]
    )

    assert answers == [b"OK", None, 2**62 + 3, 2**60 + 1, b"1.5", 2, 0]


async def test_a_commit_publishes_to_topics(
    queue: AsyncQueue, archive: AsyncGroup, live: AsyncGroup, clock: Place
) -> None:
    """I1."""
    events = archive.topic
    for group in (archive, live):
        await group.create()
    delivery = await given_leased(queue)

    done = await delivery.commit(
        publish=[
            (events, {"paid": 1}),
            (events, Send("later", delay=60)),
            (events, Send("keyed", key="k", headers={"h": "1"}, dedup="d")),
        ]
    )

    first, keyed = await take(archive)
    assert done == []
    assert done.published == [first.id, (await events.delayed())[0].id, keyed.id]
    assert (first.body, keyed.body, keyed.key, keyed.headers) == ({"paid": 1}, "keyed", "k", {"h": "1"})
    assert await take_bodies(live) == [{"paid": 1}, "keyed"]
    assert await events.publish("again", dedup="d") == keyed.id
    clock.advance(61)
    assert await take_bodies(live) == ["later"]
    assert (await queue.stats()).acked == 1
    assert (await events.audit()).ok
    await check_accounts(queue)


async def test_a_commit_of_a_groups_delivery_publishes_to_its_own_topic(archive: AsyncGroup) -> None:
    delivery = await given_read(archive, "first")

    await delivery.commit(publish=[(archive.topic, "second")])

    assert await take_bodies(archive) == ["second"]
    await check_accounts(archive)


@pytest.mark.parametrize("delay", [None, 0.3])
async def test_an_entry_of_a_commit_wakes_waiting_consumers(
    queue: AsyncQueue, other_app: AsyncDuly, archive: AsyncGroup, place: Place, delay: float | None
) -> None:
    group = other_app.topic(archive.topic.name).group("archive")
    await group.create()
    delivery = await given_leased(queue)
    (consumer,) = await given_blocked(place, group)

    await delivery.commit(publish=[(archive.topic, Send("news", delay=delay))])

    assert [each.body for each in await consumer.result()] == ["news"]


async def test_a_commit_that_is_refused_publishes_nothing(queue: AsyncQueue, archive: AsyncGroup, keys: Keys) -> None:
    keys.set("n", "text")
    await archive.create()
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match="effect 1, INCR"):
        await delivery.commit(
            publish=[(archive.topic, "never"), (archive.topic, Send("never", delay=1))], redis=[("INCR", keys("n"))]
        )

    assert await take(archive) == []
    assert await archive.topic.delayed() == []


async def test_a_commit_sends_tasks(app: AsyncDuly, queue: AsyncQueue, queue_name: str) -> None:
    @app.task(queue=f"{queue_name}-mail")
    def welcome(user: int, lang: str = "en") -> None: ...

    delivery = await given_leased(queue)

    done = await delivery.commit(
        send=[(welcome, (1,)), (welcome, {"user": 2, "lang": "zh"}), (welcome.using(id="mine", priority=5), (3,))]
    )

    mail = welcome.queue
    assert done.sent[2] == "mine"
    assert await take_bodies(mail) == [welcome.body(3), welcome.body(1), welcome.body(user=2, lang="zh")]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("no number",), "welcome.*user"),
        ((), "welcome.*user"),
        ({"user": 1, "nobody": 1}, "welcome.*nobody"),
        (42, r"welcome.*tuple, like \(42,\), or as a dict.*42"),
        ([1], "welcome.*tuple"),
        (None, "welcome.*tuple"),
    ],
    ids=repr,
)
async def test_arguments_of_a_task_are_checked_before_anything_is_sent(
    app: AsyncDuly, queue: AsyncQueue, other: AsyncQueue, queue_name: str, arguments: Any, problem: str
) -> None:
    @app.task(queue=f"{queue_name}-mail")
    def welcome(user: int) -> None: ...

    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=problem):
        await delivery.commit(send=[(other, "first"), (welcome, arguments)])

    assert (await other.stats()).sent == 0
    await delivery.ack()


async def test_a_durable_task_is_not_for_a_commit(app: AsyncDuly, queue: AsyncQueue, queue_name: str) -> None:
    @app.task(queue=f"{queue_name}-mail")
    def welcome(user: int) -> None: ...

    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match="durable= is not for a commit"):
        await delivery.commit(send=[(welcome.using(durable="fsync"), (1,))])


async def test_a_commit_keeps_a_result(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    delivery = await given_leased(queue)

    await delivery.commit(result={"total": 7})

    assert await queue.result(delivery.id, wait=0) == {"total": 7}


async def test_a_result_of_a_commit_is_not_kept_where_the_queue_keeps_nothing(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    await delivery.commit(result=1)

    assert await queue.get(delivery.id) is None


async def test_a_second_commit_of_a_delivery_is_a_success_and_does_nothing(
    queue: AsyncQueue, other: AsyncQueue, keys: Keys
) -> None:
    """I6."""
    delivery = await given_leased(queue)
    done = await delivery.commit(send=[(other, "once")], redis=[("INCR", keys("n"))])

    again = await delivery.commit(send=[(other, "once"), (other, "twice")], redis=[("INCR", keys("n"))])

    assert (again, again.sent) == (done, done.sent)

    assert keys.get("n") == b"1"
    assert (await other.stats()).ready == 1


@pytest.mark.parametrize("verb", ["ack", "retry", "release"])
async def test_a_commit_after_another_settle_is_too_late(
    queue: AsyncQueue, other: AsyncQueue, keys: Keys, verb: str
) -> None:
    delivery = await given_leased(queue)
    await settle(delivery, verb)

    with pytest.raises(LeaseLost, match=delivery.id):
        await delivery.commit(send=[(other, "no")], redis=[("INCR", keys("n"))])

    assert keys.get("n") is None
    assert (await other.stats()).sent == 0


async def test_another_settle_after_a_commit_is_too_late(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.commit()

    with pytest.raises(LeaseLost, match=delivery.id):
        await delivery.ack()


async def test_a_commit_with_a_lost_lease_changes_nothing(queue: AsyncQueue, other: AsyncQueue, keys: Keys) -> None:
    """I5."""
    delivery = await given_leased(queue)
    await queue.cancel(delivery.id, running=True)

    with pytest.raises(LeaseLost, match=delivery.id):
        await delivery.commit(send=[(other, "no")], redis=[("INCR", keys("n"))])

    assert delivery.lost
    assert keys.get("n") is None
    assert (await other.stats()).sent == 0


@pytest.mark.parametrize("on_full", ["raise", "block"])
async def test_a_full_queue_refuses_the_whole_commit(
    app: AsyncDuly, queue: AsyncQueue, other: AsyncQueue, keys: Keys, on_full: Any
) -> None:
    full = app.queue(f"{queue.name}-full", max_length=1, on_full=on_full)
    await full.send("there")
    delivery = await given_leased(queue)

    with pytest.raises(QueueFull, match=full.name):
        await delivery.commit(send=[(other, "no"), (full, "no")], redis=[("INCR", keys("n"))])

    assert keys.get("n") is None
    assert (await other.stats()).sent == 0
    assert not delivery.is_settled
    await take_bodies(full)
    assert len((await delivery.commit(send=[(other, "yes"), (full, "yes")])).sent) == 2


async def test_a_commit_drops_the_oldest_if_the_queue_is_set_to(app: AsyncDuly, queue: AsyncQueue) -> None:
    short = app.queue(f"{queue.name}-short", max_length=1, on_full="drop_oldest")
    await short.send("old")
    delivery = await given_leased(queue)

    await delivery.commit(send=[(short, "new")])

    assert await take_bodies(short) == ["new"]


async def test_a_message_of_a_full_queue_may_be_followed_by_another(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=1)
    delivery = await given_leased(queue, id="mine")

    await delivery.commit(send=[(queue, Send("next", id="mine"))])

    following = await take_one(queue)
    assert (following.id, following.body) == ("mine", "next")


async def test_an_impossible_effect_refuses_the_whole_commit(queue: AsyncQueue, other: AsyncQueue, keys: Keys) -> None:
    keys.set("name", "Ann")
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=rf"effect 2, INCR '{keys('name')}': it does not hold an integer"):
        await delivery.commit(send=[(other, "no")], redis=[("SET", keys("n"), 1), ("INCR", keys("name"))])

    assert keys.get("n") is None
    assert (await other.stats()).sent == 0
    assert not delivery.is_settled
    await delivery.ack()


@pytest.mark.parametrize(
    ("effect", "why"),
    [
        ("INCR", "must be a tuple"),
        (("INCR",), "must be a tuple"),
        ((1, "k"), "must be a tuple"),
        (("FLUSHALL", "k"), "cannot use this command"),
        (("GET", "k"), "cannot use this command"),
        (("INCR", ""), "a key is"),
        (("INCR", 5), "a key is"),
        (("INCR", "k", 1), "0 arguments follow the key"),
        (("DEL", "k", "k2"), "0 arguments follow the key"),
        (("INCRBY", "k"), "1 arguments follow the key"),
        (("INCRBY", "k", "many"), "must be a whole number"),
        (("INCRBY", "k", 1.0), "must be a whole number"),
        (("INCRBY", "k", 2**63), "64 bits"),
        (("INCRBY", "k", "-0"), "must be a whole number"),
        (("HINCRBY", "k", "f", "01"), "must be a whole number"),
        (("LREM", "k", "-0", "x"), "must be a whole number"),
        (("LTRIM", "k", "0", "-0"), "must be a whole number"),
        (("XADD", "k", "MAXLEN", "-0", "*", "f", "v"), "must be a whole number"),
        (("ZADD", "k", "1e-400", "m"), "too small"),
        (("ZINCRBY", "k", "1e-400", "m"), "too small"),
        (("INCRBYFLOAT", "k", "1e-5000"), "too small"),
        (("HINCRBYFLOAT", "k", "f", "1e-5000"), "too small"),
        (("INCRBYFLOAT", "k", float("nan")), "finite"),
        (("INCRBYFLOAT", "k", "1e999"), "too large"),
        (("INCRBYFLOAT", "k", "0x10"), "must be a number"),
        (("SET", "k"), "1 to 4 arguments"),
        (("SET", "k", None), "an argument is"),
        (("SET", "k", True), "an argument is"),
        (("SET", "k", "\ud800"), "Unicode"),
        (("SET", "k", "v", "KEEPTTL"), "SET takes"),
        (("SET", "k", "v", "NX", "XX"), "SET takes"),
        (("SET", "k", "v", "EX"), "needs a time"),
        (("SET", "k", "v", "EX", 0), "from 1 to"),
        (("EXPIRE", "k", -1), "from 1 to"),
        (("HSET", "k", "f", "v", "g"), "pairs"),
        (("ZADD", "k", 1, "m", 2), "pairs"),
        (("ZADD", "k", "NX", "m"), "must be a number"),
        (("ZADD", "k", float("inf"), "m"), "finite"),
        (("XADD", "k", "1-1", "f", "v"), "XADD takes"),
        (("XADD", "k", "*", "f", "v", "g"), "XADD takes"),
        (("XADD", "k", "MAXLEN", -1, "*", "f", "v"), "from 0 to"),
    ],
    ids=str,
)
async def test_a_bad_effect_is_refused_before_anything_is_done(
    queue: AsyncQueue, other: AsyncQueue, keys: Keys, effect: Any, why: str
) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=f"effect 2.*{why}"):
        await delivery.commit(send=[(other, "no")], redis=[("SET", keys("fine"), 1), effect])

    assert not delivery.is_settled
    assert (await other.stats()).sent == 0


async def test_a_commit_may_not_change_a_key_of_duly(app: AsyncDuly, queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=r"effect 1.*belongs to Duly"):
        await delivery.commit(redis=[("INCR", f"{app.namespace}:{{{queue.name}}}:meta")])

    assert not delivery.is_settled


async def test_an_integer_too_long_to_be_written_is_refused(queue: AsyncQueue, keys: Keys) -> None:
    long = 10**5000
    delivery = await given_leased(queue)

    for effect in (("SET", "k", long), ("INCR", long), ("SET", "k", [long]), (long, "k"), long):
        with pytest.raises(UsageError, match="effect 2"):
            await delivery.commit(redis=[("SET", keys("n"), 1), effect])  # type: ignore[list-item]
    for send in (long, [long], [(long, 1)]):
        with pytest.raises(UsageError, match="a queue and a body"):
            await delivery.commit(send=send, redis=[("SET", keys("n"), 1)])  # type: ignore[arg-type]

    assert keys.get("n") is None
    assert not delivery.is_settled


async def test_none_is_nothing(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    nothing: Any = None

    assert await delivery.commit(send=nothing, redis=nothing) == []

    assert (await queue.stats()).acked == 1


async def test_a_number_of_a_subclass_is_stored_as_the_number(queue: AsyncQueue, keys: Keys) -> None:
    delivery = await given_leased(queue)

    await delivery.commit(
        redis=[
            ("SET", keys("level"), Level.HIGH),
            ("INCRBY", keys("sum"), Level.HIGH),
            ("SET", keys("grams"), Grams(1.5)),
        ]
    )

    assert [keys.get(word) for word in ("level", "sum", "grams")] == [b"7", b"7", b"1.5"]


@pytest.mark.parametrize("send", ["text", ["text"], [("queue", "body")], [(1,)], {"queue": "body"}], ids=str)
async def test_a_commit_takes_pairs_of_queue_and_body(queue: AsyncQueue, send: Any) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match="a queue and a body"):
        await delivery.commit(send=send)

    assert not delivery.is_settled


async def test_a_bad_body_is_refused_before_anything_is_done(queue: AsyncQueue, other: AsyncQueue, keys: Keys) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=other.name):
        await delivery.commit(send=[(other, object())], redis=[("INCR", keys("n"))])
    with pytest.raises(TooLarge):
        await delivery.commit(send=[(other, b"." * (1 << 20))] * 33)
    with pytest.raises(UsageError, match="at most 1000"):
        await delivery.commit(redis=[("INCR", keys("n"))] * 1001)

    assert keys.get("n") is None


async def test_a_commit_cannot_span_two_servers(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    async with AsyncDuly("memory://elsewhere") as elsewhere:
        with pytest.raises(UsageError, match="another server"):
            await delivery.commit(send=[(elsewhere.queue("far"), "no")])

    assert not delivery.is_settled


async def test_a_commit_may_send_to_a_queue_of_another_app_on_the_same_server(
    queue: AsyncQueue, other_app: AsyncDuly
) -> None:
    there = other_app.queue(f"{queue.name}-there")
    delivery = await given_leased(queue)

    await delivery.commit(send=[(there, "hello")])

    assert await take_bodies(there) == ["hello"]


async def test_a_consumer_that_waits_for_a_queue_is_woken_by_a_commit(
    place: Place, queue: AsyncQueue, other: AsyncQueue
) -> None:
    delivery = await given_leased(queue)
    (waiting,) = await given_blocked(place, other)

    await delivery.commit(send=[(other, "wake up")])

    (received,) = await waiting.result()
    assert received.body == "wake up"


async def test_a_delivery_that_was_committed_inside_with_is_left_alone(queue: AsyncQueue, other: AsyncQueue) -> None:
    await queue.send("body")
    delivery = await take_one(queue)

    async with delivery:
        await delivery.commit(send=[(other, "out")])

    stats = await queue.stats()
    assert (stats.acked, stats.retried) == (1, 0)


async def test_a_refused_commit_inside_with_is_a_failure(queue: AsyncQueue, keys: Keys) -> None:
    keys.set("name", "Ann")
    await queue.send("body")
    delivery = await take_one(queue)

    with pytest.raises(UsageError, match="INCR"):
        async with delivery:
            await delivery.commit(redis=[("INCR", keys("name"))])

    assert (await queue.stats()).retried == 1


# --- async only
async def test_a_cancelled_commit_is_done_or_not_done(queue: AsyncQueue, other: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    commit = InBackground(lambda: delivery.commit(send=[(other, "out")]))
    commit.cancel()
    await until(lambda: not commit.is_running)

    done = await delivery.commit(send=[(other, "out")])

    assert len(done.sent) == 1
    assert (await other.stats()).sent == 1


# --- end
