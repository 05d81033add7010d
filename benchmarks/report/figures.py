"""The single figures of the pages, each by its name."""

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.report.numbers import rate
from benchmarks.report.results import Results

Write = Callable[[Results], str]

DRAIN: Final = "drain, one worker, duly async"
IDLE: Final = "idle latency, send to handler, p50, "
LATE: Final = "200 due over 5 s, late, "
BURST: Final = "5,000 due at once, the last one, "
KILL: Final = "kill -9, a lease of 5 s: all done after"
KEYED: Final = "server CPU with a key / without, 1,000 keys "
LIFE: Final = "server CPU for a message's life, batches of 100"


def _rate(suite: str, question: str) -> Write:
    return lambda results: rate(results.figure(suite, question).value)


def _value(suite: str, question: str, form: str) -> Write:
    return lambda results: format(results.figure(suite, question).value, form)


def _beside(suite: str, question: str, name: str, form: str) -> Write:
    return lambda results: format(results.figure(suite, question).beside[name], form)


def _beside_rate(suite: str, question: str, name: str) -> Write:
    return lambda results: rate(results.figure(suite, question).beside[name])


def _least(question: str, form: str = "") -> Write:
    def write(results: Results) -> str:
        value = min(results.figure("worker", question).samples)
        return format(value, form) if form else rate(value)

    return write


def _most(question: str, form: str = "") -> Write:
    def write(results: Results) -> str:
        value = max(results.figure("worker", question).samples)
        return format(value, form) if form else rate(value)

    return write


def _times(peer: str) -> Write:
    """How many times as many messages Duly handled as a peer."""
    return lambda results: f"{_drained(results, 'duly async') / _drained(results, peer):.0f}"


def _drained(results: Results, party: str) -> float:
    return results.figure("worker", f"drain, one worker, {party}").value


def _of_peer(peer: str) -> dict[str, Write]:
    drain = f"drain, one worker, {peer}"
    return {
        f"drain.{peer}": _rate("worker", drain),
        f"drain.{peer}.times": _times(peer),
        f"drain.{peer}.worker_cpu": _beside("worker", drain, "worker CPU us", ".0f"),
        f"drain.{peer}.server_cpu": _beside("worker", drain, "server CPU us", ".0f"),
    }


def _idle(party: str, name: str) -> dict[str, Write]:
    question = IDLE + party
    return {
        f"{name}.p50": _value("worker", question, ".2f"),
        f"{name}.p99": _beside("worker", question, "p99 ms", ".1f"),
        f"{name}.p50.least": _least(question, ".2f"),
        f"{name}.p50.most": _most(question, ".2f"),
    }


def _late(party: str, name: str) -> dict[str, Write]:
    return {
        f"{name}.p50": _value("worker", f"{LATE}p50, {party}", ".1f"),
        f"{name}.p99": _value("worker", f"{LATE}p99, {party}", ".1f"),
    }


FIGURES: Final[Mapping[str, Write]] = {
    "drain": _rate("worker", DRAIN),
    "drain.least": _least(DRAIN),
    "drain.most": _most(DRAIN),
    "drain.sync": _rate("worker", "drain, one worker, duly sync"),
    "drain.worker_cpu": _beside("worker", DRAIN, "worker CPU us", ".0f"),
    "drain.server_cpu": _beside("worker", DRAIN, "server CPU us", ".0f"),
    **_of_peer("repid"),
    **_of_peer("taskiq"),
    **_of_peer("arq"),
    **_idle("duly async", "idle"),
    **_idle("repid", "idle.repid"),
    **_idle("taskiq", "idle.taskiq"),
    "idle.about": _value("worker", f"{IDLE}duly async", ".0f"),
    "idle.ping": _beside("worker", f"{IDLE}duly async", "an idle PING, p50 ms", ".2f"),
    **_late("duly async", "late"),
    **_late("arq", "late.arq"),
    "burst": _value("worker", f"{BURST}duly async", ".0f"),
    "burst.arq": _value("worker", f"{BURST}arq", ",.0f"),
    "kill": _value("worker", KILL, ".1f"),
    "kill.twice": _beside("worker", KILL, "started twice", ".0f"),
    "kill.lost": _value("worker", "kill -9: lost", ".0f"),
    "idle_worker.100": _value("worker", "idle, 100 queues: CPU of the worker", ".1f"),
    "idle_server.1": _beside("worker", "idle, 1 queue: CPU of the worker", "server's, %", ".1f"),
    "idle_server.100": _beside("worker", "idle, 100 queues: CPU of the worker", "server's, %", ".1f"),
    "life": _value("engine", LIFE, ".1f"),
    "life.bare": _beside("engine", LIFE, "bare HSET+ZADD, ZRANGE+HMGET+ZREM+HDEL", ".1f"),
    "keyed.turn": _value("engine", f"{KEYED}in turn", ".2f"),
    "keyed.random": _value("engine", f"{KEYED}at random", ".2f"),
    "send_many": _rate("engine", "send_many"),
    "receive": _rate("engine", "receive + ack_many, batches of 100"),
    "send": _beside_rate("engine", "single send, of a bare EVALSHA", "send/s"),
    "send.of_bare": _value("engine", "single send, of a bare EVALSHA", ".2f"),
    "send.concurrent": _rate("engine", "100 concurrent awaits of send"),
    "memory": _value("engine", "memory of a waiting message of 100 bytes", ".0f"),
    "growth": _value("engine", "claim with 1,000,000 waiting, of one with 1,000", ".2f"),
    "publish": _rate("topic", "publish_many"),
    "publish.bare": _beside_rate("topic", "publish_many", "raw pipelined XADD/s"),
    "topic.drain": _rate("topic", "drain, one worker, one group of a topic"),
    "topic.drain.queue": _beside_rate("topic", "drain, one worker, one group of a topic", "a queue, messages/s"),
    "topic.cost": _value("topic", "server CPU, three groups / three queues, kept for 7 days", ".2f"),
    "missed": lambda results: str(len(results.missed())),
}
