"""The single figures of the pages, each by its name."""

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.report.numbers import rate
from benchmarks.report.results import Results

Write = Callable[[Results], str]

DRAIN: Final = "drain, one worker process"
IDLE: Final = "latency, idle, "
LATE: Final = "delayed over 5 s, late, "
BURST: Final = "5,000 due at once, the last one"
KILL: Final = "kill -9: the last one done after"
KEYED: Final = "server CPU with a key / without, 1,000 keys "
LIFE: Final = "server CPU for a message's life, batches of 100"
HISTORY: Final = "server CPU of a message's life with history / without, batches of "


def _rate(suite: str, question: str, party: str = "") -> Write:
    return lambda results: rate(results.figure(suite, question, party).value)


def _value(suite: str, question: str, form: str, party: str = "") -> Write:
    return lambda results: format(results.figure(suite, question, party).value, form)


def _kilobytes(suite: str, question: str) -> Write:
    return lambda results: f"{results.figure(suite, question).value / 1000:.0f}"


def _beside(suite: str, question: str, name: str, form: str) -> Write:
    return lambda results: format(results.figure(suite, question).beside[name], form)


def _beside_rate(suite: str, question: str, name: str) -> Write:
    return lambda results: rate(results.figure(suite, question).beside[name])


def _end(question: str, party: str, choose: Callable[[list[float]], float], form: str = "") -> Write:
    """Give the smallest or the largest sample of the field."""

    def write(results: Results) -> str:
        value = choose(results.figure("field", question, party).samples)
        return format(value, form) if form else rate(value)

    return write


def _times(peer: str) -> Write:
    """How many times as many messages Duly handled as a peer."""
    return lambda results: f"{_drained(results, 'duly') / _drained(results, peer):.0f}"


def _drained(results: Results, party: str) -> float:
    return results.figure("field", DRAIN, party).value


def _drain(party: str, name: str) -> dict[str, Write]:
    return {
        name: _rate("field", DRAIN, party),
        f"{name}.worker_cpu": _value("field", "worker CPU of a message", ".0f", party),
        f"{name}.server_cpu": _value("field", "server CPU of a drained message", ".0f", party),
    }


def _idle(party: str, name: str) -> dict[str, Write]:
    return {
        f"{name}.p50": _value("field", f"{IDLE}p50", ".2f", party),
        f"{name}.p99": _value("field", f"{IDLE}p99", ".1f", party),
        f"{name}.p50.least": _end(f"{IDLE}p50", party, min, ".2f"),
        f"{name}.p50.most": _end(f"{IDLE}p50", party, max, ".2f"),
    }


def _late(party: str, name: str) -> dict[str, Write]:
    return {
        f"{name}.p50": _value("field", f"{LATE}p50", ".2f", party),
        f"{name}.p99": _value("field", f"{LATE}p99", ".1f", party),
    }


FIGURES: Final[Mapping[str, Write]] = {
    **_drain("duly", "drain"),
    "drain.least": _end(DRAIN, "duly", min),
    "drain.most": _end(DRAIN, "duly", max),
    "drain.overlap": _value("field", "drain: wall time of a message, of the larger CPU time", ".2f", "duly"),
    "drain.sync": _rate("worker", "drain, one worker, duly sync"),
    **_drain("repid", "drain.repid"),
    **_drain("taskiq", "drain.taskiq"),
    **_drain("arq", "drain.arq"),
    "drain.repid.times": _times("repid"),
    "drain.taskiq.times": _times("taskiq"),
    "drain.arq.times": _times("arq"),
    **_idle("duly", "idle"),
    **_idle("repid", "idle.repid"),
    **_idle("taskiq", "idle.taskiq"),
    "idle.ping": _beside("worker", "idle latency, send to handler, p50, duly async", "an idle PING, p50 ms", ".2f"),
    **_late("duly", "late"),
    **_late("celery", "late.celery"),
    **_late("arq", "late.arq"),
    "burst": _value("field", BURST, ".0f", "duly"),
    "burst.arq": _value("field", BURST, ",.0f", "arq"),
    "kill": _value("field", KILL, ".1f", "duly"),
    "kill.twice": _value("field", "kill -9: started twice", ".0f", "duly"),
    "kill.lost": _value("field", "kill -9: lost", ".0f", "duly"),
    "idle_worker.100": _value("worker", "idle, 100 queues: CPU of the worker", ".1f"),
    "idle_server.1": _beside("worker", "idle, 1 queue: CPU of the worker", "server's, %", ".1f"),
    "idle_server.100": _beside("worker", "idle, 100 queues: CPU of the worker", "server's, %", ".1f"),
    "life": _value("engine", LIFE, ".1f"),
    "life.rate": lambda results: rate(1e6 / results.figure("engine", LIFE).value),
    "life.bare": _beside("engine", LIFE, "bare HSET+ZADD, ZRANGE+HMGET+ZREM+HDEL", ".1f"),
    "keyed.turn": _value("engine", f"{KEYED}in turn", ".2f"),
    "keyed.random": _value("engine", f"{KEYED}at random", ".2f"),
    "send_many": _rate("engine", "send_many"),
    "receive": _rate("engine", "receive + ack_many, batches of 100"),
    "send": _beside_rate("engine", "single send, of a bare EVALSHA", "send/s"),
    "send.cpu": _value("field", "server CPU of a send", ".0f", "duly"),
    "send.cpu.taskiq": _value("field", "server CPU of a send", ".0f", "taskiq"),
    "send.of_bare": _value("engine", "single send, of a bare EVALSHA", ".2f"),
    "send.concurrent": _rate("engine", "100 concurrent awaits of send"),
    "memory": _value("engine", "memory of a waiting message of 100 bytes", ".0f"),
    "history.single": _value("engine", f"{HISTORY}1", ".2f"),
    "history.batches": _value("engine", f"{HISTORY}100", ".2f"),
    "history.memory": _kilobytes("engine", "memory of the history of a queue that is busy all week"),
    "start": _value("engine", "duly queues, from start to end", ".2f"),
    "growth": _value("engine", "claim with 1,000,000 waiting, of one with 1,000", ".2f"),
    "publish": _rate("topic", "publish_many"),
    "publish.bare": _beside_rate("topic", "publish_many", "raw pipelined XADD/s"),
    "topic.drain": _rate("topic", "drain, one worker, one group of a topic"),
    "topic.drain.queue": _beside_rate("topic", "drain, one worker, one group of a topic", "a queue, messages/s"),
    "topic.cost": _value("topic", "server CPU, three groups / three queues, kept for 7 days", ".2f"),
    "cluster.cpu": _value("scale", "server CPU of a message on three primaries / on one server", ".2f"),
    "cluster.mixed": _value(
        "scale", "server CPU of a message on three primaries, in mixed order / on one server", ".2f"
    ),
    "cluster.single": _value("scale", "server CPU of a message on three primaries / on a cluster of one", ".2f"),
    "cluster.busiest": _value("scale", "three primaries: CPU of the busiest, of an equal part", ".2f"),
    "missed": lambda results: str(len(results.missed())),
}
