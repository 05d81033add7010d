"""Data of earlier versions with control characters can still be received, inspected and settled."""

import re

import pytest

import duly
from duly._core import outgoing

ID, KEY, VALUE = "a\x7fb", "k\x85", "v\x9f"


@pytest.fixture
def queue(backend: str, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> duly.Queue:
    """Return a queue with two messages of an earlier version."""
    queue = duly.Duly(backend).queue(queue_name)
    with monkeypatch.context() as earlier:
        earlier.setattr(outgoing, "_CONTROLS", re.compile("[\x00-\x1f]"))
        queue.send("x", id=ID, key=KEY, dedup=VALUE)
        queue.send("x", id=ID + "2", key=KEY, delay=1000)
    return queue


def test_messages_with_control_characters_are_received_and_settled(queue: duly.Queue) -> None:
    (delivery,) = queue.receive(1, wait=0)
    assert (delivery.id, delivery.key) == (ID, KEY)
    delivery.recycle(body="y")
    (delivery,) = queue.receive(1, wait=0)
    delivery.retry(delay=0)
    (delivery,) = queue.receive(1, wait=0)
    delivery.ack()
    assert queue.audit().ok


def test_messages_with_control_characters_are_found_and_managed(queue: duly.Queue) -> None:
    assert queue.get(ID) is not None
    assert queue.explain(ID)
    assert queue.promote(ID + "2")
    assert queue.reschedule(ID + "2", delay=10)
    assert queue.cancel(ID)
    assert queue.cancel(ID + "2")


def test_new_ones_are_refused(queue: duly.Queue) -> None:
    for options in ({"id": ID}, {"key": KEY}, {"dedup": VALUE}):
        with pytest.raises(duly.UsageError, match="control characters"):
            queue.send("x", **options)  # type: ignore[arg-type]
    queue.send("x", headers={"any": "text\x85\x7f"})
