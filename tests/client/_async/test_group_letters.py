"""Dead letters of a group are listed, redriven and moved to a queue, and explain() covers them."""

import re
from typing import Any

import pytest

import duly
from duly import AsyncDuly, AsyncGroup, AsyncQueue, AsyncTopic, Keep, Message, Retry, UsageError, Where
from tests.client._async.given import check_accounts, counted, given_read, seen, take, take_bodies, take_one
from tests.client.place import Place


async def given_letter(group: AsyncGroup, body: Any = "body", **options: Any) -> str:
    """Publish an entry and let it die in a group."""
    held = await given_read(group, body, **options)
    await held.reject("no use")
    return held.id


async def given_failed(group: AsyncGroup, error: str, body: Any = "body", **options: Any) -> str:
    """Let an entry die of an error. The group's topic must have Retry(attempts=1)."""
    held = await given_read(group, body, **options)
    await held.retry(error=error)
    return held.id


async def dead_bodies(group: AsyncGroup) -> list[Any]:
    return [message.body for message in await group.list("dead")]


@pytest.fixture
def impatient(app: AsyncDuly, queue_name: str) -> AsyncGroup:
    """Return a group whose first failure is a dead letter."""
    return app.topic(queue_name, retry=Retry(attempts=1)).group("impatient")


async def test_a_dead_letter_shows_its_message_and_the_reason(archive: AsyncGroup, place: Place) -> None:
    id_ = await given_letter(archive, {"n": 1}, key="k", headers={"a": "b"})

    (letter,) = await archive.list("dead")

    assert letter == await seen(archive, id_)
    assert (letter.id, letter.queue, letter.state, letter.body) == (id_, archive.label, "dead", {"n": 1})
    assert (letter.key, letter.headers, letter.reason, letter.rejects) == ("k", {"a": "b"}, "no use", 1)
    assert letter.finished_at is not None
    assert letter.finished_at.timestamp() == pytest.approx(place.now(), abs=5)
    assert [event.what for event in letter.timeline] == ["sent", "claimed", "reject"]


async def test_dead_letters_of_one_group_are_none_of_another(archive: AsyncGroup, live: AsyncGroup) -> None:
    id_ = await given_letter(archive)

    assert await live.list("dead") == await live.find_dead() == []
    assert await live.get(id_) is None
    assert await live.redrive() == 0


async def test_a_redriven_letter_starts_over_in_its_group_only(impatient: AsyncGroup, other_app: AsyncDuly) -> None:
    other = other_app.topic(impatient.topic.name).group("other")
    id_ = await given_failed(impatient, "boom")
    assert await take_bodies(other) == ["body"]

    assert await impatient.redrive() == 1

    again = await take_one(impatient)
    assert (again.id, again.attempt, again.redrives) == (id_, 1, 1)
    assert await take(other) == []
    await again.ack()
    await check_accounts(impatient)


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (Where(error="Timeout"), ["a"]),
        (Where(headers={"tenant": "acme"}), ["b"]),
        (Where(key="order-*"), ["a", "c"]),
        (lambda message: message.body in ("b", "c"), ["b", "c"]),
        (None, ["a", "b", "c"]),
    ],
    ids=["error", "header", "key", "function", "all"],
)
async def test_redrive_in_a_group_takes_the_letters_that_match_and_leaves_the_others(
    impatient: AsyncGroup, where: Any, chosen: list[str]
) -> None:
    await given_failed(impatient, "TimeoutError: the bank", "a", key="order-1")
    await given_failed(impatient, "KeyError: the bank", "b", headers={"tenant": "acme"})
    await given_failed(impatient, "boom", "c", key="order-2")

    assert [message.body for message in await impatient.find_dead(where)] == chosen
    assert await impatient.redrive(where=where, dry_run=True) == len(chosen)
    assert await impatient.redrive(where=where) == len(chosen)

    assert await dead_bodies(impatient) == [body for body in "abc" if body not in chosen]
    assert await take_bodies(impatient) == chosen
    await check_accounts(impatient)


async def test_redrive_by_ids_and_up_to_a_limit(archive: AsyncGroup) -> None:
    ids = [await given_letter(archive, number) for number in range(4)]

    assert await archive.redrive(where={"ids": [ids[1], "unknown"]}) == 1
    assert await archive.redrive(limit=2) == 2

    assert await dead_bodies(archive) == [3]


