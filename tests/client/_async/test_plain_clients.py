"""Other programs on the same stream: plain XADD, XREADGROUP and XACK alongside Duly. Real servers only."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from duly import AsyncDuly, AsyncGroup, AsyncTopic, CodecError, ServerError
from tests.client._async.given import (
    check_accounts,
    counted,
    given_blocked,
    given_read,
    seen,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import ServerPlace


@pytest.fixture
def plain(server: ServerPlace) -> Iterator[redis.Redis]:
    """Return another program's connection."""
    with contextlib.closing(server.connect()) as client:
        yield client


def held_by_plain(plain: Any, group: AsyncGroup, count: int = 10, name: str = "plain") -> list[str]:
    """Read as a plain consumer of a group does, and give the ids."""
    found = plain.xreadgroup(group.name, name, {group.topic.stream: ">"}, count=count)
    return [id_.decode() for _, rows in found for id_, _ in rows]


# Entries of another program


async def test_an_entry_of_another_program_is_a_dict_of_its_fields(archive: AsyncGroup, plain: Any) -> None:
    id_ = plain.xadd(archive.topic.stream, {"sensor": "7", "celsius": "21.5"}).decode()

    d = await take_one(archive)

    assert (d.id, d.body, d.key, d.headers, d.attempt) == (id_, {"sensor": "7", "celsius": "21.5"}, None, {}, 1)
    assert [(entry.id, entry.body) for entry in await archive.topic.read()] == [(id_, d.body)]
    assert (await seen(archive, id_)).body == d.body


ODD: list[tuple[dict[bytes, bytes], Any]] = [
    ({b"": b""}, {"": ""}),
    ({b"a": b"\xff\x00"}, {"a": b"\xff\x00"}),
    ({b"key": b"k", b"x": b"1"}, {"key": "k", "x": "1"}),
    ({b"header:a": b"b"}, {}),
    ({b"sent": b"yesterday"}, {"sent": "yesterday"}),
    ({"中".encode(): "文".encode()}, {"中": "文"}),
    ({b"big": b"x" * 100_000}, {"big": "x" * 100_000}),
    ({b"n%d" % n: b"%d" % n for n in range(300)}, {f"n{n}": str(n) for n in range(300)}),
    ({b"body": b'{"n": 1}'}, {"n": 1}),
    ({b"body": b"[1, 2]", b"other": b"ignored"}, [1, 2]),
    ({b"bytes": b"\xff\x00raw"}, b"\xff\x00raw"),
    ({b"bytes": b""}, b""),
    ({b"body": b"1", b"key": b"", b"sent": b"never", b"header:": b""}, 1),
    ({b"body": b"1", b"key": b"x" * 5000}, 1),
    ({b"body": b"1", b"key": b"a\x00b"}, 1),
]


@pytest.mark.parametrize(("fields", "body"), ODD, ids=range(len(ODD)))
async def test_odd_fields_are_delivered_and_settled(
    archive: AsyncGroup, plain: Any, fields: dict[bytes, bytes], body: Any
) -> None:
    plain.xadd(archive.topic.stream, fields)

    d = await take_one(archive)
    assert d.body == body
    assert [entry.body for entry in await archive.topic.read()] == [body]
    await d.retry(0, error="boom")
    again = await take_one(archive)
    assert (again.body, again.attempt) == (body, 2)
    await again.reject("no use")
    assert await archive.redrive() == 1
    assert await take_bodies(archive) == [body]
    await check_accounts(archive)


async def test_headers_are_read_alongside_fields_of_other_programs(events: AsyncTopic, plain: Any) -> None:
    plain.xadd(events.stream, {"order": "1", "key": "k", "sent": "5", "header:region": "eu"})
    plain.xadd(events.stream, {"order": "2", "header:region": "us"})
    group = events.group("g", headers={"region": "eu"})
    await group.create()
    body: Any = {"order": "1", "key": "k", "sent": "5"}

    (ready,) = await group.list("ready")
    (d,) = await take(group)
    entry = (await events.read())[0]

    for found in (ready, d, entry):
        assert (found.body, found.headers, found.key) == (body, {"region": "eu"}, None)
    assert (await group.stats()).filtered == 1


