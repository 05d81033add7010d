"""What the server does with connections."""

from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.reading import number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject, setting_mend

IDLE_TIMEOUT: Final = Subject(
    "idle-timeout",
    "A connection that the server closes is made anew by the next call, which is slower and may have to repeat it.",
)
KEEPALIVE: Final = Subject(
    "keepalive", "Without it a server goes on waiting for consumers that are gone, and hands wake-ups to them."
)
CLIENTS: Final = Subject(
    "clients", "An app opens up to 32 connections and one for each that waits; at maxclients new ones are refused."
)

SHORTEST: Final = 60
"""Seconds that an idle connection should be left alone, at the least."""
ENOUGH: Final = 128
"""Clients in all: four apps that are as busy as they can be."""
NEAR: Final = 0.8
FULL: Final = 0.95
"""Shares of maxclients."""


def idle_timeout(facts: Facts) -> Finding:
    """Look whether idle connections are closed soon."""
    seconds = facts.setting("timeout")
    if isinstance(seconds, Missing):
        return IDLE_TIMEOUT.unknown(facts, seconds)
    if 0 < number(seconds) < SHORTEST:
        return IDLE_TIMEOUT.warn(f"after {seconds} s", setting_mend(facts, ("timeout", "0")))
    return IDLE_TIMEOUT.ok("never" if number(seconds) == 0 else f"after {seconds} s")


def keepalive(facts: Facts) -> Finding:
    """Look whether the server notices peers that are gone."""
    seconds = facts.setting("tcp-keepalive")
    if facts.kind in ("unix", "embedded"):
        return KEEPALIVE.ok("not needed on a socket of this machine")
    if isinstance(seconds, Missing):
        return KEEPALIVE.unknown(facts, seconds)
    if number(seconds) == 0:
        return KEEPALIVE.warn("tcp-keepalive 0", setting_mend(facts, ("tcp-keepalive", "300")))
    return KEEPALIVE.ok(f"tcp-keepalive {seconds}")


def clients(facts: Facts) -> Finding:
    """Look how many connections are left."""
    info, most = facts.info, facts.setting("maxclients")
    if isinstance(info, Missing):
        return CLIENTS.unknown(facts, info)
    if isinstance(most, Missing):
        return CLIENTS.unknown(facts, most)
    connected = number(info.get("connected_clients", "0"))
    share = connected / max(number(most), 1)
    refused = number(info.get("rejected_connections", "0"))
    found = f"{connected:.0f} of {most}" + (f"; {refused:.0f} were refused since the server started" if refused else "")
    if share < NEAR and number(most) >= ENOUGH:
        return CLIENTS.ok(found)
    wanted = max(10_000, int(number(most)) * 2)
    mend = setting_mend(facts, ("maxclients", str(wanted))) + "\n# the server needs as many open files: ulimit -n"
    return CLIENTS.bad(found, mend) if share >= FULL else CLIENTS.warn(found, mend)
