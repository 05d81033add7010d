"""Waking in groups: no member sleeps past an entry that it could take.

The members here poll only every 5 s, so a member that acts sooner was woken.
"""

import time
from typing import Any

import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncGroup, AsyncTopic, Send
from tests.client._async.given import SOON, InBackground, given_blocked, given_read, take, until
from tests.client.place import Place


async def woken(member: InBackground[list[AsyncDelivery]]) -> AsyncDelivery:
    """Return the delivery of a member that was woken in time."""
    (delivery,) = await member.result()
    return delivery


def of_other_app(group: AsyncGroup, other_app: AsyncDuly) -> AsyncGroup:
    """Return another member of a group."""
    return other_app.topic(group.topic.name).group(group.name)


async def test_a_publish_wakes_a_member_of_every_group(archive: AsyncGroup, live: AsyncGroup, place: Place) -> None:
    members = await given_blocked(place, archive, live)

    await archive.topic.publish("body")

    assert [(await woken(member)).body for member in members] == ["body", "body"]


async def test_a_publish_of_another_app_wakes(archive: AsyncGroup, other_app: AsyncDuly, place: Place) -> None:
    (member,) = await given_blocked(place, archive)

    await other_app.topic(archive.topic.name).publish("body")

    assert (await woken(member)).body == "body"


async def test_many_entries_wake_many_members_and_each_goes_to_one(
    archive: AsyncGroup, other_app: AsyncDuly, place: Place
) -> None:
    """I3."""
    members = await given_blocked(place, archive, of_other_app(archive, other_app), archive)

    await archive.topic.publish_many([1, 2, 3])

    assert sorted([(await woken(member)).body for member in members]) == [1, 2, 3]


async def test_one_entry_goes_to_one_waiting_member(archive: AsyncGroup, other_app: AsyncDuly, place: Place) -> None:
    """I3."""
    members = await given_blocked(place, archive, of_other_app(archive, other_app), wait=1)

    await archive.topic.publish("body")

    assert sorted([len(await member.result()) for member in members]) == [0, 1]


@pytest.mark.parametrize("before", [None, 60])
async def test_a_delayed_publish_wakes_a_waiting_consumer_when_it_is_due(
    archive: AsyncGroup, place: Place, before: float | None
) -> None:
    if before:
        await archive.topic.publish("much later", delay=before)
    (member,) = await given_blocked(place, archive)

    await archive.topic.publish("soon", delay=0.2)

    assert (await woken(member)).body == "soon"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [("retry", (0,)), ("retry", (0.2,)), ("defer", (0.2,)), ("release", ()), ("recycle", ())],
)
async def test_a_released_message_wakes_a_member(
    archive: AsyncGroup, place: Place, verb: str, arguments: tuple[float, ...]
) -> None:
    held = await given_read(archive)
    (member,) = await given_blocked(place, archive)

    await getattr(held, verb)(*arguments)

    assert (await woken(member)).id == held.id


async def test_the_end_of_an_entry_wakes_for_the_next_of_its_key(archive: AsyncGroup, place: Place) -> None:
    held = await given_read(archive, 1, key="k")
    await archive.topic.publish(2, key="k")
    (member,) = await given_blocked(place, archive)

    await held.ack()

    assert (await woken(member)).body == 2


async def test_a_lease_that_runs_out_wakes_a_member(archive: AsyncGroup, place: Place) -> None:
    held = await given_read(archive, lease=0.5)
    (member,) = await given_blocked(place, archive)

    assert (await woken(member)).id == held.id


async def test_a_shorter_lease_wakes_a_member(archive: AsyncGroup, place: Place) -> None:
    held = await given_read(archive, lease=600)
    (member,) = await given_blocked(place, archive)

    await held.extend(0.2)

    assert (await woken(member)).id == held.id


