"""Checks of the connection to the server, and of its settings for connections."""

from typing import Final

from duly._core.address import Address
from duly._core.resp import ErrorReply, UnfinishedReply
from duly.doctor.client import REPLY_LIMIT, Busy
from duly.doctor.facts import Facts, Missing, number
from duly.doctor.report import Finding, Subject, setting_fix

CONNECTION: Final = Subject("connection", "Without the server, no message is sent or received.")
STORE: Final = Subject(
    "connection", "Messages in the memory of a process end with it: use it for tests and for trying things out."
)

_HANG_UPS: Final = ("SSL", "closed", "reset")
"""Words of errors from a peer that expects another protocol."""


def reachable(address: Address) -> Finding:
    """Report that the server answers."""
    return CONNECTION.ok(f"{address.shown} answers")


def nothing_to_examine(address: Address) -> Finding:
    """Report that there is no server."""
    return STORE.ok(f"{address.shown} is in this process: there is nothing to examine")


def unreachable(address: Address, error: Exception) -> Finding:
    """Report why the server cannot be examined, and how to fix it."""
    text = str(error)
    if isinstance(error, Busy) or text.startswith("BUSY"):
        return CONNECTION.bad(
            "a script has been running for seconds, and the server rejects other commands", "SCRIPT KILL"
        )
    if isinstance(error, ErrorReply) and error.refuses_login:
        return CONNECTION.bad(
            f"{address.shown} refuses the user or the password: {text}",
            "# put them into the address: redis://USER:PASSWORD@HOST:PORT. Leave USER out for the default user",
        )
    if isinstance(error, ErrorReply) and error.code == "LOADING":
        return CONNECTION.bad(f"{address.shown} is loading its data", "# wait until it has finished")
    if "max number of clients" in text:
        return CONNECTION.bad(
            f"{address.shown} has reached its limit of clients",
            "# from a client that is still connected:\nCONFIG SET maxclients 10000",
        )
    return _no_connection(address, error)


def _no_connection(address: Address, error: Exception) -> Finding:
    if address.kind == "embedded":
        return CONNECTION.bad(str(error), "duly server status\n# server.log in its directory has the error")
    if isinstance(error, UnfinishedReply):
        return CONNECTION.bad(
            f"{address.shown} did not complete a reply within {REPLY_LIMIT:g} s",
            "# check whether it is a Redis or Valkey server, and whether a proxy in between delays replies",
        )
    if isinstance(error, TimeoutError):
        return CONNECTION.bad(
            f"{address.shown} does not answer within 5 s",
            f"# check the address, the firewall, and whether the server hangs{_other_scheme(address)}",
        )
    is_peer = any(word in str(error) for word in _HANG_UPS)
    return CONNECTION.bad(
        f"{address.shown} cannot be reached: {error}",
        f"# start the server, or correct the address (--url, DULY_URL){_other_scheme(address) if is_peer else ''}",
    )


def _other_scheme(address: Address) -> str:
    """Suggest the other scheme. A server that expects TLS, or does not, disconnects or waits in silence."""
    if address.kind == "tls":
        return "\n# if the server does not use TLS, the address begins with redis://"
    return "\n# if the server uses TLS, the address begins with rediss://" if address.kind == "tcp" else ""


# Settings for connections

IDLE_TIMEOUT: Final = Subject(
    "idle-timeout",
    "The next call after the server closed a connection connects again. It is slower, and may have to be repeated.",
)
KEEPALIVE: Final = Subject(
    "keepalive", "Without it, the server keeps connections of consumers that are gone, and sends wake-ups to them."
)
CLIENTS: Final = Subject(
    "clients", "An app opens up to 32 connections, and one for each waiting call. At maxclients, new ones are refused."
)

SHORTEST: Final = 60
"""Seconds; a shorter idle time-out is a warning."""
ENOUGH: Final = 128
"""Clients; enough for four busy apps."""
NEAR: Final = 0.8
FULL: Final = 0.95
"""Shares of maxclients."""


def idle_timeout(facts: Facts) -> Finding:
    """Check whether the server closes idle connections soon."""
    seconds = facts.setting("timeout")
    if isinstance(seconds, Missing):
        return IDLE_TIMEOUT.unknown(facts, seconds)
    if 0 < number(seconds) < SHORTEST:
        return IDLE_TIMEOUT.warn(f"after {seconds} s", setting_fix(facts, ("timeout", "0")))
    return IDLE_TIMEOUT.ok("never" if number(seconds) == 0 else f"after {seconds} s")


def keepalive(facts: Facts) -> Finding:
    """Check whether the server detects peers that are gone."""
    seconds = facts.setting("tcp-keepalive")
    if facts.kind in ("unix", "embedded"):
        return KEEPALIVE.ok("not needed on a local socket")
    if isinstance(seconds, Missing):
        return KEEPALIVE.unknown(facts, seconds)
    if number(seconds) == 0:
        return KEEPALIVE.warn("tcp-keepalive 0", setting_fix(facts, ("tcp-keepalive", "300")))
    return KEEPALIVE.ok(f"tcp-keepalive {seconds}")


def clients(facts: Facts) -> Finding:
    """Check how many connections are left."""
    info, most = facts.info, facts.setting("maxclients")
    if isinstance(info, Missing):
        return CLIENTS.unknown(facts, info)
    if isinstance(most, Missing):
        return CLIENTS.unknown(facts, most)
    connected = number(info.get("connected_clients", "0"))
    share = connected / max(number(most), 1)
    refused = number(info.get("rejected_connections", "0"))
    found = f"{connected:.0f} of {most}" + (f"; {refused:.0f} refused since the server started" if refused else "")
    if share < NEAR and number(most) >= ENOUGH:
        return CLIENTS.ok(found)
    wanted = max(10_000, int(number(most)) * 2)
    fix = setting_fix(facts, ("maxclients", str(wanted))) + "\n# the server needs as many file descriptors: ulimit -n"
    return CLIENTS.bad(found, fix) if share >= FULL else CLIENTS.warn(found, fix)