async def test_another_program_may_give_a_key_and_headers(events: AsyncTopic, plain: Any) -> None:
    for number in (1, 2):
        plain.xadd(events.stream, {"body": str(number), "key": "k", "header:region": "eu"})
    plain.xadd(events.stream, {"body": "3", "header:region": "us"})
    group = events.group("g", headers={"region": "eu"})

    (first,) = await take(group)

    assert (first.body, first.key, first.headers) == (1, "k", {"region": "eu"})
    await first.ack()
    assert await take_bodies(group) == [2]
    assert (await group.stats()).filtered == 1


async def test_a_field_that_is_given_twice_does_no_harm(archive: AsyncGroup, plain: Any) -> None:
    plain.execute_command("XADD", archive.topic.stream, "*", "a", "1", "a", "2")
    plain.execute_command("XADD", archive.topic.stream, "*", "body", "1", "body", "2")

    first, second = await take(archive)

    assert first.body == {"a": "2"}
    assert second.body in (1, 2)
    assert await archive.ack_many([first, second]) == []


async def test_a_body_that_is_not_json_does_not_decode(archive: AsyncGroup, plain: Any) -> None:
    plain.xadd(archive.topic.stream, {"body": "{oops"})

    d = await take_one(archive)

    with pytest.raises(CodecError, match=d.id):
        _ = d.body
    assert d.raw == b"{oops"
    assert [entry.body for entry in await archive.topic.read()] == [b"{oops"]
    await d.reject("decode")


async def test_an_entry_with_an_explicit_id_is_delivered(archive: AsyncGroup, plain: Any) -> None:
    for id_ in ("0-1", "5-0", "5-18446744073709551615", "1700000000000-7"):
        plain.xadd(archive.topic.stream, {"body": '"x"'}, id=id_)

    found = await take(archive)

    assert [d.id for d in found] == ["0-1", "5-0", "5-18446744073709551615", "1700000000000-7"]
    pending = await archive.pending()
    assert (pending.min_id, pending.max_id) == ("0-1", "1700000000000-7")
    assert await archive.ack_many(found) == []
    assert await take_bodies(archive) == []
    await check_accounts(archive)


async def test_a_plain_xadd_wakes_a_member_and_a_reader(archive: AsyncGroup, plain: Any, server: ServerPlace) -> None:
    (member,) = await given_blocked(server, archive)

    plain.xadd(archive.topic.stream, {"body": '"hello"'})

    (d,) = await member.result()
    assert d.body == "hello"


async def test_a_topic_of_another_program_alone_is_a_topic(app: AsyncDuly, queue_name: str, plain: Any) -> None:
    events = app.topic(queue_name)
    plain.xadd(events.stream, {"a": "1"})
    plain.xgroup_create(events.stream, "not a name: {}", "0")

    assert queue_name in await app.topics()
    (info,) = await events.groups()
    assert (info.name, info.unread, info.ready) == ("not a name: {}", 1, 1)
    assert (await events.stats()).groups == 1
    await events.delete()
    assert queue_name not in await app.topics()


# Reads of another program


async def test_a_plain_consumer_and_we_share_a_group(archive: AsyncGroup, plain: Any) -> None:
    """I3: what one reads, no other reads."""
    await archive.create()
    ids = await archive.topic.publish_many(range(6))

    theirs = held_by_plain(plain, archive, count=2)
    ours = await take(archive, limit=2)
    theirs += held_by_plain(plain, archive, count=1)

    assert (theirs, [d.id for d in ours]) == ([ids[0], ids[1], ids[4]], [ids[2], ids[3]])
    assert [d.id for d in await take(archive)] == [ids[5]]


async def test_a_plain_consumer_reads_readable_fields(archive: AsyncGroup, plain: Any) -> None:
    await archive.topic.publish({"n": 1}, key="k", headers={"a": "b"})
    await archive.topic.publish(b"\xff")

    rows = plain.xrange(archive.topic.stream)

    assert [fields for _, fields in rows] == [
        {b"body": b'{"n":1}', b"key": b"k", b"header:a": b"b"}, {b"bytes": b"\xff"},
    ]  # fmt: skip


