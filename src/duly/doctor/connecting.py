"""What it means when a server cannot be reached at all."""

from typing import Final

from redis.exceptions import AuthenticationError, BusyLoadingError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly._core.address import Address
from duly.doctor.asking import Busy
from duly.doctor.bounded import LONGEST, Unfinished
from duly.doctor.report import Finding
from duly.doctor.subject import Subject

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
