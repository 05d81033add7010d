"""What the server does about memory."""

from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.reading import number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject, setting_mend
from duly.doctor.wording import size

EVICTION: Final = Subject(
    "eviction", "A server that evicts removes keys of a queue without a word when memory is short: messages are gone."
)
HEADROOM: Final = Subject(
    "memory",
    "At maxmemory sends are refused with QueueFull; without one, the system ends the server when memory is over.",
)

NEAR: Final = 0.75
FULL: Final = 0.9
"""Shares of maxmemory."""
OF_MACHINE: Final = 0.75
"""How much of the machine the mend gives to the server; the rest is for the rewrite of the append-only file."""


def eviction(facts: Facts) -> Finding:
    """Look whether keys may be evicted."""
    policy = facts.setting("maxmemory-policy")
    if isinstance(policy, Missing):
        return EVICTION.unknown(facts, policy)
    if policy == "noeviction":
        return EVICTION.ok("noeviction")
    return EVICTION.bad(f"maxmemory-policy {policy}", setting_mend(facts, ("maxmemory-policy", "noeviction")))


def headroom(facts: Facts) -> Finding:
    """Look how much memory is left."""
    info = facts.info
    if isinstance(info, Missing):
        return HEADROOM.unknown(facts, info)
    used = number(info.get("used_memory", "0")) - number(info.get("mem_not_counted_for_evict", "0"))
    limit, machine = number(info.get("maxmemory", "0")), number(info.get("total_system_memory", "0"))
    if not limit:
        return _without_limit(facts, used, machine)
    share = used / limit
    found = f"{size(used)} of maxmemory {size(limit)} ({share:.0%})"
    if machine and limit > machine:
        return HEADROOM.warn(f"{found}, which is more than the machine has", _limit_mend(facts, used, machine))
    if share < NEAR:
        return HEADROOM.ok(found)
    tell = HEADROOM.bad if share >= FULL else HEADROOM.warn
    return tell(found, _limit_mend(facts, used, machine))


def _without_limit(facts: Facts, used: float, machine: float) -> Finding:
    found = f"{size(used)} used, no maxmemory"
    if not machine or used < machine * 0.5:
        return HEADROOM.ok(found)
    return HEADROOM.warn(f"{found}, on a machine with {size(machine)}", _limit_mend(facts, used, machine))


def _limit_mend(facts: Facts, used: float, machine: float) -> str:
    """Raise the limit to twice what is used, if the machine has it; what it has not, only consumers can free."""
    wanted = used * 2
    if machine and wanted > machine * OF_MACHINE:
        wanted = machine * OF_MACHINE
        if wanted * FULL <= used:
            return "# more memory for the machine; or more consumers, and bounds: docs/operations.md, Memory"
    megabytes = max(int(wanted / 1024 / 1024), 1)
    return setting_mend(facts, ("maxmemory", f"{megabytes}mb"))
