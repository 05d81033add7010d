"""The commands of several nodes: those that all of them have, and the version of the oldest node."""

import pytest

from duly.acl.servers import Knowledge, _common


def test_commands_that_one_node_lacks_are_left_out() -> None:
    new = Knowledge("Valkey", (9, 1), frozenset({"eval", "waitaof"}))
    old = Knowledge("Valkey", (7, 2), frozenset({"eval"}))

    assert _common([new, ConnectionError("away"), old]) == Knowledge("Valkey", (7, 2), frozenset({"eval"}))


def test_the_oldest_version_decides_if_a_node_does_not_list_its_commands() -> None:
    assert _common([Knowledge("Redis", (7, 2), frozenset({"eval"})), Knowledge("Redis", (7, 0))]) == Knowledge(
        "Redis", (7, 0)
    )


def test_without_an_answer_the_error_of_a_node_is_raised() -> None:
    with pytest.raises(ConnectionError, match="away"):
        _common([ConnectionError("away")])
