"""The accounting of a topic: a delayed publish has entered the stream, waits, is cancelled or dead."""

import pytest

from duly import AsyncDuly, AsyncTopic, Send, UsageError
from duly._core.keys import TopicKeys
from duly.memory.link import engine_for
from tests.client._async.given import take_bodies
from tests.client.place import MemoryPlace, Place, ServerPlace


async def check_accounts(events: AsyncTopic) -> None:
    """Fail unless every delayed publish is accounted for and in one place (I1, I2)."""
    audit = await events.audit()
    assert audit.ok, audit


def lose_body(place: Place, events: AsyncTopic, id_: str) -> None:
    """Remove the data of an id, as another program might."""
    if isinstance(place, ServerPlace):
        place.corrupt(f"@{events.name}", "HDEL", "msgs", id_)
    else:
        assert isinstance(place, MemoryPlace)
        engine_for(place._name).lose_body(TopicKeys("duly", events.name), id_)


async def test_an_audit_proves_the_accounts_of_a_topic(events: AsyncTopic, clock: Place) -> None:
    """I1 I2."""
    soon = await events.publish_many([Send(number, delay=10, key=f"k{number % 3}") for number in range(20)])
    late = await events.publish_many([Send(number, delay=60, dedup=f"d{number}") for number in range(20)])
    await events.publish("at once")
    for id_ in (soon[0], late[0]):
        assert await events.cancel(id_)
    assert await events.promote(late[1])
    assert await events.reschedule(soon[1], delay=100)
    clock.advance(11)
    await events.read()

    audit = await events.audit()

    assert audit.ok, audit
    assert bool(audit)
    assert (audit.queue, audit.repaired, audit.checked > 0) == (events.name, False, True)
    assert (audit.stats.sent, audit.entered, audit.stats.cancelled, audit.stats.live) == (40, 19, 2, 19)
    clock.advance(100)
    assert len(await events.read()) == 39
    assert (await events.audit()).entered == 38
    await check_accounts(events)


async def test_an_audit_of_a_topic_that_was_never_used_is_right(events: AsyncTopic) -> None:
    audit = await events.audit(repair=True)

    assert (audit.ok, audit.checked, audit.entered, audit.explanation) == (True, 0, 0, ())


async def test_an_entry_that_is_trimmed_was_accounted_for_before(app: AsyncDuly, queue_name: str) -> None:
    """I1. The bounds of a topic do not apply to publishes that wait to enter."""
    from duly import Keep

    events = app.topic(queue_name, keep=Keep(count=1))
    await events.publish("later", delay=60)
    await events.publish_many(range(10))

    assert (await events.stats()).trimmed == 9
    await check_accounts(events)


async def test_a_delayed_publish_whose_body_was_lost_is_found_and_becomes_a_dead_letter(
    events: AsyncTopic, clock: Place
) -> None:
    """I1 I2."""
    lost = await events.publish("lost", delay=60)
    await events.publish("kept", delay=60)
    lose_body(clock, events, lost)

    found = await events.audit()
    mended = await events.audit(repair=True)

    assert [(fault.id, fault.what) for fault in found.faults] == [(lost, "place without a body")]
    assert mended.repaired
    await check_accounts(events)
    (letter,) = await events.dead()
    assert (letter.id, letter.state, letter.reason) == (lost, "dead", "body lost")
    assert "never enters the stream" in await events.explain(lost)
    clock.advance(61)
    assert [entry.body for entry in await events.read()] == ["kept"]
    assert await events.cancel(lost)
    assert (await events.dead(), await events.get(lost)) == ([], None)
    await check_accounts(events)


async def test_a_delayed_publish_that_cannot_enter_when_its_time_comes_is_a_dead_letter(
    events: AsyncTopic, clock: Place
) -> None:
    """I1 I2."""
    group = events.group("archive")
    lost = await events.publish("lost", delay=10)
    await events.publish("kept", delay=10)
    lose_body(clock, events, lost)
    clock.advance(11)

    assert await take_bodies(group) == ["kept"]

    assert [letter.id for letter in await events.dead()] == [lost]
    assert (await events.audit()).difference == 0
    await events.audit(repair=True)
    await check_accounts(events)


async def test_dead_letters_of_a_topic_are_listed_in_pages(events: AsyncTopic, place: Place) -> None:
    ids = [await events.publish(number, delay=60) for number in range(3)]
    for id_ in ids:
        lose_body(place, events, id_)
    await events.audit(repair=True)

    first = await events.dead(limit=2)
    rest = await events.dead(after=first[-1])

    assert sorted(letter.id for letter in [*first, *rest]) == sorted(ids)
    assert (len(first), len(rest)) == (2, 1)


async def test_an_audit_of_a_topic_reports_how_many_ids_it_has_checked(events: AsyncTopic) -> None:
    await events.publish_many([Send(number, delay=60) for number in range(300)])
    reported: list[int] = []

    audit = await events.audit(on_progress=reported.append)

    assert reported == sorted(reported)
    assert reported[-1] == audit.checked >= 600


async def test_a_value_that_is_not_a_function_is_refused(events: AsyncTopic) -> None:
    with pytest.raises(UsageError, match="on_progress"):
        await events.audit(on_progress=7)  # type: ignore[arg-type]


async def test_a_topic_with_nothing_but_delayed_publishes_is_a_topic(
    app: AsyncDuly, events: AsyncTopic, place: Place
) -> None:
    await events.publish("later", delay=60)

    assert events.name in await app.topics()
    await events.delete()
    assert events.name not in await app.topics()