async def test_redrive_puts_letters_back_before_later_entries(archive: AsyncGroup) -> None:
    await given_letter(archive, "old")
    await archive.topic.publish("new")

    await archive.redrive()

    assert await take_bodies(archive) == ["old", "new"]


async def test_redrive_at_the_end_comes_behind_waiting_messages_of_the_group(archive: AsyncGroup) -> None:
    await given_letter(archive, "old")
    held = await given_read(archive, "waiting")
    await held.release()

    await archive.redrive(at_end=True)

    assert await take_bodies(archive) == ["waiting", "old"]


async def test_redrive_may_edit_bodies(archive: AsyncGroup, live: AsyncGroup) -> None:
    await given_letter(archive, {"n": "1"})
    await given_letter(archive, {"n": 2})

    def mended(message: Message) -> Any:
        return {"n": int(message.body["n"])} if isinstance(message.body["n"], str) else duly.UNCHANGED

    assert await archive.redrive(edit=mended) == 2

    assert await take_bodies(archive) == [{"n": 1}, {"n": 2}]
    assert await take_bodies(live) == [{"n": "1"}, {"n": 2}]
    await check_accounts(archive)


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_redrive_may_move_letters_to_a_queue(archive: AsyncGroup, queue: AsyncQueue) -> None:
    """I1."""
    id_ = await given_letter(archive, {"n": 1}, key="k", headers={"a": "b"})

    assert await archive.redrive(to=queue) == 1

    moved = await take_one(queue)
    assert (moved.id, moved.body, moved.key, moved.headers, moved.attempt) == (id_, {"n": 1}, "k", {"a": "b"}, 1)
    assert await archive.list("dead") == []
    assert (await archive.stats()).moved == 1
    await check_accounts(archive)
    await check_accounts(queue)


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_redrive_to_a_queue_by_its_name_and_with_a_filter(archive: AsyncGroup, queue: AsyncQueue) -> None:
    for body in ("a", "b"):
        await given_letter(archive, body)

    assert await archive.redrive(to=queue.name, where=lambda message: message.body == "b") == 1

    assert await take_bodies(queue) == ["b"]
    assert await dead_bodies(archive) == ["a"]


async def test_a_letter_moved_to_a_queue_may_be_redriven_to_nothing_of_a_topic(
    archive: AsyncGroup, live: AsyncGroup
) -> None:
    await given_letter(archive)

    with pytest.raises(UsageError, match="to"):
        await archive.redrive(to=live)  # type: ignore[arg-type]

    assert await dead_bodies(archive) == ["body"]


async def test_dead_letters_are_kept_by_the_option_of_the_topic(app: AsyncDuly, queue_name: str) -> None:
    group = app.topic(queue_name, dead=Keep(count=2)).group("g")
    for number in range(4):
        await given_letter(group, number)

    assert await dead_bodies(group) == [2, 3]
    assert (await group.stats()).trimmed == 2
    await check_accounts(group)


async def test_a_dead_letter_outlives_its_entry(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=None)
    group = events.group("g")
    id_ = await given_letter(group, "precious")
    assert await events.read() == []

    await group.redrive()

    again = await take_one(group)
    assert (again.id, again.body) == (id_, "precious")
    await again.ack()
    await check_accounts(group)


async def test_a_dead_letter_can_be_cancelled_and_purged(archive: AsyncGroup) -> None:
    first, second = await given_letter(archive, 1), await given_letter(archive, 2)

    assert await archive.cancel(first) is True
    assert await archive.cancel(first) is False
    assert await archive.purge("dead") == 1

    assert await archive.get(second) is None
    await check_accounts(archive)


# Why


async def explained(group: AsyncGroup, id_: str) -> str:
    """Return the explanation of an entry, without its name."""
    text = await group.explain(id_)
    head = f"message {id_} of group {group.label!r} "
    assert text.startswith(head)
    return text.removeprefix(head)


async def test_an_entry_that_the_group_has_not_read_is_unread(archive: AsyncGroup) -> None:
    await archive.create()
    ids = await archive.topic.publish_many(["a", "b"])

    assert re.search("one of 2 unread entries.*delivered when a consumer asks", await explained(archive, ids[1]))


