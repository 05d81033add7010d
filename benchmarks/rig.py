"""A private server without persistence, calibration, and repeated timing. All questions use it."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import redis

import duly
from benchmarks.peers.brokers import running

BODY = {"order": 42, "customer": "c-1009", "note": "x" * 58}
"""A body of 100 bytes, encoded."""

_FEWEST = 20
"""Messages of a question in a trial, at least."""


@dataclass
class Result:
    """One figure, its target, and all its samples."""

    question: str
    value: float
    unit: str
    bar: float | None
    """None: the figure has no target."""
    higher_is_better: bool
    samples: list[float] = field(default_factory=list)
    beside: dict[str, float] = field(default_factory=dict)
    party: str = ""
    """The party, if the question is about the whole field."""

    @property
    def holds(self) -> bool:
        """Whether the target is met."""
        if self.bar is None:
            return True
        return self.value >= self.bar if self.higher_is_better else self.value <= self.bar

    def as_json(self) -> dict[str, Any]:
        """Give everything, and the verdict."""
        whole = {**asdict(self), "holds": self.holds}
        if not self.party:
            del whole["party"]
        return whole


class Rig:
    """A private server on a loopback port, with a redis-py client and a Duly app."""

    peers: tuple[str, ...] = ()
    """The peers that are measured with Duly, for questions about workers."""
    rounds: int = 4
    """How often the sides are measured in turn, for questions about workers."""
    part: float = 1.0
    """Of all messages that questions about the field and about growth send: less for a trial."""

    def count(self, messages: int) -> int:
        """Scale a number of messages down for a trial."""
        return max(min(messages, _FEWEST), int(messages * self.part))

    def __init__(self, url: str, pid: int) -> None:
        self.raw = redis.Redis.from_url(url, protocol=2)
        self.app = duly.Duly(url)
        self.url = url
        self.pid = pid

    def server_cpu(self) -> float:
        """Seconds of processor time that the server has used."""
        info = self.raw.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def settled_memory(self) -> int:
        """Bytes that the server uses, after it has freed all deleted data."""
        before = -1
        while before != (now := int(self.raw.info("memory")["used_memory"])):
            before = now
            time.sleep(0.3)
        return now

    def version(self) -> str:
        """Name the server."""
        info = self.raw.info("server")
        return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"

    def calibration(self) -> dict[str, float]:
        """Raw rates of redis-py on this machine at this moment: divide by them to compare runs."""
        started = time.perf_counter()
        for number in range(3000):
            self.raw.set("calibration", number)
        singles = 3000 / (time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(200):
            pipeline = self.raw.pipeline(transaction=False)
            for number in range(100):
                pipeline.lpush("calibration-list", number)
            pipeline.execute()
        pipelined = 20_000 / (time.perf_counter() - started)
        self.raw.delete("calibration", "calibration-list")
        return {"single SET/s": round(singles), "pipelined LPUSH/s": round(pipelined)}


@contextmanager
def running_rig() -> Iterator[Rig]:
    """Start a server, and stop it."""
    with running("valkey") as broker:
        rig = Rig(broker.url, broker.processes[0].pid)
        yield rig
        rig.app.close()
        rig.raw.close()


def alternately(times: int, *sides: Callable[[], float]) -> list[list[float]]:
    """Measure all sides in turn, the given number of times, so that other load of the machine affects them all."""
    samples: list[list[float]] = [[] for _ in sides]
    for _ in range(times):
        for side, found in zip(sides, samples, strict=True):
            found.append(side())
    return samples


def seconds(work: Callable[[], object]) -> float:
    """Time one piece of work."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def percentile(values: Iterable[float], part: float) -> float:
    """Return the value below which the given part of the samples is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


median = statistics.median