async def test_a_redrive_a_resume_and_a_seek_wake(archive: AsyncGroup, place: Place) -> None:
    held = await given_read(archive, "first")
    await held.reject("no use")
    (member,) = await given_blocked(place, archive)
    await archive.redrive()
    await (await woken(member)).ack()

    await archive.pause()
    await archive.topic.publish("second")
    (member,) = await given_blocked(place, archive)
    await archive.resume()
    await (await woken(member)).ack()

    (member,) = await given_blocked(place, archive)
    await archive.seek("beginning")
    assert (await woken(member)).body == "first"


async def test_a_promote_and_an_earlier_time_wake(archive: AsyncGroup, place: Place) -> None:
    held = await given_read(archive)
    await held.defer(60)
    (member,) = await given_blocked(place, archive)
    await archive.promote(held.id)
    again = await woken(member)
    await again.defer(60)
    (member,) = await given_blocked(place, archive)

    await archive.reschedule(held.id, delay=0.1)

    assert (await woken(member)).id == held.id


async def test_members_all_keep_the_timers(archive: AsyncGroup, other_app: AsyncDuly, place: Place) -> None:
    """No watch is passed on: a member that leaves takes nothing away."""
    leaving = InBackground(lambda: archive.receive(limit=1, wait=0.6))
    await until(lambda: place.blocked() == 1)
    staying = InBackground(lambda: of_other_app(archive, other_app).receive(limit=1, wait=20))
    await until(lambda: place.blocked() == 2 or not leaving.is_running)

    await archive.topic.publish("soon", delay=1)

    assert await leaving.result() == []
    assert (await woken(staying)).body == "soon"


async def test_an_entry_of_another_topic_wakes_no_consumer(archive: AsyncGroup, app: AsyncDuly, place: Place) -> None:
    (member,) = await given_blocked(place, archive, wait=0.4)

    await app.topic(f"{archive.topic.name}-2").publish("body")

    assert await member.result() == []


async def test_a_receive_waits_as_long_as_asked(archive: AsyncGroup) -> None:
    began = time.monotonic()

    assert await archive.receive(wait=0.3) == []

    assert 0.3 <= time.monotonic() - began < SOON


async def test_a_member_of_a_group_with_headers_continues_behind_skipped_entries(
    events: AsyncTopic, place: Place
) -> None:
    (member,) = await given_blocked(place, events.group("g", headers={"a": "b"}))
    await events.publish_many(["no", "no"])
    await events.publish("yes", headers={"a": "b"})

    assert (await woken(member)).body == "yes"


async def test_an_entry_due_in_a_moment_is_not_slept_past(archive: AsyncGroup) -> None:
    for number in range(30):
        await archive.topic.publish(number, delay=number * 0.000_05)
        began = time.monotonic()
        (delivery,) = await archive.receive(limit=1, wait=20)
        assert time.monotonic() - began < SOON
        await delivery.ack()


async def test_a_member_that_waits_lives_through_the_end_of_its_topic(archive: AsyncGroup, place: Place) -> None:
    await archive.topic.publish("old")
    await (await take(archive))[0].ack()
    (member,) = await given_blocked(place, archive)

    await archive.topic.delete()
    await archive.topic.publish("new")

    assert (await woken(member)).body == "new"


async def test_a_slow_group_delays_no_other(archive: AsyncGroup, live: AsyncGroup, place: Place) -> None:
    """One holds all that it got, the other goes on."""
    await archive.topic.publish_many([Send(number, key="k") for number in range(50)])
    assert len(await take(archive)) == 1
    found: list[Any] = []
    while some := await take(live):
        assert await live.ack_many(some) == []
        found += [d.body for d in some]
    (member,) = await given_blocked(place, live)

    await archive.topic.publish("new")

    assert found == list(range(50))
    assert (await woken(member)).body == "new"


# --- async only
async def test_a_cancelled_receive_keeps_nothing(archive: AsyncGroup, other_app: AsyncDuly, place: Place) -> None:
    """In asyncio only: a thread is not cancelled."""
    first, second = await given_blocked(place, archive, of_other_app(archive, other_app))

    first.cancel()
    await until(lambda: place.blocked() == 1)
    await archive.topic.publish("body")

    assert (await woken(second)).body == "body"


# --- end
