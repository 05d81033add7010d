"""The peers: their packages, the settings with which they drain fastest, and what these guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

AT_LEAST_ONCE: Final = "at least once"
AT_MOST_ONCE: Final = "at most once"


@dataclass(frozen=True)
class Peer:
    """The packages of a peer, and how it runs."""

    requirements: tuple[str, ...]
    """For pip. The first one is the peer itself."""

    guarantee: str = AT_LEAST_ONCE
    """The guarantee for a message with these options."""

    keeps: str = "in memory"
    """Where the server keeps messages, as it is run here."""

    settings: str = ""
    """The differences from the defaults, in words."""

    messages: int = 10_000
    """Messages of one drain: a second's worth or more."""

    has_delays: bool = True
    """Whether a message can be sent for a later time."""

    has_companion: bool = False
    """Whether delays need another process besides the worker."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """For its adapter."""

    after_kill: Mapping[str, Any] = field(default_factory=dict)
    """Options that shorten the recovery after `kill -9`, where that is possible."""

    adapter: str = ""
    """The module in `adapters`, and the environment, if another peer has the same."""

    broker: str = "valkey"
    """The server that it runs on: a name of `brokers.BROKERS`."""


_RABBITMQ: Final = ("aio-pika", "uvloop")
_RABBITMQ_SETTINGS: Final = "persistent messages, publisher confirms, prefetch 100"

PEERS: Final[Mapping[str, Peer]] = {
    "repid": Peer(
        ("repid[redis]", "hiredis", "uvloop", "typing_extensions"),
        settings="streams, batches of 100, 100 tasks",
        messages=20_000,
        has_delays=False,
        after_kill={"claim_interval": 2, "min_idle_ms": 5000},
    ),
    "taskiq": Peer(
        ("taskiq", "taskiq-redis", "hiredis", "uvloop", "orjson"),
        settings="streams, batches of 100, 100 tasks, orjson; a scheduler process for delays, each second",
        has_companion=True,
        after_kill={"idle_timeout": 5000},
    ),
    "arq": Peer(
        ("arq", "hiredis", "uvloop"),
        settings="polls every 10 ms (500 by default), 100 jobs",
        messages=3_000,
        options={"max_jobs": 100, "poll_delay": 0.01},
        after_kill={"job_timeout": 5},
    ),
    "saq": Peer(
        ("saq", "redis", "hiredis", "uvloop", "typing_extensions"),
        settings="3 attempts (1 by default), 50 jobs; delays in whole seconds",
        messages=3_000,
        options={"concurrency": 50},
        after_kill={"timeout": 3, "timers": {"sweep": 5}},
    ),
    "dramatiq": Peer(
        ("dramatiq[redis]", "hiredis"),
        settings="8 threads, prefetch 100",
        options={"threads": 8, "prefetch": 100},
        after_kill={"heartbeat_timeout": 5000},
    ),
    "streaq": Peer(
        ("streaq", "uvloop"),
        settings="32 tasks, prefetch 64",
        messages=3_000,
        options={"concurrency": 32, "prefetch": 64},
        after_kill={"idle_timeout": 5},
    ),
    "celery": Peer(
        ("celery[redis]", "hiredis"),
        settings="late acks, 10 threads, prefetch 10 each",
        messages=3_000,
        options={"threads": 10, "prefetch": 10},
        after_kill={"visibility_timeout": 5},
    ),
    "redis_message_queue": Peer(
        ("redis-message-queue", "hiredis", "uvloop"),
        settings="visibility timeout of 30 s (none by default), 50 loops",
        has_delays=False,
        options={"visibility_timeout": 30, "loops": 50},
        after_kill={"visibility_timeout": 5},
    ),
    "faststream": Peer(
        ("faststream[redis]", "hiredis", "uvloop"),
        settings="streams, batches of 100, 10 workers; a second subscriber takes over after a kill",
        has_delays=False,
        options={"workers": 10},
        after_kill={"min_idle_time": 5000},
    ),
    "rq": Peer(
        ("rq", "hiredis"),
        guarantee=f"{AT_MOST_ONCE}: a dead worker's job is failed",
        settings="SimpleWorker, which does not fork",
        messages=500,
        after_kill={"maintenance_interval": 5},
    ),
    "huey": Peer(
        ("huey", "redis", "hiredis"),
        guarantee=AT_MOST_ONCE,
        settings="4 threads, polls for delays each second",
        options={"workers": 4},
    ),
    "rabbitmq-quorum": Peer(
        _RABBITMQ,
        keeps="on disk, synced before each confirm, one node",
        settings=f"quorum queue, {_RABBITMQ_SETTINGS}",
        has_delays=False,
        options={"kind": "quorum", "prefetch": 100},
        adapter="rabbitmq",
        broker="rabbitmq",
    ),
    "rabbitmq-classic": Peer(
        _RABBITMQ,
        keeps="on disk, synced before each confirm, one node",
        settings=f"classic durable queue, {_RABBITMQ_SETTINGS}",
        has_delays=False,
        options={"kind": "classic", "prefetch": 100},
        adapter="rabbitmq",
        broker="rabbitmq",
    ),
    "nats": Peer(
        ("nats-py", "uvloop"),
        keeps="in files, synced every 2 minutes",
        settings="JetStream, a work queue, pulls of 100",
        has_delays=False,
        options={"batch": 100, "ack_wait": 30},
        after_kill={"ack_wait": 5},
        broker="nats",
    ),
    "beanstalkd": Peer(
        ("greenstalk",),
        keeps="in a log, synced every 50 ms",
        settings="4 threads, one job each at a time; delays in whole seconds",
        options={"threads": 4, "ttr": 30},
        after_kill={"ttr": 5},
        broker="beanstalkd",
    ),
}  # fmt: skip


def adapter_of(name: str) -> str:
    """Return the module and the environment of a peer."""
    return PEERS[name].adapter or name
