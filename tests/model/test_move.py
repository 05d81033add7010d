"""Random histories of two queues between which dead letters are moved: real scripts and the memory engine agree."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from duly._core import ops
from duly._core.call import Call
from duly._core.outgoing import Encoder
from duly.memory.clock import Clock
from duly.memory.engine import Engine
from duly.options import Keep, QueueOptions, Send
from tests.binaries import Kind
from tests.lua.harness import NOW, SECOND, Queue, ids_of
from tests.lua.test_lanes import faults_of
from tests.lua.test_redrive import difference
from tests.model import following
from tests.model.alike import differences, stored
from tests.model.world import World, started_world

HISTORIES = 30
STEPS = 150
STREAM = b"tests"


@pytest.fixture
def world(kind: Kind) -> Iterator[World]:
    with started_world(kind) as world:
        yield world


class History:
    """Two queues, on a server and in memory, to which the same is done."""

    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.engine = Engine(Clock())
        self.engine.clock.freeze()
        self.queues = [Queue(world.wire, f"move.{next(world.numbers)}.{name}") for name in "ab"]
        self.held: list[tuple[Queue, ops.Settle]] = []
        self.calls: list[tuple[Queue, Call[Any], int]] = []
        self.moved = 0
        self.sequence = 0
        self.now = NOW
        self._tell_time()

    def _tell_time(self) -> None:
        self.world.clock.freeze(self.now)
        self.engine.clock.set_us(self.now)

    def do(self, queue: Queue, call: Call[Any], sequence: int | None = None) -> Any:
        """Do the same on both sides, and compare the answers and all that is stored."""
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
            self.calls.append((queue, call, sequence))
        before = queue.dump()
        answer = queue.call(call, sequence=sequence)
        done = following.Done(answer, before, queue.dump())
        expected = following.call(self.engine, call, STREAM, sequence, done)
        assert call.decode(answer) == call.decode(expected), call.script.name
        for each in self.queues:
            state = each.dump()
            assert differences(state, stored(self.engine, each.keys)) == [], call.script.name
            stats = {name: count for name, count in state.stats.items() if count}
            known = self.engine._queue(each.keys).state.stats
            assert stats == {name: count for name, count in known.items() if count}, call.script.name
        return answer

    def step(self) -> None:
        steps = [
            self.send,
            self.send,
            self.claim,
            self.claim,
            self.reject,
            self.reject,
            self.reject,
            self.ack,
            self.move,
        ]
        self.random.choice([*steps, self.redrive, self.wait, self.repeat])()

    def send(self) -> None:
        queue, choice = self.random.choice(self.queues), self.random.choice
        id_ = choice("opqrstuvwxyz")  # they often meet in both queues
        send = Send(
            "x" * choice((1, 50, 5000)), id=id_, key=choice((None, "k", "l")), priority=choice((0, 0, 5)),
            ttl=choice((None, None, 5)), delay=choice((None, None, 3)), dedup=choice((None, None, None, None, "d")),
        )  # fmt: skip
        message = Encoder(queue.keys.name, QueueOptions()).outgoing(send, id_, 0)
        self.do(queue, ops.send(queue.keys, [message], queue.options, "each"))

    def claim(self) -> None:
        queue = self.random.choice(self.queues)
        call = queue.claim_call(limit=2, lease=self.random.choice((5, 60, 60)))
        claimed = call.decode(self.do(queue, call))
        self.held += [(queue, ops.Settle(id_, claimed.fence)) for id_ in ids_of(claimed)]

    def reject(self) -> None:
        if self.held:
            queue, settle = self.held.pop(self.random.randrange(len(self.held)))
            options = QueueOptions(on_dead=self.random.choice(("continue", "block")))
            self.do(queue, ops.reject(queue.keys, options, [(settle, "bad", "boom", "")]))

    def ack(self) -> None:
        if self.held:
            queue, settle = self.held.pop()
            options = QueueOptions(done=self.random.choice((None, Keep(count=3))))
            self.do(queue, ops.finish(queue.keys, options, [(settle, "")]))

    def move(self) -> None:
        here, there = self.random.sample(self.queues, 2)
        dead = here.dump().dead
        letters = [(id_, died + self.random.choice((0, 0, 0, 1)), self._part(here, id_)) for id_, died in dead.items()]
        if letters:
            bounds: dict[str, Any] = self.random.choice(({}, {}, {"max_length": 3}, {"max_bytes": 400}))
            call = ops.move(here.keys, there.keys, QueueOptions(**bounds), letters)
            self.moved += call.decode(self.do(here, call)).moved

    def _part(self, queue: Queue, id_: str) -> bytes:
        if self.random.random() < 0.7:
            return b""
        record = queue.dump().msgs[id_]
        return bytes(Encoder(queue.keys.name, QueueOptions()).with_body(record, "another body"))

    def redrive(self) -> None:
        queue = self.random.choice(self.queues)
        self.do(queue, ops.redrive(queue.keys, 2, at_end=self.random.random() < 0.5))

    def wait(self) -> None:
        self.now += self.random.choice((1, SECOND, 4 * SECOND))
        self._tell_time()

    def repeat(self) -> None:
        """I6."""
        if self.calls and self.calls[-1][1].script.name in ("move", "redrive"):
            queue, call, sequence = self.calls[-1]
            self.do(queue, call, sequence)


def test_the_real_scripts_and_the_memory_engine_agree_about_two_queues(world: World) -> None:
    """I1 I2 I6 I7."""
    moved = 0
    for seed in range(HISTORIES):
        history = History(world, seed)
        for _ in range(STEPS):
            history.step()
        for queue in history.queues:
            assert (difference(queue), faults_of(queue)) == (0, []), seed
        moved += history.moved
    assert moved > 2 * HISTORIES  # it was about something
