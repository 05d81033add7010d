"""Whether the server is reached, and what it does with connections."""

from typing import Final

from redis.exceptions import AuthenticationError, BusyLoadingError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly._core.address import Address
from duly.doctor.client import LONGEST, Busy, Unfinished
from duly.doctor.facts import Facts, Missing, number
from duly.doctor.report import Finding, Subject, setting_mend

CONNECTION: Final = Subject("connection", "Without the server nothing is sent and nothing is received.")
STORE: Final = Subject(
    "connection", "What is in the memory of a process ends with it: for tests, and for trying things out."
)

_CUT_SHORT: Final = ("SSL", "closed", "reset")
"""Words of errors that say that somebody is there who speaks otherwise."""


def reachable(address: Address) -> Finding:
    """Say that it answers."""
    return CONNECTION.ok(f"{address.shown} answers")


def nothing_to_examine(address: Address) -> Finding:
    """Say that there is no server."""
    return STORE.ok(f"{address.shown} is in this process: there is nothing to examine")


def unreachable(address: Address, error: Exception) -> Finding:
    """Say why it cannot be examined, and what to do."""
    text = str(error)
    if isinstance(error, Busy) or text.startswith("BUSY"):
        return CONNECTION.bad("a script has run for seconds, and the server answers nothing else", "SCRIPT KILL")
    if isinstance(error, AuthenticationError):
        return CONNECTION.bad(
            f"{address.shown} refuses the user or the password: {text}",
            "# put them into the address: redis://USER:PASSWORD@HOST:PORT, with USER left out for the default one",
        )
    if isinstance(error, BusyLoadingError):
        return CONNECTION.bad(f"{address.shown} is loading its data", "# wait until it has done so")
    if "max number of clients" in text:
        return CONNECTION.bad(
            f"{address.shown} has as many clients as it takes",
            "# from a client that is connected still:\nCONFIG SET maxclients 10000",
        )
    return _away(address, error)


def _away(address: Address, error: Exception) -> Finding:
    if address.kind == "embedded":
        return CONNECTION.bad(
            str(error), "duly server status\n# server.log in its directory says why it does not start"
        )
    if isinstance(error, Unfinished):
        return CONNECTION.bad(
            f"{address.shown} begins to answer and does not end within {LONGEST:g} s",
            "# is it a server of another kind, or something between that holds answers back?",
        )
    if isinstance(error, RedisTimeoutError):
        return CONNECTION.bad(
            f"{address.shown} does not answer within 5 s",
            f"# is it another address, a firewall, or a server that hangs?{_other_scheme(address)}",
        )
    is_there = any(word in str(error) for word in _CUT_SHORT)
    return CONNECTION.bad(
        f"{address.shown} cannot be reached: {error}",
        f"# start the server, or mend the address (--url, DULY_URL){_other_scheme(address) if is_there else ''}",
    )


def _other_scheme(address: Address) -> str:
    """Say what a server does that speaks TLS, or does not: it hangs up, or waits for what never comes."""
    if address.kind == "tls":
        return "\n# if the server does not speak TLS, the address begins with redis://"
    return "\n# if the server speaks TLS, the address begins with rediss://" if address.kind == "tcp" else ""


# What the server does with connections.

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
