"""Checks of the server's version, cluster mode and commands, and of the user's permissions."""

from typing import Final

from duly.acl.roles import ROLES
from duly.doctor.facts import Facts, Missing, Product, Version, number, product_of, read_version
from duly.doctor.flaws import fixed_version, flaws_of
from duly.doctor.permissions import needed_by
from duly.doctor.report import Finding, Subject, in_shell, listed

CLUSTER: Final = Subject(
    "cluster",
    "With redis://, Duly connects to one server, and does not follow a queue to the node that has its hash slot.",
)
SLOTS: Final = Subject(
    "slots",
    "On a cluster, a command may only use keys of one hash slot. Each queue, topic and lock has its keys in one. A "
    "cluster refuses operations on several hash slots: commit() that sends to another queue or changes your own keys, "
    "redrive(to=), and a worker's wait for several queues.",
)

EVERY_SLOT: Final = 16_384
_ELSEWHERE: Final = "# use redis+cluster://, or a separate server with cluster-enabled no"


def cluster(facts: Facts) -> Finding:
    """Check whether the server is a node of a cluster, and report which calls work there."""
    info, reply = facts.info, facts.cluster
    if isinstance(info, Missing):
        return CLUSTER.unknown(facts, info)
    if info.get("cluster_enabled", "0") != "1":
        return CLUSTER.ok("off")
    if isinstance(reply, Missing):
        return CLUSTER.bad("on; the number of nodes is unknown", _ELSEWHERE)
    served, nodes = number(reply.get("cluster_slots_assigned")), number(reply.get("cluster_size"))
    if reply.get("cluster_state") != "ok" or served < EVERY_SLOT:
        return CLUSTER.bad(
            f"on, but not up: {served:.0f} of {EVERY_SLOT} hash slots are served; calls fail", _ELSEWHERE
        )
    if nodes > 1:
        return CLUSTER.bad(
            f"one of {nodes:.0f} nodes: calls for queues on other nodes are refused, and lists show only the queues "
            "of this node",
            _ELSEWHERE,
        )
    return CLUSTER.warn(
        "on, with all hash slots on this node: each queue, topic and lock works. commit() beyond its own queue and "
        "redrive(to=) are refused. A worker for several queues is not woken by messages, and is seconds late",
        _ELSEWHERE,
    )


def slots(facts: Facts) -> Finding:
    """Check whether every queue could move to a cluster unchanged."""
    keyspace = facts.keys_for(SLOTS.name)
    if isinstance(keyspace, Missing):
        return SLOTS.unknown(facts, keyspace)
    layout = keyspace.layout
    if layout.split:
        return SLOTS.warn(
            f"keys in several hash slots: {listed(list(layout.split))}",
            "# keep the namespace on a server with cluster-enabled no, where it works, and report this as a bug: Duly "
            "names no such keys",
        )
    if not layout.owners:
        return SLOTS.ok("no keys yet")
    owners = f"each of {layout.owners} queues, topics, locks and registries"
    return SLOTS.ok(f"{owners} has its keys in one hash slot{keyspace.coverage_note}")


# Version

VERSION: Final = Subject(
    "version", "The scripts use commands that older servers do not have. An app refuses such a server."
)
FLAWS: Final = Subject(
    "known-flaws",
    "Every client of a queue may run scripts and blocking commands, and so can reach these flaws of the server.",
)
_OLDEST: Final[dict[Product, Version]] = {"Redis": (6, 2, 0), "Valkey": (7, 2, 0)}


def version(facts: Facts) -> Finding:
    """Check whether the server is new enough."""
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
        f"# upgrade the server to {product} {needed} or later; pip install 'duly[embedded]' includes one",
    )


def known_flaws(facts: Facts) -> Finding:
    """Check whether the version has flaws that scripts or blocked clients can reach."""
    info = facts.info
    if isinstance(info, Missing):
        return FLAWS.unknown(facts, info)
    product, text = product_of(info)
    found = flaws_of(product, read_version(text))
    if not found:
        return FLAWS.ok("none known for this version")
    named = "; ".join(f"{', '.join(flaw.names)}: {flaw.what}" for flaw in found)
    return FLAWS.warn(
        f"{product} {text} has {named}",
        f"# upgrade to {product} {fixed_version(product, read_version(text))} or later, preferably the newest of its "
        "line. A distribution may have fixed it without a new version number: see its changelog",
    )


# Commands

COMMANDS: Final = Subject(
    "commands", "A script fails if the server lacks one of its commands, and so does every call that uses the script."
)

_WORK: Final = ("producer", "consumer")


def commands(facts: Facts) -> Finding:
    """Check whether the server has every command that scripts and clients use."""
    absent = facts.absent
    if isinstance(absent, Missing):
        return COMMANDS.unknown(facts, absent)
    if not absent:
        return COMMANDS.ok("the server has all that Duly uses")
    unable = [name for name, role in ROLES.items() if needed_by(role) & absent]
    hidden = listed([f"rename-command {name}" for name in sorted(absent)])
    finding = COMMANDS.bad if any(name in unable for name in _WORK) else COMMANDS.warn
    return finding(
        f"the server does not have {listed(sorted(absent))}, needed by {', '.join(unable)}",
        f"# remove {hidden} from the server's configuration file, and restart the server;\n"
        "# if a provider hides commands, use another server",
    )


# Permissions

RIGHTS: Final = Subject(
    "rights",
    "A user with too few permissions fails in the middle of its work. One with all of them can be abused.",
)


def rights(facts: Facts) -> Finding:
    """Report the roles for which the user has all permissions."""
    found = facts.permissions
    if isinstance(found, Missing):
        rules = f"# grant it the rules of a role:\nduly acl --role consumer --user {in_shell(facts.user)}"
        return RIGHTS.unknown(facts, found, "" if found.rule else rules)
    able = [role for role, lacks in found.lacking.items() if not lacks]
    if able:
        return RIGHTS.ok(f"user {facts.user!r} can be {', '.join(able)}")
    role, lacks = min(found.lacking.items(), key=lambda each: len(each[1]))
    return RIGHTS.bad(
        f"user {facts.user!r} lacks permissions for all roles; nearest is {role}, which needs {listed(list(lacks))}",
        f"duly acl --role {role} --user {in_shell(facts.user)}",
    )