async def test_a_plain_group_is_independent_of_groups_of_duly(archive: AsyncGroup, plain: Any) -> None:
    await archive.topic.publish_many(range(3))
    plain.xgroup_create(archive.topic.stream, "plain-group", "0")

    rows = plain.xreadgroup("plain-group", "one", {archive.topic.stream: ">"})[0][1]

    assert len(rows) == 3
    assert await take_bodies(archive) == [0, 1, 2]


async def test_xpending_shows_messages_of_duly_and_of_plain_consumers(archive: AsyncGroup, plain: Any) -> None:
    await archive.create()
    ids = await archive.topic.publish_many(range(3))
    await take(archive, limit=1)
    held_by_plain(plain, archive, count=1)

    native, ours = plain.xpending(archive.topic.stream, archive.name), await archive.pending()

    me = archive._link.consumer
    assert (native["pending"], native["min"].decode(), native["max"].decode()) == (2, ids[0], ids[1])
    assert {row["name"].decode(): row["pending"] for row in native["consumers"]} == {me: 1, "plain": 1}
    assert ours.consumers == {me: 1, "plain": 1}
    assert [(row.id, row.consumer, row.deliveries) for row in ours.messages] == [(ids[0], me, 1), (ids[1], "plain", 1)]
    assert [row.id for row in (await archive.pending("plain")).messages] == [ids[1]]


@pytest.mark.parametrize("verb", ["ack", "retry", "release", "defer", "reject"])
async def test_every_end_of_a_lease_leaves_the_native_pending_list(archive: AsyncGroup, plain: Any, verb: str) -> None:
    held = await given_read(archive)
    assert plain.xpending(archive.topic.stream, archive.name)["pending"] == 1

    await getattr(held, verb)(*{"defer": (60,), "reject": ("no use",)}.get(verb, ()))

    assert plain.xpending(archive.topic.stream, archive.name)["pending"] == 0


async def test_an_extended_lease_is_not_idle_in_the_native_pending_list(
    archive: AsyncGroup, plain: Any, server: ServerPlace
) -> None:
    """Other programs go by that: they would take it over."""
    held = await given_read(archive, lease=30)
    server.advance(20)

    await held.extend(60)

    (row,) = plain.xpending_range(archive.topic.stream, archive.name, "-", "+", 10)
    assert (row["consumer"].decode(), row["times_delivered"]) == (archive._link.consumer, 1)
    assert row["time_since_delivered"] < 10_000
    assert await take(archive) == []


async def test_an_xack_of_a_plain_consumer_ends_its_message(
    archive: AsyncGroup, plain: Any, server: ServerPlace
) -> None:
    await archive.create()
    await archive.topic.publish_many(range(2))
    plain.xack(archive.topic.stream, archive.name, *held_by_plain(plain, archive))

    server.advance(100)

    assert await take(archive) == []
    assert (await archive.pending()).total == 0


async def test_a_silent_plain_consumer_is_taken_over_after_a_lease(
    app: AsyncDuly, queue_name: str, plain: Any, server: ServerPlace
) -> None:
    group = app.topic(queue_name, lease=10).group("g")
    await group.create()
    ids = await group.topic.publish_many(["a", "b", "c"])
    assert held_by_plain(plain, group, count=2) == ids[:2]
    server.advance(9)
    assert [d.body for d in await take(group)] == ["c"]

    server.advance(6)
    again = await take(group)

    assert [(d.id, d.body, d.crashes) for d in again[:2]] == [(ids[0], "a", 1), (ids[1], "b", 1)]
    names = {row["name"] for row in plain.xinfo_consumers(group.topic.stream, "g")}
    assert b"plain" not in names
    assert await group.ack_many(again) == []
    await check_accounts(group)


async def test_a_plain_consumer_that_was_taken_over_reads_on(
    app: AsyncDuly, queue_name: str, plain: Any, server: ServerPlace
) -> None:
    group = app.topic(queue_name, lease=10).group("g")
    await group.create()
    await group.topic.publish("a")
    (held,) = held_by_plain(plain, group)
    server.advance(11)
    d = await take_one(group)

    assert plain.xack(group.topic.stream, "g", held) == 1  # it is in the pending list under our name
    await d.ack()  # what decides is the lease
    await group.topic.publish("b")

    assert len(held_by_plain(plain, group)) == 1
    assert (await group.stats()).acked == 1


