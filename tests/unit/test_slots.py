"""Slots of keys and calls, as far as they follow from names. tests/lua compares them with a server's."""

from collections.abc import Callable
from typing import Any

import pytest

from duly._core import ops
from duly._core.call import Call
from duly._core.effects import checked_effects
from duly._core.keys import (
    GroupKeys,
    LockKeys,
    OnceKeys,
    QueueKeys,
    RegistryKeys,
    ScheduleKeys,
    TopicKeys,
    queue_of_key,
    topic_of_key,
)
from duly._core.topology import slot_of
from duly.options import QueueOptions


def all_of(namespace: str) -> list[QueueKeys]:
    topic = TopicKeys(namespace, "events")
    return [
        QueueKeys(namespace, "orders"), topic, GroupKeys(topic, "archive", frees=False), LockKeys(namespace, "a{b}"),
        OnceKeys(namespace, "}{"), RegistryKeys(namespace), ScheduleKeys(namespace),
    ]  # fmt: skip


def test_keys_with_a_tag_are_in_its_slot() -> None:
    assert QueueKeys("duly", "orders").slot == slot_of(b"orders")
    assert TopicKeys("duly", "events").slot == slot_of(b"@events")
    assert GroupKeys(TopicKeys("duly", "events"), "orders", frees=False).slot == slot_of(b"@events")
    assert LockKeys("duly", "a{b}").slot == slot_of(b"~lock:a%7Bb%7D")


def test_a_namespace_in_braces_is_in_one_slot() -> None:
    assert {keys.slot for keys in all_of("{shop}")} == {slot_of(b"shop")}
    assert {slot_of(keys.call(b"stream")) for keys in all_of("{shop}")} == {slot_of(b"shop")}
    assert len({keys.slot for keys in all_of("shop")}) > 1


def test_a_slot_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = QueueKeys("duly", "orders")
    slot = keys.slot
    monkeypatch.setattr("duly._core.keys.slot_of", lambda _: pytest.fail("again"))
    assert keys.slot == slot


@pytest.mark.parametrize("namespace", ["shop", "{shop}"])
def test_names_are_read_from_keys(namespace: str) -> None:
    assert queue_of_key(namespace, QueueKeys(namespace, "orders").key("meta")) == "orders"
    assert queue_of_key(namespace, TopicKeys(namespace, "events").key("meta")) is None
    assert topic_of_key(namespace, TopicKeys(namespace, "events").stream) == "events"


def commit(keys: QueueKeys, to: QueueKeys, *effects: tuple[Any, ...]) -> Call[Any]:
    options = QueueOptions()
    targets = [ops.Target(to, options, [])]
    return ops.commit(
        keys, options, ops.Settle("id", 1), targets, [], checked_effects(effects, ["duly"]), result="", result_in=0
    )


def queues(namespace: str) -> tuple[QueueKeys, QueueKeys]:
    return QueueKeys(namespace, "orders"), QueueKeys(namespace, "bills")


CALLS: dict[str, Callable[[QueueKeys, QueueKeys], Call[Any]]] = {
    "move": lambda orders, bills: ops.move(orders, bills, QueueOptions(), []),
    "take_tokens": lambda orders, bills: ops.take_tokens(orders, [orders.key("wake"), bills.key("wake")], 1),
    "occupied": lambda orders, bills: ops.occupied([orders, bills]),
    "commit": commit,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_over_queues_is_in_one_slot_if_the_namespace_is(name: str) -> None:
    make = CALLS[name]
    assert not make(*queues("shop")).is_in_one_slot()
    assert make(*queues("{shop}")).is_in_one_slot()
    orders, _ = queues("shop")
    assert make(orders, orders).is_in_one_slot()


@pytest.mark.parametrize(("key", "is_in_one"), [("stock:{orders}:1", True), ("stock", False), ("{bills}", False)])
def test_keys_of_the_user_count(key: str, is_in_one: bool) -> None:
    orders, _ = queues("shop")
    assert commit(orders, orders, ("INCR", key)).is_in_one_slot() is is_in_one


def test_a_call_on_one_queue_or_group_is_in_one_slot() -> None:
    for keys in all_of("shop"):
        assert ops.wake(keys).is_in_one_slot()
