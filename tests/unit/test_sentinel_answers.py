"""Answers of sentinels, which of them count, and roles of nodes."""

from typing import Any

import pytest

from duly._core.sentinel import Announcement, Role, is_news, read_announcement, read_role
from duly._core.topology import Node, UnreadableReply

OLD, NEW = Node("10.0.0.1", 6379), Node("10.0.0.2", 6379)


def master(epoch: int, node: Node = OLD, flags: bytes = b"master") -> list[bytes]:
    """Write a reply to SENTINEL MASTER, with some of its fields."""
    return [
        b"name", b"mymaster", b"ip", node.host.encode(), b"port", b"%d" % node.port, b"runid", b"", b"flags", flags,
        b"config-epoch", b"%d" % epoch, b"num-slaves", b"2", b"quorum", b"2",
    ]  # fmt: skip


def address(node: Node) -> list[bytes]:
    return [node.host.encode(), b"%d" % node.port]


def test_epoch_and_address_come_from_different_replies() -> None:
    """The address in SENTINEL MASTER is still the old one when the epoch is already new."""
    found = read_announcement(master(7, OLD, b"master,o_down,failover_in_progress"), address(NEW))

    assert found == Announcement(NEW, 7, frozenset({"master", "o_down", "failover_in_progress"}))


@pytest.mark.parametrize("node", [Node("redis-1.example", 6380), Node("fe80::1", 6379)])
def test_host_names_and_ipv6_addresses_are_read(node: Node) -> None:
    found = read_announcement(master(0, node), address(node))
    assert found is not None
    assert found.node == node


def test_a_sentinel_may_not_know_the_service() -> None:
    assert read_announcement(None, None) is None


@pytest.mark.parametrize(
    "replies",
    [
        (None, address(NEW)), ([], address(NEW)), ([b"a"], address(NEW)),
        (master(1), []), (master(1), [b"h", b"x"]), (5, 5),
    ],
    ids=repr,
)  # fmt: skip
def test_another_answer_cannot_be_read(replies: tuple[Any, Any]) -> None:
    with pytest.raises(UnreadableReply, match="sentinel"):
        read_announcement(*replies)


@pytest.mark.parametrize(
    ("said", "known", "has_failed", "counts"),
    [
        (Announcement(NEW, 0), None, False, True),
        (Announcement(NEW, 8), Announcement(OLD, 7), False, True),
        (Announcement(NEW, 7), Announcement(OLD, 7), False, False),
        (Announcement(OLD, 7), Announcement(OLD, 7), False, False),
        (Announcement(NEW, 6), Announcement(OLD, 7), False, False),
        (Announcement(NEW, 7), Announcement(OLD, 7), True, True),
        (Announcement(NEW, 0), Announcement(OLD, 7), True, True),
    ],
)
def test_a_larger_epoch_counts_or_any_when_the_known_primary_has_failed(
    said: Announcement, known: Announcement | None, has_failed: bool, counts: bool
) -> None:
    assert is_news(said, known, has_failed=has_failed) is counts


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ([b"master", 0, []], Role("master")),
        (
            [b"master", 3129659, [[b"10.0.0.2", b"6379", b"3129242"], [b"fe80::1", b"6380", b"0"]]],
            Role("master", replicas=(NEW, Node("fe80::1", 6380))),
        ),
        ([b"slave", b"10.0.0.1", 6379, b"connected", 3167038], Role("slave", OLD)),
        ([b"slave", b"redis-1.example", 6379, b"connect", -1], Role("slave", Node("redis-1.example", 6379))),
        ([b"sentinel", [b"mymaster"]], Role("sentinel")),
    ],
)
def test_roles_are_read(reply: Any, expected: Role) -> None:
    found = read_role(reply)
    assert found == expected
    assert found.is_primary is (expected.name == "master")


@pytest.mark.parametrize(
    "reply",
    [None, [], [b"master"], [b"master", 0, [[b"h"]]], [b"slave"], [b"slave", b"h", b"x"], [b"king"], 5],
    ids=repr,
)
def test_another_role_cannot_be_read(reply: Any) -> None:
    with pytest.raises(UnreadableReply, match=r"ROLE|role"):
        read_role(reply)
