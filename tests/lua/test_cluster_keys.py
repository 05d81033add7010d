"""I10: every key is declared and in the queue's slot. A cluster refuses another slot, a user with rights to
the declared keys only is refused anything else.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duly import _lua
from duly._core import ops, topic_ops
from duly._core.call import Call
from duly._core.keys import (
    EVERY_PRIORITY,
    GroupKeys,
    LockKeys,
    OnceKeys,
    ProbeKeys,
    QueueKeys,
    RegistryKeys,
    ScheduleKeys,
    TopicKeys,
)
from duly.options import Keep
from tests.conftest import need
from tests.lua.harness import A_WEEK, STREAM, Group, Queue, Refused, Topic, Wire
from tests.lua.test_headers import CALLS
from tests.lua.test_pending_list import VERBS
from tests.lua.test_repeats import ELSEWHERE, WRITING, Prepare
from tests.matrix import SCRIPT_SERVERS
from tests.servers import Server

ALL_SLOTS = 16384

every_prepared_call = pytest.mark.parametrize(
    "prepare", [prepare for prepares in WRITING.values() for prepare in prepares], ids=lambda f: f.__name__[1:]
)
every_other_call = pytest.mark.parametrize(
    "call",
    [call for call in CALLS if call.script.keys[0] != "call" or call.script.name in ELSEWHERE],
    ids=lambda call: call.script.name,
)


@pytest.fixture(scope="module", params=SCRIPT_SERVERS)
def cluster_wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    need(request.param)
    with Server(request.param, {"cluster-enabled": "yes"}) as server, Wire(server) as wire:
        for first in range(0, ALL_SLOTS, 4096):  # 6.2 does not support ranges
            wire.run("CLUSTER", "ADDSLOTS", *range(first, first + 4096))
        deadline = time.monotonic() + 20
        while b"cluster_state:ok" not in wire.run("CLUSTER", "INFO"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield wire


@every_prepared_call
def test_a_writing_script_runs_on_a_cluster(cluster_wire: Wire, queue_name: str, prepare: Prepare) -> None:
    queue = Queue(cluster_wire, queue_name)
    call = prepare(queue)
    queue.call(call)


@every_other_call
def test_any_other_script_runs_on_a_cluster(cluster_wire: Wire, call: Call[Any]) -> None:
    cluster_wire.carry(call, STREAM, 1)


@pytest.mark.parametrize("name", ["orders", "a.b-c_d", "x" * 128])
def test_all_keys_of_a_queue_are_in_one_slot(cluster_wire: Wire, name: str) -> None:
    keys = QueueKeys("duly", name)
    named = {key for script in _lua.names() for key in keys.of_script(_lua.script(script), EVERY_PRIORITY)}
    slots = {cluster_wire.run("CLUSTER", "KEYSLOT", key) for key in [*named, keys.call(b"stream")]}
    assert slots == {cluster_wire.run("CLUSTER", "KEYSLOT", name)}


@pytest.mark.parametrize("name", ["events", "a.b-c_d", "x" * 128])
def test_all_keys_of_a_topic_and_its_groups_are_in_one_slot(cluster_wire: Wire, name: str) -> None:
    topic = TopicKeys("duly", name)
    named = {topic.stream, topic.call(b"stream")}
    for keys in (topic, GroupKeys(topic, "a", frees=False), GroupKeys(topic, "b", frees=True)):
        named |= {key for script in _lua.names() for key in keys.of_script(_lua.script(script), EVERY_PRIORITY)}
        named |= {*keys.tail, *keys.watched, keys.call(b"stream")}
    assert {cluster_wire.run("CLUSTER", "KEYSLOT", key) for key in named} == {
        cluster_wire.run("CLUSTER", "KEYSLOT", f"@{name}")
    }


EVENTS = TopicKeys("duly", "events")


@pytest.mark.parametrize(
    "keys",
    [
        QueueKeys("duly", "orders"), EVENTS, GroupKeys(EVENTS, "a", frees=True), LockKeys("duly", "a{b}c"),
        OnceKeys("duly", "{x"), RegistryKeys("duly"), ScheduleKeys("duly"), ProbeKeys("duly"),
        QueueKeys("{shop}", "orders"), TopicKeys("{shop}", "events"), LockKeys("{shop}", "}{"),
    ],
    ids=lambda keys: keys.prefix.decode(),
)  # fmt: skip
def test_the_slot_of_keys_is_that_of_the_server(cluster_wire: Wire, keys: QueueKeys) -> None:
    for key in (keys.key("meta"), keys.call(b"stream"), *keys.tail):
        assert keys.slot == cluster_wire.run("CLUSTER", "KEYSLOT", key)


@pytest.fixture(scope="module", params=SCRIPT_SERVERS)
def guarded(request: pytest.FixtureRequest) -> Iterator[Callable[[list[bytes]], Wire]]:
    """Return a connection of a user with access to the given keys and all commands."""
    need(request.param)
    opened: list[Wire] = []
    with Server(request.param) as server, Wire(server) as master:

        def connect(keys: list[bytes]) -> Wire:
            master.run("ACL", "SETUSER", "u", "reset", "on", "nopass", "+@all", *(b"~" + key for key in keys))
            wire = Wire(server)
            opened.append(wire)
            wire.run("AUTH", "u", "any")
            return wire

        connect.master = master  # type: ignore[attr-defined]
        yield connect
        for wire in opened:
            wire.close()


@every_prepared_call
def test_a_writing_script_touches_no_key_that_it_does_not_declare(
    guarded: Callable[[list[bytes]], Wire], queue_name: str, prepare: Prepare
) -> None:
    queue = Queue(guarded.master, queue_name)  # type: ignore[attr-defined]
    call = prepare(queue)
    declared = [*queue.keys.of_script(call.script, call.digits), *call.extra_keys, queue.keys.call(STREAM)]
    wire = guarded(declared)
    before = queue.dump()
    wire.carry(call, STREAM, queue.sequence + 1)
    assert queue.dump() != before


@every_other_call
def test_any_other_script_touches_no_key_that_it_does_not_declare(
    guarded: Callable[[list[bytes]], Wire], call: Call[Any]
) -> None:
    guarded(_declared(call)).carry(call, STREAM, 1)


def _declared(call: Call[Any]) -> list[bytes]:
    keys = call.keys
    return [*keys.of_script(call.script, call.digits), *call.extra_keys, *keys.tail, keys.call(STREAM)]


every_call_of_groups = pytest.mark.parametrize("verb", [*VERBS, "claim", "redrive", "seek", "delete"])
every_form_of_groups = pytest.mark.parametrize("keep", [A_WEEK, None], ids=["kept", "freed"])


def _prepared(topic: Topic, verb: str) -> tuple[Group, Call[Any]]:
    """Bring a group into a state with messages in every place, and make a call that uses all of it."""
    group = topic.group("g", wanted=["a", "b"], crash_limit=1)
    headers = {"a": "b"}
    topic.publish(b"1", b"2", key="k", headers=headers)
    topic.publish(b"3", b"4", headers=headers)
    topic.publish(b"5")
    held = group.take(3, lease=0.001)
    group.call(ops.reject(group.keys, group.options, [(held[1], "bad", "", "")]))
    topic.publish_later("late", delay=0.000001, headers=headers)
    topic.publish(b"6", headers=headers)
    topic.run("XGROUP CREATE", "plain", "0")
    others: dict[str, Call[Any]] = {
        "claim": group.claim_call(lease=0.001),
        "redrive": ops.redrive(group.keys, 1),
        "seek": topic_ops.seek(group.keys, "0", makes=False),
        "delete": ops.delete(group.keys),
    }
    return group, others[verb] if verb in others else VERBS[verb](group, held[0])


@every_call_of_groups
@every_form_of_groups
def test_a_script_of_a_group_runs_on_a_cluster(
    cluster_wire: Wire, queue_name: str, verb: str, keep: Keep | None
) -> None:
    group, call = _prepared(Topic(cluster_wire, queue_name, keep), verb)
    group.call(call)


@every_call_of_groups
@every_form_of_groups
def test_a_script_of_a_group_touches_no_key_that_it_does_not_declare(
    guarded: Callable[[list[bytes]], Wire], queue_name: str, verb: str, keep: Keep | None
) -> None:
    topic = Topic(guarded.master, queue_name, keep)  # type: ignore[attr-defined]
    group, call = _prepared(topic, verb)
    before = group.dump(), topic.stats()
    guarded(_declared(call)).carry(call, STREAM, group.sequence + 1)
    assert (group.dump(), topic.stats()) != before


@every_form_of_groups
def test_scripts_of_a_topic_touch_no_key_that_they_do_not_declare(
    guarded: Callable[[list[bytes]], Wire], queue_name: str, keep: Keep | None
) -> None:
    topic = Topic(guarded.master, queue_name, keep)  # type: ignore[attr-defined]
    _prepared(topic, "claim")
    calls: list[Call[Any]] = [
        topic.publish_call(b"7", dedup="x"),
        topic_ops.read(topic.keys, "-", 10),
        topic_ops.stats(topic.keys),
        topic_ops.tidy(topic.keys, Keep(count=1)),
        topic_ops.tidy(topic.keys, None),
        topic_ops.delete(topic.keys),
    ]
    for call in calls:
        topic.sequence += 1
        guarded(_declared(call)).carry(call, STREAM, topic.sequence)


def test_the_guard_would_see_an_undeclared_key(guarded: Callable[[list[bytes]], Wire]) -> None:
    wire = guarded([b"declared"])
    wire.run("EVAL", "return redis.call('GET', KEYS[1])", 1, "declared")
    with pytest.raises(Refused, match=r"(?i)permission|can't access|ACL"):
        wire.run("EVAL", "return redis.call('GET', 'undeclared')", 0)
