"""The roles: the scripts that each runs, and the other commands that the client sends for it. Only data.

A producer sends and publishes, a consumer processes messages, an observer inspects, and an admin may do everything. The
rules of a role follow from its scripts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from duly._core.verbs import VERBS, scripts_of_verbs
from duly._lua import Kind

_QUEUE: Final[tuple[Kind, ...]] = ("queue",)
_TOPIC: Final[tuple[Kind, ...]] = ("topic",)
_GROUP: Final[tuple[Kind, ...]] = ("group", "freeing")
_INBOX: Final[tuple[Kind, ...]] = (*_QUEUE, *_GROUP)
_ALL: Final[tuple[Kind, ...]] = (*_QUEUE, *_TOPIC, *_GROUP)

KINDS_OF: Final[Mapping[str, tuple[Kind, ...]]] = {
    **{script: _INBOX for verb in VERBS.values() for script in verb.scripts},
    "audit": _ALL,
    "await_end": _QUEUE,
    "beat": _QUEUE,
    "cancel": _ALL,
    "claim": _INBOX,
    "correct": _ALL,
    "delete": _INBOX,
    "delete_topic": _TOPIC,
    "depart": _QUEUE,
    "fire": _QUEUE,
    "forecast": _INBOX,
    "foreign_pending": _GROUP,
    "get": _ALL,
    "keep_result": _QUEUE,
    "leave_group": _GROUP,
    "list": _ALL,
    "lock": _QUEUE,
    "measure": _INBOX,
    "move": _INBOX,
    "occupied": _QUEUE,
    "once": _QUEUE,
    "pause": _INBOX,
    "pause_schedule": _QUEUE,
    "pending": _INBOX,
    "prolong": _QUEUE,
    "publish": _TOPIC,
    "purge": _INBOX,
    "read_topic": _TOPIC,
    "redrive": _INBOX,
    "register": _QUEUE,
    "reschedule": _ALL,
    "resume": _INBOX,
    "resume_schedule": _QUEUE,
    "schedule": _QUEUE,
    "schedules": _QUEUE,
    "seek_group": _GROUP,
    "send": _QUEUE,
    "send_checked": (*_QUEUE, *_TOPIC),
    "stats": _ALL,
    "take_tokens": _QUEUE,
    "tidy": _INBOX,
    "tidy_topic": _TOPIC,
    "topic_stats": _TOPIC,
    "unlock": _QUEUE,
    "unregister": _QUEUE,
    "unschedule": _QUEUE,
    "wake": _QUEUE,
    "wake_lock": _QUEUE,
    "workers": _QUEUE,
}
"""The kinds of stores on which each script runs. Registries, locks and effects count as queues."""

EVERYWHERE: Final = ("client|setname", "eval", "evalsha", "info", "mget", "role", "select")
"""Commands that every client sends: scripts, INFO before the first script, the commands for the database and the client
name of an address, ROLE if sentinels name the server, and MGET of call records after a fail-over. AUTH and HELLO are
always allowed."""

_BLOCKS_ON_STREAMS: Final = ("client|id", "client|unblock", "xread")
_BLOCKS: Final = ("blpop", "client|kill", *_BLOCKS_ON_STREAMS)
_CONFIRMS: Final = ("wait", "waitaof")
_FINDS: Final = ("scan",)

FOR_FSYNC: Final = ("config|get",)
"""Commands that durable="fsync" needs. They show all settings of the server, including its passwords."""

FOR_CLUSTER: Final = ("asking", "cluster|info", "cluster|slots")
"""Commands that every client of a cluster sends, to any of its nodes: to find the node of a slot, and for a slot that
moves. Reads go to primaries as well, so READONLY is not needed."""

FOR_CELERY: Final = ("del", "hdel", "hexists", "hgetall", "hkeys", "hset", "ping")
"""Commands that the transport for kombu sends: declarations of queues and exchanges, and a check of the connection."""

CELERY_SCRIPTS: Final = ("delete", "list", "purge", "redrive", "stats")
"""Scripts of queues that Celery needs: sizes, `celery purge`, queues that end, and `duly.celery.Tasks`."""

OPTIONAL: Final = frozenset({"mget", "role", "waitaof"})
"""Commands that the client can do without. Without ROLE it finds out by a failed write that a node is a replica,
and without MGET it does not count the calls that a fail-over has lost."""


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of user, and the commands that it needs."""

    name: str
    summary: str
    scripts: Mapping[str, tuple[Kind, ...]]
    """The scripts that the user runs, and the kinds of stores on which it runs them."""
    sends: tuple[str, ...]
    """Commands that the client sends besides scripts, as named in rules."""
    read_only: frozenset[str] = field(default=frozenset())
    """Scripts that skip their writes for this user, so that it only needs their read commands."""

    def runs(self, script: str, kind: Kind) -> bool:
        """Return whether the user runs a script."""
        return kind in self.scripts.get(script, ())


def _scripts(names: Iterable[str], but: Iterable[Kind] = ()) -> dict[str, tuple[Kind, ...]]:
    left_out = set(but)
    return {name: tuple(kind for kind in KINDS_OF[name] if kind not in left_out) for name in names}


_SEND_SCRIPTS: Final = ("send", "send_checked", "publish", "cancel", "reschedule", "await_end")
_SCHEDULE_SCRIPTS: Final = ("schedule", "unschedule", "register", "unregister", "schedules")
_LOCK_SCRIPTS: Final = ("lock", "unlock", "prolong", "wake_lock")
_WORKER_SCRIPTS: Final = (
    "claim", "wake", "take_tokens", "occupied", "fire", "once", "beat", "depart", "tidy", "tidy_topic", "seek_group",
    "leave_group", "measure",
)  # fmt: skip
_INSPECTION_SCRIPTS: Final = (
    "stats", "forecast", "get", "list", "pending", "foreign_pending", "topic_stats", "read_topic", "workers",
    "schedules", "audit",
)  # fmt: skip

PRODUCER: Final = Role(
    "producer",
    "sends and publishes, cancels and reschedules messages, awaits results, manages schedules, takes locks",
    _scripts((*_SEND_SCRIPTS, *_SCHEDULE_SCRIPTS, *_LOCK_SCRIPTS), but=_GROUP),
    (*EVERYWHERE, *_BLOCKS, *_CONFIRMS),
)
CONSUMER: Final = Role(
    "consumer",
    "receives and settles messages, runs handlers and workers, and does everything that a producer does",
    {**PRODUCER.scripts, **_scripts((*scripts_of_verbs("consumer"), *_WORKER_SCRIPTS, "read_topic"))},
    (*EVERYWHERE, *_BLOCKS, *_CONFIRMS),
)
OBSERVER: Final = Role(
    "observer",
    "inspects and audits queues, topics, messages, schedules and workers, and changes nothing",
    _scripts(_INSPECTION_SCRIPTS),
    (*EVERYWHERE, *_BLOCKS_ON_STREAMS, *_FINDS),
    read_only=frozenset({"audit", "read_topic"}),
)
ADMIN: Final = Role(
    "admin",
    "does everything, including inspect, purge, delete, redrive and repair",
    KINDS_OF,
    (*EVERYWHERE, *_BLOCKS, *_CONFIRMS, *_FINDS),
)

ROLES: Final[Mapping[str, Role]] = {role.name: role for role in (PRODUCER, CONSUMER, OBSERVER, ADMIN)}
