"""Slots of keys, replies of cluster nodes as servers of several versions write them, and redirections."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from duly._core.topology import (
    SLOTS,
    Away,
    Node,
    Part,
    Redirection,
    SlotMap,
    UnreadableReply,
    read_redirection,
    read_slots,
    slot_of,
)

A, B, C = (Node("10.0.0.1", port) for port in (7000, 7001, 7002))
V6 = Node("fe80::1", 7000)
HALF = SLOTS // 2


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (Node("127.0.0.1", 6379), "127.0.0.1:6379"),
        (Node("redis-1.example", 7000), "redis-1.example:7000"),
        (Node("::1", 6379), "[::1]:6379"),
    ],
)
def test_a_node_is_shown_as_host_and_port(node: Node, shown: str) -> None:
    assert str(node) == f"{node}" == shown
    assert {node: 1}[Node(node.host, node.port)] == 1


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        (b"duly:{orders}:meta", b"orders"),
        (b"{shop}:{orders}:meta", b"shop"),  # the first braces count
        (b"a{}b{c}", b"a{}b{c}"),  # empty braces do not make a tag, and later braces do not count
        (b"a{b", b"a{b"),
        (b"a}b{c}", b"c"),
        (b"{{a}}", b"{a"),
        (b"", b""),
        (b"123456789", b"123456789"),
    ],
)
def test_the_slot_is_that_of_the_hash_tag(key: bytes, tag: bytes) -> None:
    assert slot_of(key) == slot_of(tag) == key_slot(key)


def test_slots_are_those_of_the_specification() -> None:
    assert slot_of(b"123456789") == 0x31C3  # the check value of CRC16/XMODEM


@given(st.binary() | st.lists(st.sampled_from([b"{", b"}", b"a", b"\xff", b""])).map(b"".join))
def test_slots_are_those_of_redis_py(key: bytes) -> None:
    assert slot_of(key) == key_slot(key)


def test_many_random_slots_are_those_of_redis_py() -> None:
    chance = random.Random(16)
    keys = [chance.randbytes(chance.randrange(60)) for _ in range(20_000)]
    assert [slot_of(key) for key in keys] == [key_slot(key) for key in keys]


def row(node: Node | tuple[bytes | None, int], *more: Any) -> list[Any]:
    """Write a node as CLUSTER SLOTS does."""
    host = node[0].encode() if isinstance(node[0], str) else node[0]
    return [host, node[1], b"0" * 40, *more]


SLOT_REPLIES: dict[str, tuple[list[Any], Node | None, Node | None, dict[Node, tuple[Node, ...]]]] = {
    # reply, primary of slot 0, primary of the last slot, replicas
    "Redis 6.2": (
        [[0, HALF - 1, row(A)], [HALF, SLOTS - 1, row(B), row(C)]],
        A, B, {A: (), B: (C,)},
    ),
    "Redis 6.2, a node that does not know its own address": (
        [[0, SLOTS - 1, row((b"", 7000))]],
        Node("asked", 7000), Node("asked", 7000), {Node("asked", 7000): ()},
    ),
    "Redis 7.0": (
        [[0, HALF - 1, row(A, [])], [HALF, SLOTS - 1, row(B, []), row(C, [])]],
        A, B, {A: (), B: (C,)},
    ),
    "Redis 7.0, addresses, and host names as well": (
        [[0, SLOTS - 1, row(A, [b"hostname", b"one.example"]), row(B, [b"hostname", b"two.example"])]],
        A, A, {A: (B,)},
    ),
    "Redis 7.0, host names, and addresses as well": (
        [[0, SLOTS - 1, row((b"one.example", 7000), [b"ip", b"10.0.0.1"])]],
        Node("one.example", 7000), Node("one.example", 7000), {Node("one.example", 7000): ()},
    ),
    "Redis 7.0, a node that has announced no host name": (
        [[0, SLOTS - 1, row((b"?", 7000), [b"ip", b"10.0.0.1"]), row((b"?", 7001), [])]],
        A, A, {A: ()},
    ),
    "Redis 7.0, a node without any address": (
        [[0, HALF - 1, row((b"?", 7000), [])], [HALF, SLOTS - 1, row(B, [])]],
        None, B, {B: ()},
    ),
    "Redis 7.0, unknown endpoints": (
        [[0, HALF - 1, row((None, 7000), [b"ip", b"10.0.0.1"])], [HALF, SLOTS - 1, row((None, 7001), [])]],
        Node("asked", 7000), Node("asked", 7001), {Node("asked", 7000): (), Node("asked", 7001): ()},
    ),
    "Valkey 9, availability zones": (
        [[0, SLOTS - 1, row(A, [b"availability-zone", b"eu-1a"]), row(B, [b"availability-zone", b"eu-1b"])]],
        A, A, {A: (B,)},
    ),
    "a node without a port for TLS": (
        [[0, HALF - 1, row((b"10.0.0.1", 0))], [HALF, SLOTS - 1, row(B)]],
        None, B, {B: ()},
    ),
    "IPv6": ([[0, SLOTS - 1, row(V6, [])]], V6, V6, {V6: ()}),
    "gaps": ([[1, SLOTS - 2, row(A)]], None, None, {A: ()}),
    "a primary with several ranges": (
        [[0, 99, row(A), row(C)], [100, 199, row(B)], [200, SLOTS - 1, row(A), row(C)]],
        A, A, {A: (C,), B: ()},
    ),
    "no slots": ([], None, None, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", SLOT_REPLIES)
def test_replies_to_cluster_slots_are_read(case: str) -> None:
    reply, first, last, replicas = SLOT_REPLIES[case]

    found = read_slots(reply, "asked")

    assert (found.node_of(0), found.node_of(SLOTS - 1)) == (first, last)
    assert found.replicas == replicas
    assert found.primaries == tuple(replicas)
    for begin, end, *_ in reply:
        assert found.node_of(begin) == found.node_of(end)


def test_slots_that_no_node_serves_are_gaps() -> None:
    found = read_slots([[1, 99, row(A)], [101, SLOTS - 1, row(B)]], "asked")

    assert found.gaps == 2
    assert [found.node_of(slot) for slot in (0, 1, 99, 100, 101)] == [None, A, A, None, B]
    assert SlotMap().gaps == SLOTS


def test_a_moved_slot_changes_and_no_other() -> None:
    found = read_slots([[0, HALF - 1, row(A)], [HALF, SLOTS - 1, row(B)]], "asked")

    found.moved(7, C)

    assert [found.node_of(slot) for slot in (6, 7, 8)] == [A, C, A]
    assert found.primaries == (A, C, B)
    assert found.gaps == 0


def test_parts_are_the_primaries_and_a_slot_without_one() -> None:
    found = read_slots([[1, 99, row(A)], [101, SLOTS - 1, row(B)]], "asked")

    assert found.parts == (Part(0, None), Part(1, A), Part(101, B))
    assert SlotMap().parts == (Part(0, None),)


def test_a_copy_keeps_the_nodes_of_its_moment() -> None:
    found = read_slots([[0, HALF - 1, row(A)], [HALF, SLOTS - 1, row(B)]], "asked")
    before = found.copy()
    assert found.is_like(before)

    found.moved(7, B)

    assert not found.is_like(before)
    assert (before.node_of(7), before.primaries) == (A, (A, B))


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (Away(A, "refused"), f"{A} does not answer (refused): its queues and topics are missing"),
        (Away(None, "x"), "a part of the cluster does not answer (x): its queues and topics are missing"),
    ],
)
def test_a_node_that_is_away_is_named(away: Away, text: str) -> None:
    assert str(away) == text


def test_a_primary_whose_last_slot_has_moved_is_none() -> None:
    found = SlotMap()
    found.moved(7, A)
    assert found.primaries == (A,)
    found.moved(7, B)
    assert found.primaries == (B,)


@pytest.mark.parametrize(
    "reply",
    [
        None, 5, [None], [[0]], [[0, 5]], [[0, SLOTS, row(A)]], [[-1, 5, row(A)]], [[5, 4, row(A)]],
        [[0, 5, []]], [[0, 5, [b"h"]]], [[0, 5, [b"h", b"port"]]], [[0, 5, ["text", 1]]], [[b"0", b"5", row(A)]],
        [[0, 5, [b"?", 1, b"id", [b"odd"]]]],
    ],
    ids=repr,
)  # fmt: skip
def test_another_reply_cannot_be_read(reply: Any) -> None:
    with pytest.raises(UnreadableReply, match="CLUSTER SLOTS"):
        read_slots(reply, "asked")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirection("moved", 3999, Node("127.0.0.1", 6381))),
        ("ASK 3999 127.0.0.1:6381", Redirection("ask", 3999, Node("127.0.0.1", 6381))),
        ("MOVED 0 one.example:6381", Redirection("moved", 0, Node("one.example", 6381))),
        ("MOVED 16383 :6381", Redirection("moved", 16383, Node("asked", 6381))),
        ("MOVED 1 ?:6381", Redirection("moved", 1, None)),
        ("MOVED 1 10.0.0.1:0", Redirection("moved", 1, None)),
        ("MOVED 1 fe80::1:6381", Redirection("moved", 1, Node("fe80::1", 6381))),
        ("ASK 1 [fe80::1]:6381", Redirection("ask", 1, Node("fe80::1", 6381))),
        ("MOVED 1 127.0.0.1:6381 and more", Redirection("moved", 1, Node("127.0.0.1", 6381))),
        ("MOVED", None),
        ("MOVED 1", None),
        ("MOVED 16384 127.0.0.1:6381", None),
        ("MOVED x 127.0.0.1:6381", None),
        ("MOVED 1 127.0.0.1:port", None),
        ("MOVED 1 127.0.0.1", None),
        ("moved 1 127.0.0.1:6381", None),
        ("ERR MOVED 1 127.0.0.1:6381", None),
        ("TRYAGAIN Multiple keys request during rehashing of slot", None),
        ("", None),
    ],
)
def test_redirections_are_read(error: str, expected: Redirection | None) -> None:
    assert read_redirection(error, "asked") == expected
