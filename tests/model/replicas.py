"""The machine on a primary with a replica, which is cut off, misses some calls and becomes the primary.

The machine of `machine.py` does the same with copies, for more histories. This one checks that a replica has the
same state as its primary had: all effects of a script, and the times at which keys expire.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from duly._core import ops
from duly.options import Keep
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.lua.harness import SECOND, Wire
from tests.model.checked_queue import STREAMS, Moment
from tests.model.machine import Draft, QueueMachine, drafts, streams
from tests.model.world import World
from tests.servers import Server
from tests.waiting import wait_until

_CONFIG = {
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-timeout": "1000000000",  # the clocks of the tests jump by an hour
}
_PLAIN = Draft(10, None, 0, None, None, None, replace=False)


@dataclass(kw_only=True)
class ReplicatedWorld(World):
    """Two servers that show the same time. One is the primary, to which the wire leads."""

    replica: Server

    def attach(self) -> None:
        """Have the replica follow the primary."""
        with Wire(self.replica) as wire:
            wire.run("REPLICAOF", self.server.host, self.server.port)

    def cut_off(self) -> None:
        """Let the replica catch up, and then miss everything."""
        with Wire(self.replica) as wire:
            wait_until(lambda: b"master_link_status:up" in wire.run("INFO", "replication"))
            assert self.wire.run("WAIT", 1, 60_000) == 1
            wire.run("REPLICAOF", "NO", "ONE")

    def promote(self) -> None:
        """Make the replica the primary, and the primary its replica."""
        self.wire.close()
        self.server, self.replica = self.replica, self.server
        self.wire = Wire(self.server)
        self.attach()


@contextmanager
def started_pair(kind: Kind) -> Iterator[ReplicatedWorld]:
    """Start a primary and its replica."""
    with (
        ServerClock() as clock,
        Server(kind, _CONFIG, clock.environment()) as primary,
        Server(kind, _CONFIG, clock.environment()) as replica,
    ):
        world = ReplicatedWorld(server=primary, clock=clock, wire=Wire(primary), replica=replica)
        world.attach()
        yield world
        world.wire.close()


class ReplicatedMachine(QueueMachine):
    """The rules of a history on two servers. Subclasses give the world."""

    world: ClassVar[ReplicatedWorld]

    @initialize(batch=st.lists(drafts, min_size=1, max_size=4))
    def begin(self, batch: list[Draft]) -> None:
        super().begin(batch, may_fail_over=False)  # by copies

    @rule(
        lost=st.lists(st.tuples(st.sampled_from(("send", "claim", "ack", "retry", "reject")), streams), max_size=6),
        us=st.sampled_from((0, 1, 3 * SECOND, 31 * SECOND)),
        repeating=st.sampled_from(((), STREAMS[:1], STREAMS)),
    )
    def fail_over(self, lost: list[tuple[str, bytes]], us: int, repeating: Sequence[bytes]) -> None:
        """Make some calls that the replica does not get, and go on with it."""
        self.world.cut_off()
        moment = self._moment(())
        for verb, stream in lost:
            self._work(verb, stream)
        self._set_back(moment)
        self._go_on(us, repeating)

    def _work(self, verb: str, stream: bytes) -> None:
        held = [ops.Settle(*receipt) for receipt in self.receipts if self._is_live(receipt)]
        if verb == "send":
            self._send(stream, [_PLAIN], {}, "each")
        elif verb == "claim":
            self.claim(stream, 3, 30, "leave", "with", Keep())
        elif held:
            self._settle(stream, verb, held[:1], 0, Keep(), is_kept=False)

    def _restore(self, moment: Moment) -> None:
        self.world.promote()
        self.queue.wire = self.world.wire
        self.world.wire.run("CONFIG", "SET", "maxmemory", "1" if self.is_full else "0")


def machine_on(world: ReplicatedWorld) -> type[ReplicatedMachine]:
    """Make a machine for a primary and its replica."""
    return type("Machine", (ReplicatedMachine,), {"world": world})
