"""Bad input to topics and groups: named, refused, and nothing is written."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncTopic, InvalidName, Keep, Repeat, Retry, Send, TooLarge, UsageError
from tests.client._async.given import counted, given_read
from tests.client.place import Place

NAN, INFINITE = float("nan"), float("inf")
NAIVE = datetime(2040, 1, 1)  # noqa: DTZ001


class Case(NamedTuple):
    says: str
    options: dict[str, Any]


PUBLISHES = [
    Case("delay.*-1", {"delay": -1}),
    Case("delay.*nan", {"delay": NAN}),
    Case("delay.*inf", {"delay": INFINITE}),
    Case("delay.*ten years", {"delay": 10**12}),
    Case("delay.*days=-1", {"delay": timedelta(days=-1)}),
    Case("delay.*'30'", {"delay": "30"}),
    Case("delay.*True", {"delay": True}),
    Case("time zone", {"at": NAIVE}),
    Case("at.*ten years", {"at": datetime.max.replace(tzinfo=UTC)}),
    Case("at.*1970", {"at": -5}),
    Case("at.*'2030-01-01'", {"at": "2030-01-01"}),
    Case("delay=5 and at=0", {"delay": 5, "at": 0}),
    Case("key.*empty", {"key": ""}),
    Case("key.*5", {"key": 5}),
    Case("key.*control", {"key": "a\nb"}),
    Case("key.*control", {"key": "a\x7fb"}),
    Case("key.*1024", {"key": "x" * 2000}),
    Case("key.*Unicode", {"key": "\ud800"}),
    Case("dedup.*empty", {"dedup": ""}),
    Case("dedup.*5", {"dedup": 5}),
    Case("dedup_for.*0", {"dedup": "d", "dedup_for": 0}),
    Case("dedup_for.*'5'", {"dedup": "d", "dedup_for": "5"}),
    Case("dedup_for needs dedup=: it is how long", {"dedup_for": 5}),
    Case("headers.*5", {"headers": 5}),
    Case("headers.*'n'.*5", {"headers": {"n": 5}}),
    Case("headers.*5.*'n'", {"headers": {5: "n"}}),
    Case("header.*Unicode", {"headers": {"n": "\ud800"}}),
    Case("durable.*'disk'", {"durable": "disk"}),
    Case("durable.*0", {"durable": 0}),
    Case("durable.*True", {"durable": True}),
    Case("durable.*9223372036854775808", {"durable": 2**63}),
]


def name_of(case: Case) -> str:
    return re.sub(r"[^\w.,=-]+", "-", repr(case.options))[:50]


async def check_unwritten(events: AsyncTopic, place: Place) -> None:
    """Fail if the topic was touched."""
    assert place.keys(f"@{events.name}") == {}
    stats = await events.stats()
    assert (stats.length, stats.delayed, stats.published, stats.groups) == (0, 0, 0, 0)


@pytest.mark.parametrize("case", PUBLISHES, ids=name_of)
async def test_a_bad_option_of_a_publish_is_named_and_nothing_is_written(
    events: AsyncTopic, place: Place, case: Case
) -> None:
    with pytest.raises(UsageError, match=f"(?is)topic '{events.name}'.*{case.says}"):
        await events.publish("body", **case.options)

    await check_unwritten(events, place)


LATER = [case for case in PUBLISHES if not {"delay", "at", "durable"} & case.options.keys()]


@pytest.mark.parametrize("case", LATER, ids=name_of)
async def test_one_bad_entry_of_many_that_wait_stops_all_of_them(events: AsyncTopic, place: Place, case: Case) -> None:
    bad = Send("bad", delay=60, **case.options)

    with pytest.raises(UsageError, match=f"(?is)topic '{events.name}'.*{case.says}"):
        await events.publish_many(["good", Send("later", delay=60), bad])

    await check_unwritten(events, place)


INSTEAD = {
    "priority": "entries stay in the order",
    "ttl": "the topic's keep=",
    "id": "the server assigns the ids; with dedup=",
    "retry": "it is an option of the topic",
    "repeat": "publish again from a handler",
    "replace": "an entry cannot be changed",
}
"""Alternatives in topics for options of queues."""


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 5},
        {"ttl": 60},
        {"id": "mine"},
        {"retry": Retry(attempts=1)},
        {"repeat": Repeat(first=60)},
        {"dedup": "d", "replace": True},
    ],
    ids=lambda options: list(options)[-1],
)
async def test_options_of_queue_messages_are_refused(events: AsyncTopic, place: Place, options: dict[str, Any]) -> None:
    (name,) = options.keys() - {"dedup"}

    for publish in (events.publish, lambda send: events.publish_many(["good", send])):
        says = f"{events.name}.*{name}=.*queue, not for entries of a topic: {INSTEAD[name]}"
        with pytest.raises(UsageError, match=says):
            await publish(Send("body", **options))

    await check_unwritten(events, place)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *INSTEAD.items(),
        ("lease", r"it is an option of the topic.*app.topic\(name, lease="),
        ("header", "did you mean headers=?"),
        ("colour", "there are delay, at, key, headers, dedup, dedup_for, durable$"),
    ],
)
async def test_the_error_for_an_unknown_option_of_a_publish_names_the_alternative(
    events: AsyncTopic, place: Place, name: str, hint: str
) -> None:
    options: Any = {name: 5}

    with pytest.raises(UsageError, match=f"^topic '{events.name}': publish has no option {name}=: {hint}"):
        await events.publish("body", **options)
    hint = "there are durable$" if name in ("header", "colour") else hint
    with pytest.raises(UsageError, match=f"^topic '{events.name}': publish_many has no option {name}=: {hint}"):
        await events.publish_many(["body"], **options)

    await check_unwritten(events, place)


@pytest.mark.parametrize("name", ["delay", "at", "key", "headers", "dedup", "dedup_for"])
async def test_options_of_one_entry_are_given_to_it_and_not_to_publish_many(events: AsyncTopic, name: str) -> None:
    options: Any = {name: 5}

    with pytest.raises(UsageError, match=rf"publish_many has no option {name}=.*duly\.Send\(body, {name}=\.\.\.\)"):
        await events.publish_many(["body"], **options)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_length", r"keep=duly\.Keep\(count="),
        ("max_bytes", r"keep=duly\.Keep\(bytes="),
        ("on_full", "never full"),
        ("rate", "concurrency=, or .*queue that has rate="),
        ("retry_share", "due retries before it reads further entries"),
        ("max_in_flight", "concurrency=, or .*queue that has max_in_flight="),
        ("done", "keeps entries by keep="),
        ("start", r"option of a group: events.group\(name, start="),
        ("delay", r"it belongs to one entry: events\.publish\(body, delay=\.\.\.\)$"),
        ("ttl", r"the topic's keep="),
        ("priority", "entries stay in the order of the stream"),
        ("timeout", r"it is an option of a handler: @events\.handler\(group=\.\.\., timeout=\.\.\.\)$"),
        ("limit", r"it is an option of each receive: events\.group\(name\)\.receive\(limit="),
        ("patience", r"it is an option of the app: duly\.Duly\(patience="),
        ("max_retries", r"use retry=duly\.Retry\(attempts="),
        ("backoff", r"use retry=duly\.Retry\(first="),
        ("visibility_timeout", "use lease="),
        ("dlq", "dead letters stay with their group"),
        ("maxlen", r"keep=duly\.Keep\(count="),
        ("leese", "did you mean lease=?"),
        ("colour", "there are type, keep, lease"),
    ],
)
def test_the_error_for_an_unknown_option_of_a_topic_names_the_alternative(
    app: AsyncDuly, queue_name: str, name: str, hint: str
) -> None:
    options: Any = {name: 5}

    with pytest.raises(UsageError, match=f"^topic '{queue_name}': a topic has no option {name}=: .*{hint}"):
        app.topic(queue_name, **options)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lease", r"option of the topic.*app.topic\(name, lease="),
        ("retry", r"option of the topic.*app.topic\(name, retry="),
        ("rate", "concurrency="),
        ("delay", r"it belongs to one entry: events\.publish\(body, delay=\.\.\.\)$"),
        ("max_retries", r"set it on the topic.*app\.topic\(name, retry=duly\.Retry\(attempts=\.\.\.\)\)$"),
        ("visibility_timeout", r"set it on the topic.*app\.topic\(name, lease=\.\.\.\)$"),
        ("ttl", r"the topic's keep="),
        ("begin", "there are start, headers"),
        ("header", "did you mean headers=?"),
    ],
)
def test_the_error_for_an_unknown_option_of_a_group_names_the_alternative(
    events: AsyncTopic, name: str, hint: str
) -> None:
    options: Any = {name: 5}

    with pytest.raises(UsageError, match=f"^group '{events.name}/g': a group has no option {name}=: .*{hint}"):
        events.group("g", **options)
    hint = "there are group, start, headers, concurrency" if name == "begin" else hint
    with pytest.raises(UsageError, match=f"^group '{events.name}/g': a handler has no option {name}=: .*{hint}"):
        events.handler(group="g", **options)


@pytest.mark.parametrize(
    ("misplaced", "options", "group"),
    [
        ((print,), {}, "..."),  # @events.handler
        ((), {}, "..."),
        ((), {"group": None}, "..."),
        (("grp",), {}, "grp"),
        (("grp",), {"concurrency": 3}, "grp"),
    ],
)
def test_the_error_for_a_handler_without_a_group_shows_how_to_name_it(
    events: AsyncTopic, misplaced: Any, options: Any, group: str
) -> None:
    says = re.escape(f'@events.handler(group="{group}")')
    with pytest.raises(UsageError, match=f"^topic '{events.name}': a handler is for one group: write {says}$"):
        events.handler(*misplaced, **options)


def test_the_error_for_a_queue_with_the_name_of_a_group_shows_how_to_get_the_group(app: AsyncDuly) -> None:
    with pytest.raises(InvalidName, match=r"'ev/g' is not a queue name.*app\.topic\('ev'\)\.group\('g'\)$"):
        app.queue("ev/g")
    with pytest.raises(InvalidName, match=r"digit$"):
        app.queue("e v/g")


async def test_the_error_for_a_topic_or_group_in_place_of_a_queue_shows_the_fix(
    app: AsyncDuly, events: AsyncTopic
) -> None:
    group = events.group("g")
    held = await given_read(group)

    for given in (events, group):
        of: Any = given
        shown = re.escape(repr(given))
        with pytest.raises(
            UsageError, match=f"queue must be a queue, not {shown}: have the handler of a queue publish"
        ):
            await app.schedule("nightly", of, "body", every=60)
        with pytest.raises(UsageError, match=f"queue must be a queue, not {shown}: a group has one handler, @events"):
            app.task(queue=of)(print)
        with pytest.raises(UsageError, match=f"to must be a queue, not {shown}: without it.*publish the bodies"):
            await group.redrive(to=of)
        with pytest.raises(UsageError, match=f"send 1 .* not to {shown}: use publish= for a topic"):
            await held.commit(send=[(of, "body")])
    for wrong, instead in ((group, "publish to its topic"), (app.queue("q"), "use send= for a queue or a task")):
        with pytest.raises(
            UsageError, match=f"publish 1 of a commit must be a pair of a topic and a body.*: {instead}"
        ):
            await held.commit(publish=[(wrong, "body")])  # type: ignore[list-item]
    for not_pairs in ("ab", {events: "body"}, 5):
        pairs: Any = not_pairs
        with pytest.raises(UsageError, match="publish= takes pairs of a topic and a body"):
            await held.commit(publish=pairs)
    with pytest.raises(UsageError, match="publish 1 of a commit must be a pair"):
        await held.commit(publish=[(events,)])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="priority= is for messages of a queue"):
        await held.commit(publish=[(events, Send("body", priority=3))])

    assert await counted(group) == {"sent": 1, "delivered": 1, "leased": 1}
    await held.ack()


@pytest.mark.parametrize("ahead", [61, 86400])
async def test_a_group_cannot_begin_at_a_time_in_the_future(events: AsyncTopic, ahead: float) -> None:
    future = datetime.now(UTC) + timedelta(seconds=ahead)
    shown = re.escape(future.isoformat())

    with pytest.raises(UsageError, match=f"^group '{events.name}/g': start={shown} is in the future: use 'new'"):
        events.group("g", start=future)
    with pytest.raises(UsageError, match=f"^group '{events.name}/g': to={shown} is in the future: use 'new'"):
        await events.group("g").seek(future)
    events.group("g", start=datetime.now(UTC) + timedelta(seconds=30))  # clocks differ


async def test_the_position_of_read_may_be_none(events: AsyncTopic) -> None:
    with pytest.raises(UsageError, match="after must be None, 'beginning', 'new', 'end', the id"):
        await events.read(after="middle")
    with pytest.raises(UsageError, match="to must be 'beginning', 'new', 'end', the id"):
        await events.group("g").seek("middle")


@pytest.mark.parametrize(
    "body", [object(), {"a": object()}, {("a", "b"): 1}, "\ud800", complex(1, 2), NAN], ids=range(6)
)
async def test_a_body_of_an_entry_that_cannot_be_encoded_is_refused(
    events: AsyncTopic, place: Place, body: Any
) -> None:
    with pytest.raises(UsageError, match=events.name):
        await events.publish(body)

    await check_unwritten(events, place)


@pytest.mark.parametrize(
    "options", [{}, {"delay": 60}, {"headers": {"h": "x" * 500_000}}], ids=["now", "later", "headers"]
)
async def test_an_entry_over_a_mebibyte_is_too_large(events: AsyncTopic, place: Place, options: dict[str, Any]) -> None:
    size = 600_000 if "headers" in options else 1_048_577

    with pytest.raises(TooLarge, match=f"1048576.*topic '{events.name}'"):
        await events.publish(b"x" * size, **options)

    await check_unwritten(events, place)


async def test_the_largest_body_is_an_option_of_app_and_topic(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, max_message_bytes=10) as app:
        await app.topic(queue_name).publish(b"x" * 10)
        with pytest.raises(TooLarge, match="11 bytes"):
            await app.topic(queue_name).publish(b"x" * 11)
        await app.topic(queue_name, max_message_bytes=11).publish(b"x" * 11)


@pytest.mark.parametrize("bodies", ["text", b"bytes", {"a": 1}, 5, None], ids=repr)
async def test_publish_many_takes_no_single_body(events: AsyncTopic, place: Place, bodies: Any) -> None:
    with pytest.raises(UsageError, match=f"{events.name}.*list of bodies"):
        await events.publish_many(bodies)

    await check_unwritten(events, place)


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"key": "k"}], ids=str)
async def test_a_send_in_the_send_of_a_publish_is_refused(
    events: AsyncTopic, place: Place, options: dict[str, Any]
) -> None:
    says = f"^topic '{events.name}': a Send has a body and its options, and cannot be a body itself"
    nested = Send(Send(1, delay=300), **options)

    with pytest.raises(UsageError, match=says):
        await events.publish(nested)
    with pytest.raises(UsageError, match=says):
        await events.publish_many(["good", nested])

    await check_unwritten(events, place)


async def test_options_in_addition_to_a_send_are_refused(events: AsyncTopic, place: Place) -> None:
    with pytest.raises(UsageError, match="Send has its options in it"):
        await events.publish(Send("body"), key="k")

    await check_unwritten(events, place)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        ("read", {"limit": 0}, "limit.*0"),
        ("read", {"limit": 1001}, "limit.*1001"),
        ("read", {"limit": "1"}, "limit.*'1'"),
        ("read", {"wait": -1}, "wait.*-1"),
        ("read", {"wait": None}, "wait.*None"),
        ("read", {"after": ""}, "after.*''"),
        ("read", {"after": "tomorrow"}, "after.*'tomorrow'"),
        ("read", {"after": "1-2-3"}, "after.*'1-2-3'"),
        ("read", {"after": "99999999999999999999999"}, "after.*9999"),
        ("read", {"after": 5}, "after.*5"),
        ("read", {"after": NAIVE}, "after.*time zone"),
        ("delayed", {"limit": 0}, "limit.*0"),
        ("delayed", {"after": 5}, "after.*5"),
        ("cancel", {"id": ""}, "id.*empty"),
        ("cancel", {"id": 5}, "id.*5"),
        ("get", {"id": ""}, "id.*empty"),
        ("explain", {"id": 5}, "id.*5"),
        ("promote", {"id": ""}, "id.*empty"),
        ("reschedule", {"id": "x"}, "delay= or at="),
        ("reschedule", {"id": "x", "delay": -1}, "delay.*-1"),
        ("reschedule", {"id": 5, "delay": 1}, "id.*5"),
    ],
)
async def test_a_bad_argument_of_a_topic_is_named_and_nothing_is_written(
    events: AsyncTopic, place: Place, method: str, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=f"(?s){says}"):
        await getattr(events, method)(**arguments)

    await check_unwritten(events, place)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        ("receive", {"limit": 0}, "limit.*0"),
        ("receive", {"limit": 1001}, "limit.*1001"),
        ("receive", {"wait": -1}, "wait.*-1"),
        ("receive", {"lease": 0}, "lease.*0"),
        ("receive", {"lease": "30"}, "lease.*'30'"),
        ("seek", {"to": ""}, "to.*''"),
        ("seek", {"to": None}, "to.*None"),
        ("seek", {"to": "middle"}, "to.*'middle'"),
        ("seek", {"to": NAIVE}, "to.*time zone"),
        ("pending", {"limit": -1}, "limit.*-1"),
        ("pending", {"start": "x"}, "start.*'x'"),
        ("pending", {"end": 5}, "end.*5"),
        ("pending", {"min_idle": -1}, "min_idle.*-1"),
        ("get", {"id": ""}, "id.*empty"),
        ("explain", {"id": None}, "id.*None"),
        ("cancel", {"id": 5}, "id.*5"),
        ("list", {"state": "lost"}, "'lost'"),
        ("purge", {"state": "lost"}, "'lost'"),
        ("redrive", {"limit": 0}, "limit.*0"),
        ("redrive", {"rate": "fast"}, "rate.*'fast'"),
        ("reschedule", {"id": "1-1"}, "delay= or at="),
    ],
)
async def test_a_bad_argument_of_a_group_is_named_and_nothing_is_written(
    archive: AsyncGroup, place: Place, method: str, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=f"(?s){says}"):
        await getattr(archive, method)(**arguments)

    await check_unwritten(archive.topic, place)


@pytest.mark.parametrize(
    ("verb", "arguments", "says"),
    [
        ("retry", {"delay": -1}, "delay.*-1"),
        ("defer", {"delay": None}, "delay.*None"),
        ("recycle", {"body": object()}, "object"),
        ("extend", {"seconds": 0}, "seconds.*0"),
        ("commit", {"send": "text"}, "send"),
        ("commit", {"redis": [("FLUSHALL",)]}, "FLUSHALL"),
    ],
)
async def test_a_bad_argument_of_a_settle_in_a_group_is_named_and_the_delivery_is_still_held(
    archive: AsyncGroup, verb: str, arguments: dict[str, Any], says: str
) -> None:
    held = await given_read(archive)

    with pytest.raises(UsageError, match=f"(?s){says}"):
        await getattr(held, verb)(**arguments)

    assert await counted(archive) == {"sent": 1, "delivered": 1, "leased": 1}
    await held.ack()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"start": ""}, "start.*''"),
        ({"start": "middle"}, "start.*'middle'"),
        ({"start": None}, "start.*None"),
        ({"start": 5}, "start.*5"),
        ({"start": NAIVE}, "start.*time zone"),
        ({"headers": "eu"}, "headers.*'eu'"),
        ({"headers": {"region": 5}}, "headers.*region.*5"),
        ({"headers": {"region": []}}, "headers.*region"),
        ({"headers": {"region": ["eu", 5]}}, "headers.*5"),
        ({"headers": {5: "eu"}}, "headers.*5"),
        ({"headers": {"region": "\ud800"}}, "Unicode"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_bad_option_of_a_group_is_named(events: AsyncTopic, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)^group '{events.name}/g': .*{says}"):
        events.group("g", **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep": 5}, "keep.*5"),
        ({"keep": True}, "keep.*True"),
        ({"keep": Keep(count=0)}, "keep.*count=0.*keeps nothing.*keep=None"),
        ({"keep": Keep(bytes=0, age=60)}, "keep.*bytes=0.*keeps nothing.*keep=None"),
        ({"keep": Keep(age=timedelta(0))}, "keep.*age.*keeps nothing.*keep=None"),
        ({"lease": 0}, "lease.*0"),
        ({"max_runtime": 0}, "max_runtime.*0"),
        ({"retry": 5}, "retry.*5"),
        ({"crash_limit": 0}, "crash_limit.*0"),
        ({"dead": None}, "dead.*None"),
        ({"on_dead": "ignore"}, "on_dead.*'ignore'"),
        ({"dedup_for": 0}, "dedup_for.*0"),
        ({"max_message_bytes": 0}, "max_message_bytes.*0"),
        ({"type": 5}, "type.*5"),
    ],
    ids=str,
)
def test_a_bad_option_of_a_topic_is_named(app: AsyncDuly, queue_name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)^topic '{queue_name}': .*{says}") as refused:
        app.topic(queue_name, **options)
    assert str(refused.value).count(queue_name) == 1


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "-a", "@a", "a/b", "a:b", "{a}", "ü", "x" * 129, "a\n", None, 5], ids=ascii
)
def test_a_bad_name_of_a_topic_or_group_is_named(app: AsyncDuly, queue_name: str, name: Any) -> None:
    with pytest.raises(InvalidName, match=re.escape(repr(name)) + ".*topic name"):
        app.topic(name)
    with pytest.raises(InvalidName, match=re.escape(repr(name)) + ".*group name"):
        app.topic(queue_name).group(name)


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-9", "x" * 128], ids=lambda name: name[:8])
async def test_a_good_name_of_a_topic_or_group_is_taken(app: AsyncDuly, queue_name: str, name: str) -> None:
    assert app.topic(name).name == name
    group = app.topic(queue_name).group(name)
    await group.topic.publish("body")
    assert [d.body for d in await group.receive(wait=0)] == ["body"]
