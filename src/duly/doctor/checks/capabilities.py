"""What the server is, what it can do, and what the user may do."""

from typing import Final

from duly.acl.roles import ROLES
from duly.doctor.facts import Facts, Missing, Product, Version, number, product_of, read_version
from duly.doctor.flaws import flaws_of, mended_version
from duly.doctor.permissions import needed_by
from duly.doctor.report import Finding, Subject, in_shell, listed

CLUSTER: Final = Subject(
    "cluster", "This version speaks to one server: it does not follow a queue to the node that has its slot."
)
SLOTS: Final = Subject(
    "slots",
    "On a cluster a command may use keys of one slot. Each queue, topic and lock has its keys in one; commit() that "
    "sends to another queue or changes keys of yours, redrive(to=), and the wait of a worker for several queues span "
    "more, and are refused there.",
)

EVERY_SLOT: Final = 16_384
_ELSEWHERE: Final = "# use a server of its own, with cluster-enabled no"


def cluster(facts: Facts) -> Finding:
    """Look whether it is a node of a cluster, and say what works there."""
    info, told = facts.info, facts.cluster
    if isinstance(info, Missing):
        return CLUSTER.unknown(facts, info)
    if info.get("cluster_enabled", "0") != "1":
        return CLUSTER.ok("off")
    if isinstance(told, Missing):
        return CLUSTER.bad("on; how many nodes share the slots is not told", _ELSEWHERE)
    served, nodes = number(told.get("cluster_slots_assigned")), number(told.get("cluster_size"))
    if told.get("cluster_state") != "ok" or served < EVERY_SLOT:
        return CLUSTER.bad(f"on, and not up: {served:.0f} of {EVERY_SLOT} slots are served; calls fail", _ELSEWHERE)
    if nodes > 1:
        return CLUSTER.bad(
            f"one of {nodes:.0f} nodes: queues whose slot is here work, calls for all others are refused, and lists "
            "name only what is here",
            _ELSEWHERE,
        )
    return CLUSTER.warn(
        "on, with all slots on this node: each queue, topic and lock works; commit() beyond its own queue and "
        "redrive(to=) are refused, and a worker of several queues is not woken by them, so that it is seconds late",
        _ELSEWHERE,
    )


def slots(facts: Facts) -> Finding:
    """Look whether every queue could move to a cluster as it is."""
    keyspace = facts.keys_for(SLOTS.name)
    if isinstance(keyspace, Missing):
        return SLOTS.unknown(facts, keyspace)
    layout = keyspace.layout
    if layout.split:
        return SLOTS.warn(
            f"keys in several slots: {listed(list(layout.split))}",
            "# keep the namespace on a server with cluster-enabled no, where it works; and report it: no key that Duly "
            "names does this",
        )
    if not layout.owners:
        return SLOTS.ok("no keys yet")
    return SLOTS.ok(
        f"each of {layout.owners} queues, topics, locks and the like has its keys in one slot{keyspace.if_partly}"
    )


# Which server it is.

VERSION: Final = Subject(
    "version", "The scripts use commands that older servers do not have: an app refuses such a server."
)
FLAWS: Final = Subject(
    "known-flaws",
    "Every client of a queue may run scripts and block, which is how these flaws of the server are reached.",
)
_OLDEST: Final[dict[Product, Version]] = {"Redis": (6, 2, 0), "Valkey": (7, 2, 0)}


def version(facts: Facts) -> Finding:
    """Look whether the server is new enough."""
    info = facts.info
    if isinstance(info, Missing):
        return VERSION.unknown(facts, info)
    product, text = product_of(info)
    oldest = _OLDEST[product]
    if read_version(text) >= oldest:
        return VERSION.ok(f"{product} {text}")
    needed = ".".join(map(str, oldest[:2]))
    return VERSION.bad(
        f"{product} {text}, and {needed} is needed",
        f"# upgrade the server to {product} {needed} or later; pip install 'duly[embedded]' brings one along",
    )


def known_flaws(facts: Facts) -> Finding:
    """Look whether the version is one with flaws that scripts or blocked clients can reach."""
    info = facts.info
    if isinstance(info, Missing):
        return FLAWS.unknown(facts, info)
    product, text = product_of(info)
    found = flaws_of(product, read_version(text))
    if not found:
        return FLAWS.ok("none known of this version")
    named = "; ".join(f"{', '.join(flaw.names)}: {flaw.what}" for flaw in found)
    return FLAWS.warn(
        f"{product} {text} has {named}",
        f"# upgrade to {product} {mended_version(product, read_version(text))} or later, best the newest of its line. "
        "A distribution may have mended it without another number: see its changelog",
    )


# What the server can be asked to do.

COMMANDS: Final = Subject(
    "commands", "A script that runs a command which the server does not have fails, and with it every call of its kind."
)

_WORK: Final = ("producer", "consumer")


def commands(facts: Facts) -> Finding:
    """Look whether the server has every command that scripts and clients use."""
    absent = facts.absent
    if isinstance(absent, Missing):
        return COMMANDS.unknown(facts, absent)
    if not absent:
        return COMMANDS.ok("all that scripts use are there")
    unable = [name for name, role in ROLES.items() if needed_by(role) & absent]
    hidden = listed([f"rename-command {name}" for name in sorted(absent)])
    tell = COMMANDS.bad if any(name in unable for name in _WORK) else COMMANDS.warn
    return tell(
        f"the server does not have {listed(sorted(absent))}, needed by {', '.join(unable)}",
        f"# take {hidden} out of the server's configuration file, and start it again;\n"
        "# where a provider hides commands, use another server",
    )


# What the connected user may do.

RIGHTS: Final = Subject(
    "rights",
    "A user with too few rights fails in the middle of its work; one with all of them can be misused for anything.",
)


def rights(facts: Facts) -> Finding:
    """Say which roles the user can play."""
    found = facts.rights
    if isinstance(found, Missing):
        rules = f"# give it the rules of a role:\nduly acl --role consumer --user {in_shell(facts.user)}"
        return RIGHTS.unknown(facts, found, "" if found.right else rules)
    able = [role for role, lacks in found.lacking.items() if not lacks]
    if able:
        return RIGHTS.ok(f"user {facts.user!r} can be {', '.join(able)}")
    role, lacks = min(found.lacking.items(), key=lambda each: len(each[1]))
    return RIGHTS.bad(
        f"user {facts.user!r} can play no role; nearest is {role}, without {listed(list(lacks))}",
        f"duly acl --role {role} --user {in_shell(facts.user)}",
    )
