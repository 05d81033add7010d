"""I10: every key is declared and in the queue's slot. A cluster refuses another slot, a user with rights to
the declared keys only is refused anything else.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from duly import _lua
from duly._core.keys import EVERY_PRIORITY, QueueKeys
from tests.binaries import KINDS
from tests.conftest import need
from tests.lua.harness import STREAM, Queue, Refused, Wire
from tests.lua.test_headers import CALLS
from tests.lua.test_repeats import WRITING, Prepare
from tests.servers import Server

ALL_SLOTS = 16384

every_prepared_call = pytest.mark.parametrize(
    "prepare", [prepare for prepares in WRITING.values() for prepare in prepares], ids=lambda f: f.__name__[1:]
)
every_other_call = pytest.mark.parametrize(
    "call", [call for call in CALLS if call.script.keys[0] != "call"], ids=lambda call: call.script.name
)


@pytest.fixture(scope="module", params=KINDS)
def cluster_wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    need(request.param)
    with Server(request.param, {"cluster-enabled": "yes"}) as server, Wire(server) as wire:
        for first in range(0, ALL_SLOTS, 4096):  # 6.2 knows no ranges
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
def test_any_other_script_runs_on_a_cluster(cluster_wire: Wire, call: object) -> None:
    cluster_wire.carry(call, STREAM, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["orders", "a.b-c_d", "x" * 128])
def test_all_keys_of_a_queue_are_in_one_slot(cluster_wire: Wire, name: str) -> None:
    keys = QueueKeys("duly", name)
    named = {key for script in _lua.names() for key in keys.of_script(_lua.script(script), EVERY_PRIORITY)}
    slots = {cluster_wire.run("CLUSTER", "KEYSLOT", key) for key in [*named, keys.call(b"stream")]}
    assert slots == {cluster_wire.run("CLUSTER", "KEYSLOT", name)}


@pytest.fixture(scope="module", params=KINDS)
def guarded(request: pytest.FixtureRequest) -> Iterator[Callable[[list[bytes]], Wire]]:
    """Give a connection of a user who may touch the given keys, all commands, and nothing else."""
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
    guarded: Callable[[list[bytes]], Wire], call: object
) -> None:
    declared = call.keys.of_script(call.script, call.digits)  # type: ignore[attr-defined]
    guarded(list(declared)).carry(call, STREAM, 1)  # type: ignore[arg-type]


def test_the_guard_would_see_an_undeclared_key(guarded: Callable[[list[bytes]], Wire]) -> None:
    wire = guarded([b"declared"])
    wire.run("EVAL", "return redis.call('GET', KEYS[1])", 1, "declared")
    with pytest.raises(Refused, match=r"(?i)permission|can't access|ACL"):
        wire.run("EVAL", "return redis.call('GET', 'undeclared')", 0)