async def test_an_entry_that_plain_consumers_crash_with_too_often_is_dead(
    app: AsyncDuly, queue_name: str, plain: Any, server: ServerPlace
) -> None:
    group = app.topic(queue_name, lease=10, crash_limit=2).group("g")
    await group.create()
    id_ = await group.topic.publish("poison")
    held_by_plain(plain, group, name="first")
    plain.xclaim(group.topic.stream, "g", "second", 0, [id_])
    server.advance(11)

    assert await take(group) == []

    message = await seen(group, id_)
    assert (message.state, message.reason, message.crashes) == ("dead", "poison", 2)
    await check_accounts(group)


async def test_an_xautoclaim_of_another_program_cannot_take_a_message_that_waits_for_a_retry(
    archive: AsyncGroup, plain: Any
) -> None:
    held = await given_read(archive)
    await held.retry(60)

    plain.execute_command("XAUTOCLAIM", archive.topic.stream, archive.name, "thief", 0, "0")

    assert plain.xpending(archive.topic.stream, archive.name)["pending"] == 0
    assert await counted(archive) == {"delayed": 1, "sent": 1, "delivered": 1, "retried": 1}


async def test_an_xautoclaim_of_a_leased_entry_does_not_end_the_lease(archive: AsyncGroup, plain: Any) -> None:
    """I5: the lease decides, not the pending list."""
    held = await given_read(archive)

    plain.execute_command("XAUTOCLAIM", archive.topic.stream, archive.name, "thief", 0, "0")

    await held.ack()
    assert plain.xpending(archive.topic.stream, archive.name)["pending"] == 0
    await check_accounts(archive)


@pytest.mark.parametrize("command", ["XDEL", "XTRIM", "DEL"])
async def test_a_leased_message_survives_the_removal_of_its_entry(
    archive: AsyncGroup, plain: Any, server: ServerPlace, command: str
) -> None:
    """I1."""
    held = await given_read(archive, lease=10)
    arguments: dict[str, list[Any]] = {"XDEL": [held.id], "XTRIM": ["MAXLEN", 0], "DEL": []}
    plain.execute_command(command, archive.topic.stream, *arguments[command])

    server.advance(11)

    again = await take_one(archive)
    assert (again.id, again.body, again.crashes) == (held.id, "body", 1)
    await again.ack()
    await check_accounts(archive)


async def test_a_group_that_another_program_destroyed_starts_over(archive: AsyncGroup, plain: Any) -> None:
    held = await given_read(archive, "first")
    plain.xgroup_destroy(archive.topic.stream, archive.name)

    await archive.topic.publish("second")

    assert await take_bodies(archive) == ["second"]  # the first is held, and is not delivered twice at a time
    await held.ack()
    await check_accounts(archive)


async def test_a_key_of_another_kind_in_the_streams_place_is_an_error_that_names_the_topic(
    archive: AsyncGroup, plain: Any
) -> None:
    plain.set(archive.topic.stream, "text")

    for act in (lambda: archive.topic.publish("body"), lambda: take(archive), archive.topic.read):
        with pytest.raises(ServerError, match=f"(?s){archive.topic.name}.*WRONGTYPE"):
            await act()


async def test_a_plain_group_keeps_entries_where_all_must_have_acked(
    app: AsyncDuly, queue_name: str, plain: Any
) -> None:
    events = app.topic(queue_name, keep=None)
    ours = events.group("ours")
    plain.xgroup_create(events.stream, "theirs", "0", mkstream=True)
    await events.publish_many(range(3))
    assert await take_bodies(ours) == [0, 1, 2]
    assert (await events.stats()).length == 3

    rows = plain.xreadgroup("theirs", "one", {events.stream: ">"})[0][1]
    plain.xack(events.stream, "theirs", *(id_ for id_, _ in rows))
    await events.publish("last")
    assert await take_bodies(ours) == ["last"]

    assert [entry.body for entry in await events.read()] == ["last"]
