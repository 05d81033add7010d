"""The roles: which scripts each runs, and what the client sends for it beside scripts. Nothing here but data.

A producer sends and publishes, a consumer works, an observer looks, an admin does all that Duly can. What a role
needs follows from its scripts; what is left out of a role is left out of its rights.
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
    "foreign_pending": _GROUP,
    "get": _ALL,
    "keep_result": _QUEUE,
    "leave_group": _GROUP,
    "list": _ALL,
    "lock": _QUEUE,
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
"""On whose stores each script is run: a queue's (the registries, locks and effects are such, too), a topic's, a
group's."""

EVERYWHERE: Final = ("client|setname", "eval", "evalsha", "info", "select")
"""What every client sends: scripts, a look at the server before the first of them, and what an address may ask for, a
database and a name. AUTH and HELLO are always allowed."""

_BLOCKS_ON_STREAMS: Final = ("client|id", "client|unblock", "xread")
_BLOCKS: Final = ("blpop", "client|kill", *_BLOCKS_ON_STREAMS)
_CONFIRMS: Final = ("wait", "waitaof")
_FINDS: Final = ("scan",)

FOR_FSYNC: Final = ("config|get",)
"""What durable="fsync" needs on top: it shows all settings of the server, its passwords among them."""

OPTIONAL: Final = frozenset({"waitaof"})
"""What the client does without where the server does not know it."""


@dataclass(frozen=True, slots=True)
class Role:
    """Somebody who uses Duly, and what he sends."""

    name: str
    summary: str
    scripts: Mapping[str, tuple[Kind, ...]]
    """The scripts that he runs, and on whose stores."""
    sends: tuple[str, ...]
    """What the client sends for him beside scripts, by the names that rules have."""
    looks: frozenset[str] = field(default=frozenset())
    """Scripts of which he needs only what changes nothing: they write for others, and do without for him."""

    def runs(self, script: str, kind: Kind) -> bool:
        """Tell whether a script is one of his."""
        return kind in self.scripts.get(script, ())


def _scripts(names: Iterable[str], but: Iterable[Kind] = ()) -> dict[str, tuple[Kind, ...]]:
    left_out = set(but)
    return {name: tuple(kind for kind in KINDS_OF[name] if kind not in left_out) for name in names}


_SENDING: Final = ("send", "send_checked", "publish", "cancel", "reschedule", "await_end")
_SCHEDULING: Final = ("schedule", "unschedule", "register", "unregister", "schedules")
_LOCKING: Final = ("lock", "unlock", "prolong", "wake_lock")
_WORKING: Final = (
    "claim", "wake", "take_tokens", "occupied", "fire", "once", "beat", "depart", "tidy", "tidy_topic", "seek_group",
    "leave_group",
)  # fmt: skip
_LOOKING: Final = (
    "stats", "get", "list", "pending", "foreign_pending", "topic_stats", "read_topic", "workers", "schedules", "audit",
)  # fmt: skip

PRODUCER: Final = Role(
    "producer",
    "sends and publishes, cancels and reschedules what was sent, awaits results, keeps schedules, takes locks",
    _scripts((*_SENDING, *_SCHEDULING, *_LOCKING), but=_GROUP),
    (*EVERYWHERE, *_BLOCKS, *_CONFIRMS),
)
CONSUMER: Final = Role(
    "consumer",
    "receives and settles, runs handlers and workers with all that they do, and does what a producer does",
    {**PRODUCER.scripts, **_scripts((*scripts_of_verbs("consumer"), *_WORKING, "read_topic"))},
    (*EVERYWHERE, *_BLOCKS, *_CONFIRMS),
)
OBSERVER: Final = Role(
    "observer",
    "looks at queues, topics, messages, schedules and workers, and audits; it changes nothing",
    _scripts(_LOOKING),
    (*EVERYWHERE, *_BLOCKS_ON_STREAMS, *_FINDS),
    looks=frozenset({"audit", "read_topic"}),
)
ADMIN: Final = Role(
    "admin",
    "does everything that Duly can: also look, purge, delete, redrive and repair",
    KINDS_OF,
    (*EVERYWHERE, *_BLOCKS, *_CONFIRMS, *_FINDS),
)

ROLES: Final[Mapping[str, Role]] = {role.name: role for role in (PRODUCER, CONSUMER, OBSERVER, ADMIN)}
