"""The slot map of a cluster: which node is asked, when, and which of several views counts."""

import random
import time
from typing import Any

import pytest

from duly._core.address import parse
from duly._core.resp import ErrorReply
from duly._core.topology import ClusterView, Node, read_view
from duly._sync.slots import Slots

A, B, C, D = (Node("10.0.0.1", port) for port in (1, 2, 3, 4))
ADDRESS = parse("redis+cluster://10.0.0.1:1,10.0.0.1:2")


class Cluster:
    """The views of all nodes, and which node was asked for its view."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.views: dict[Node, ClusterView | Exception] = {}
        self.asked: list[Node] = []
        self.now = 100.0
        monkeypatch.setattr(Slots, "_ask", lambda _, node: self._view_of(node))
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(random, "shuffle", lambda nodes: nodes.sort())

    def _view_of(self, node: Node) -> ClusterView:
        self.asked.append(node)
        found = self.views.get(node, ConnectionError("no route"))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def view(low: Node, high: Node, epoch: int = 1, state: str = "ok", *replicas: Node) -> ClusterView:
    """A view in which one node serves the slots below 8192, and another one the rest."""
    info = f"cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n".encode()
    rows = [[host.encode(), port] for host, port in replicas]
    return read_view(
        info, [[0, 8191, [low.host.encode(), low.port], *rows], [8192, 16383, [high.host.encode(), high.port]]], "h"
    )


def test_the_map_is_read_once_and_then_known(cluster: Cluster) -> None:
    cluster.views = {A: view(A, B)}
    slots = Slots(ADDRESS)

    assert [slots.node_of(slot) for slot in (0, 8192, 1)] == [A, B, A]
    assert cluster.asked == [A]


def test_a_seed_that_does_not_answer_is_followed_by_the_next(cluster: Cluster) -> None:
    cluster.views = {B: view(A, B)}
    slots = Slots(ADDRESS)

    assert slots.node_of(0) == A
    assert cluster.asked == [A, B]


def test_moved_corrects_its_slot_at_once_and_the_map_a_second_later(cluster: Cluster) -> None:
    cluster.views = {A: view(A, B)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    cluster.views = {A: view(C, B)}

    slots.moved(5, C)
    assert (slots.node_of(5), slots.node_of(6)) == (C, A)
    assert cluster.asked == [A]

    cluster.now += 2
    assert slots.node_of(6) == C
    assert cluster.asked == [A, A]


def test_a_node_that_failed_is_doubted_by_calls_to_it_only_and_asked_last(cluster: Cluster) -> None:
    cluster.views = {A: view(A, B, 1, "ok", C), B: view(C, B, 2)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    slots.doubt(A)
    cluster.now += 2

    assert slots.node_of(8192) == B
    assert cluster.asked == [A]

    assert slots.node_of(0) == C
    assert cluster.asked == [A, B]


def test_a_failed_node_is_not_doubted_again_until_it_fails_again(cluster: Cluster) -> None:
    cluster.views = {A: view(A, B), B: view(A, B)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    slots.doubt(A)
    cluster.now += 2
    slots.node_of(0)
    cluster.now += 2
    slots.node_of(0)

    assert cluster.asked == [A, B]


def test_the_map_is_read_at_most_once_a_second(cluster: Cluster) -> None:
    cluster.views = {A: view(A, B), B: view(A, B)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    for _ in range(10):
        slots.doubt(A)
        slots.node_of(0)
        cluster.now += 0.05

    assert cluster.asked == [A]


def test_the_view_of_a_node_that_was_cut_off_does_not_count(cluster: Cluster) -> None:
    cluster.views = {A: view(C, B, 2), B: view(C, B, 2), C: view(C, B, 2)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    cluster.views = {A: view(A, B, 1, "fail"), B: ConnectionError("cut off"), C: ConnectionError("cut off")}
    slots.doubt(C)
    cluster.now += 2

    assert slots.node_of(0) == C


def test_a_later_view_is_preferred_to_an_older_one_that_serves(cluster: Cluster) -> None:
    cluster.views = {A: view(A, B, 5)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    cluster.views = {A: view(A, B, 4), B: view(D, B, 6)}
    slots.doubt(A)
    cluster.now += 20

    assert slots.node_of(0) == D


def test_a_cluster_that_was_built_again_is_believed(cluster: Cluster) -> None:
    """Epochs begin again. All nodes serve, and show smaller ones."""
    cluster.views = {A: view(A, B, 9)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    cluster.views = {A: view(B, A, 1), B: view(B, A, 2)}
    slots.doubt(A)
    cluster.now += 2

    assert slots.node_of(0) == B


def test_nodes_that_were_learned_are_seeds(cluster: Cluster) -> None:
    cluster.views = {A: view(C, D)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    cluster.views = {D: view(D, D, 2)}
    slots.doubt(C)
    cluster.now += 2

    assert slots.node_of(0) == D


def test_without_any_answer_the_known_map_is_used_and_logged_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "duly")
    cluster.views = {A: view(A, B)}
    slots = Slots(ADDRESS)
    slots.node_of(0)
    cluster.views = {}
    for _ in range(3):
        slots.doubt(A)
        cluster.now += 2
        assert slots.node_of(0) == A
    cluster.views = {A: view(A, B)}
    slots.doubt(A)
    cluster.now += 2
    slots.node_of(0)

    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "no node of redis+cluster://10.0.0.1:1,10.0.0.1:2 shows its slots; continuing with those known"
    )
    assert second == "the nodes of redis+cluster://10.0.0.1:1,10.0.0.1:2 show its slots again"


def test_a_refusal_explains_more_than_an_outage(cluster: Cluster) -> None:
    cluster.views = {B: ErrorReply("WRONGPASS invalid")}
    slots = Slots(ADDRESS)

    assert slots.node_of(0) is None
    assert str(slots.silence) == "WRONGPASS invalid"


@pytest.mark.parametrize("info", [b"", b"cluster_state:ok", b"cluster_current_epoch:x\r\ncluster_state:ok", None, 3])
def test_a_view_that_cannot_be_read_is_an_error(info: Any) -> None:
    with pytest.raises(ValueError, match="CLUSTER INFO"):
        read_view(info, [], "h")


def test_successors_are_the_nodes_that_serve_the_slots_now() -> None:
    before, now = view(A, B).slots, view(C, B).slots

    assert now.successors(before, A) == {C}
    assert now.successors(before, B) == {B}
    assert now.successors(before, D) == set()
    assert before.nodes == {A, B}
