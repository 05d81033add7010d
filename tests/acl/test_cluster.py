"""Users of a cluster: the printed line, run on every node, allows the calls of its role through any node."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly
from duly.acl import ROLES, rules
from tests import warm
from tests.acl.users import SECRET, url_as
from tests.conftest import need
from tests.scale.cluster import ClusterRig
from tests.scale.nodes import RigNode

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def rig() -> Iterator[ClusterRig]:
    need("valkey")
    with ClusterRig("valkey", replicas=1) as found:
        yield found


def run_acl(*arguments: str, directory: Path) -> str:
    done = warm.run([sys.executable, "-m", "duly", "acl", *arguments], cwd=directory, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def login(node: RigNode, user: str, *command: str) -> bytes:
    """Run a command on a node as a user, without a connection of Duly."""
    said = node.run("ACL", "DRYRUN", user, *command)
    assert isinstance(said, bytes)
    return said


@pytest.mark.parametrize("role", ROLES)
def test_the_printed_line_allows_routing_on_every_node(rig: ClusterRig, role: str, tmp_path: Path) -> None:
    printed = json.loads(run_acl("--role", role, "--url", rig.url, "--json", directory=tmp_path))
    for node in rig.nodes:
        node.run(*printed["command"].replace(">PASSWORD", f">{SECRET}").split(" "))

    for node in rig.nodes:
        for command in (("CLUSTER", "SLOTS"), ("CLUSTER", "INFO"), ("ASKING",), ("ROLE",)):
            assert login(node, printed["user"], *command) == b"OK", (node, command)
        assert login(node, printed["user"], "CLUSTER", "RESET") != b"OK"
        assert login(node, printed["user"], "READONLY") != b"OK"
    with duly.Duly(url_as(rig.url, printed["user"])) as app:
        for number in range(20):  # on every primary
            if role == "observer":
                assert app.queue(f"q{number}").stats().sent == 0
            else:
                app.queue(f"sent-by-{role}-{number}").send("x")


def test_the_note_names_every_node(rig: ClusterRig, tmp_path: Path) -> None:
    said = run_acl("--role", "producer", "--url", rig.url, directory=tmp_path)

    assert "users are not replicated: run it on every node, primaries and replicas" in said


@pytest.mark.parametrize(
    ("url", "is_routed", "is_on_every_node"),
    [
        ("redis+cluster://a:1,b:2", True, True),
        ("redis+sentinel://a:1,b:2/mymaster", False, True),
        ("redis://a:1", False, False),
    ],
    ids=["cluster", "sentinel", "single"],
)
def test_the_address_decides_without_a_connection(
    url: str, is_routed: bool, is_on_every_node: bool, tmp_path: Path
) -> None:
    said = run_acl("--role", "producer", "--url", url, "--server", "7.0", directory=tmp_path)

    assert ("+cluster|slots" in said, "+asking" in said) == (is_routed, is_routed)
    assert ("run it on every node" in said) == is_on_every_node
    assert "+role" in said


def test_rules_for_a_cluster_differ_by_the_commands_of_routing() -> None:
    added = set(rules("producer", "7.0", cluster=True)) - set(rules("producer", "7.0"))

    assert added == {"+asking", "+cluster|info", "+cluster|slots"}
