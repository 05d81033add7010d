"""The stream of a topic was overwritten: its groups are still found, and continue with their messages."""

import pytest

from duly import Duly
from tests.client.place import ServerPlace
from tests.client.repair.judge import LATER, Healthy, drained


@pytest.fixture
def overwritten(healthy_group: Healthy) -> Healthy:
    key = healthy_group.prefix.partition("group:")[0] + "stream"
    healthy_group.client.set(key, "something else")
    return healthy_group


def test_an_audit_of_the_group_names_it(overwritten: Healthy) -> None:
    found = overwritten.inbox.audit()

    assert [(fault.id, fault.what) for fault in found.faults] == [("stream", "a key of another type")]


def test_a_repair_of_the_group_lets_entries_that_were_read_be_delivered(
    overwritten: Healthy, server: ServerPlace
) -> None:
    """I1 I2."""
    overwritten.inbox.audit(repair=True)

    assert overwritten.inbox.audit().explanation == ()
    server.advance(LATER + 1)
    bodies = drained(overwritten.inbox)
    assert set(bodies) == set(overwritten.names.values()) - {"dead", "done", "n1"}


@pytest.mark.parametrize("is_mended", [False, True], ids=["damaged", "mended"])
def test_the_topic_knows_its_groups(overwritten: Healthy, app: Duly, is_mended: bool) -> None:
    topic = app.topic(overwritten.inbox.label.split("/")[0])
    if is_mended:
        topic.audit(repair=True)

    assert [group.name for group in topic.groups()] == ["archive"]


def test_a_repair_of_the_topic_lets_groups_continue(overwritten: Healthy, app: Duly) -> None:
    topic = app.topic(overwritten.inbox.label.split("/")[0])

    topic.audit(repair=True)

    assert topic.audit().explanation == ()
    topic.publish("new")
    assert "new" in drained(overwritten.inbox)