async def test_an_unread_entry_of_a_paused_group_waits_for_resume(archive: AsyncGroup) -> None:
    await archive.create()
    id_ = await archive.topic.publish("a")
    await archive.pause()

    assert re.search(r"unread.*paused by.*resume\(\)", await explained(archive, id_))


async def test_each_state_of_an_entry_is_explained(app: AsyncDuly, queue_name: str) -> None:
    group = app.topic(queue_name, retry=Retry(delays=[60])).group("g")
    leased, failed, deferred, dead, behind, ready = [
        await given_read(group, body, key="k" if body == "leased" else None)
        for body in ("leased", "failed", "deferred", "dead", "behind", "ready")
    ]
    await failed.retry(error="boom")
    await deferred.defer(60, "too early")
    await dead.reject("no use")
    await ready.release()
    await behind.ack()
    parked = await group.topic.publish("parked", key="k")
    again = await take_one(group)

    says = {
        leased.id: "is leased by .* until .*, attempt 1",
        failed.id: "is in backoff after error 'boom': attempt 2 is due at",
        deferred.id: r"was deferred once \(too early\): it is due again at",
        dead.id: r"has been dead since .*: no use; redrive\(\)",
        parked: f"is behind message {leased.id} of key 'k', which is leased until",
        again.id: "is leased by",
        behind.id: r"is no longer in the group.*finished or cancelled, or was skipped because of its headers, seek",
        "1-1": "is unknown: it was never published, or is finished, cancelled, skipped .* trimmed from the topic",
        "never-sent": "is unknown: it was never published, or is finished",
    }
    for id_, pattern in says.items():
        assert re.match(pattern, await explained(group, id_)), await explained(group, id_)
    await again.release()
    assert re.match("has been ready since .*, first in line", await explained(group, ready.id))


async def test_an_unread_entry_without_the_headers_of_its_group_will_be_passed_over(events: AsyncTopic) -> None:
    group = events.group("eu", headers={"region": ["eu", "uk"]})
    await group.create()
    wanted = await events.publish("a", headers={"region": "uk"})
    other = await events.publish("b", headers={"region": "us"})

    assert re.search("unread.*delivered when a consumer asks", await explained(group, wanted))
    assert await explained(group, other) == "is unread, and will be skipped: it lacks the group's headers."


async def test_a_delayed_publish_is_explained_to_a_group(archive: AsyncGroup, clock: Place) -> None:
    id_ = await archive.topic.publish("later", delay=60)
    due = (await archive.topic.delayed())[0].due_at
    assert due is not None
    moment = due.isoformat(timespec="milliseconds")

    early = await explained(archive, id_)
    await archive.create()

    enters = f"waits in the topic: it enters the stream at {moment}, as an entry with a new id"
    assert early == f"{enters}: the group receives it then, if it exists by then, or starts before it."
    assert await explained(archive, id_) == f"{enters}: the group receives it then, like any entry."
    clock.advance(61)
    assert (await explained(archive, id_)).startswith(f"was delayed until {moment}: it enters the stream with the next")
    await take_one(archive)
    assert (await explained(archive, id_)).startswith("is unknown: it was never published, or is finished")


async def test_a_group_that_does_not_exist_is_reported(events: AsyncTopic) -> None:
    id_ = await events.publish("body")
    nothing = await explained(events.group("gone"), id_)
    await events.group("live").create()
    await events.group("archive").create()

    others = await explained(events.group("gone"), id_)

    assert re.search(f"the group does not exist, topic '{events.name}' has no group[.]", nothing)
    assert re.search(f"the group does not exist, topic '{events.name}' has 'archive', 'live'[.]", others)


async def test_the_events_of_an_entry_are_in_its_timeline(archive: AsyncGroup, clock: Place) -> None:
    held = await given_read(archive, lease=10)
    clock.advance(11)
    held = await take_one(archive)
    await held.retry(0, error="boom")

    message = await seen(archive, held.id)

    assert [event.what for event in message.timeline] == ["sent", "claimed", "crash", "claimed", "retry"]
    assert (message.crashes, message.failures, message.errors[0].error) == (1, 1, "boom")
    assert await counted(archive) == {
        "ready": 1, "sent": 1, "delivered": 2, "crashed": 1, "retried": 1,
    }  # fmt: skip
