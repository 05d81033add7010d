"""Repair: damage by hand to the keys is found, explained and repaired, and no message is lost.

On real servers only: no other program can reach into memory.
"""

from typing import Final

import pytest

from tests.client.place import ServerPlace
from tests.client.repair.damages import DAMAGES, GONE, OF_QUEUES
from tests.client.repair.judge import Healthy, check_repair

SEVERAL: Final = (
    "a parked one is removed",
    "a dead letter is removed",
    "leased and dead",
    "a lease is one of another key",
    "a lane without a mark",
    "a retry is early",
    "one that is out expires",
    "leases without their pillar",
    "priorities are nonsense",
    "a slot of no schedule",
)


@pytest.mark.parametrize("name", [*DAMAGES, *OF_QUEUES])
def test_a_queue_is_repaired_and_loses_no_message(healthy: Healthy, server: ServerPlace, name: str) -> None:
    """I1 I2 I3 I7."""
    damage, wanted = {**DAMAGES, **OF_QUEUES}[name]

    check_repair(healthy, damage, wanted, server)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_group_is_repaired_and_loses_no_message(healthy_group: Healthy, server: ServerPlace, name: str) -> None:
    """I1 I2 I3 I7."""
    damage, wanted = DAMAGES[name]

    check_repair(healthy_group, damage, wanted, server)


def test_a_repair_of_a_healthy_queue_changes_nothing(healthy: Healthy) -> None:
    before = healthy.all_that_is_stored()

    audit = healthy.inbox.audit(repair=True)

    assert (audit.ok, audit.explanation, healthy.all_that_is_stored()) == (True, (), before)


def test_a_repair_of_a_healthy_group_changes_nothing(healthy_group: Healthy) -> None:
    before = healthy_group.all_that_is_stored()

    audit = healthy_group.inbox.audit(repair=True)

    assert (audit.ok, audit.explanation, healthy_group.all_that_is_stored()) == (True, (), before)


def test_an_audit_without_repair_changes_nothing(healthy: Healthy) -> None:
    for name in SEVERAL:
        DAMAGES[name][0](healthy)
    before = healthy.all_that_is_stored()

    found = healthy.inbox.audit()

    assert {DAMAGES[name][1] for name in SEVERAL} <= {fault.what for fault in found.faults}
    assert healthy.all_that_is_stored() == before


def test_several_damages_at_once_are_repaired_at_once(healthy: Healthy, server: ServerPlace) -> None:
    """I1 I2 I3 I7."""

    def damage(h: Healthy) -> None:
        for name in SEVERAL:
            DAMAGES[name][0](h)

    check_repair(healthy, damage, GONE, server)
