"""The exceptions of calls that the server refuses or does not answer. Each names the call, the server and the fix."""

from collections.abc import Mapping
from typing import Final

from duly._core import replies, rights
from duly._core.resp import ErrorReply, ReplyError
from duly._core.topology import Node
from duly.errors import DulyError, QueueFull, ServerError, Unavailable

_CHECK_CREDENTIALS: Final = "Check user and password in the URL, redis://USER:PASSWORD@host"
_ADVICE: Final[Mapping[str, str]] = {
    "DB index": (
        "The server has no database of that number: it has 0 to 15 unless `databases` in its configuration is changed, "
        "and one in cluster mode. Use another, redis://host:6379/0"
    ),
    "MOVED": "The server is a node of a cluster: use redis+cluster://host:6379",
    "cluster support disabled": "The server is not a node of a cluster: use redis://host:6379/0",
}
"""Advice for some errors of the server, by a part of their text."""


def refusal(title: str, shown: str, user: str, error: ReplyError) -> DulyError:
    """Return the exception for an error reply that ends a call. `shown` is the server, `user` the login."""
    if replies.is_denied(error):
        return _denied(title, shown, user, error)
    if replies.trouble_of(error) == "full":
        return QueueFull(
            f"{shown} is at maxmemory: {title} was refused and nothing was written. Let consumers drain it, "
            "or raise maxmemory"
        )
    advice = next((f" {advice}" for text, advice in _ADVICE.items() if text in str(error)), "")
    return ServerError(f"{title} failed on {shown}: {_sentence(error) if advice else error}{advice}")


def _denied(title: str, shown: str, user: str, error: ReplyError) -> ServerError:
    if isinstance(error, ErrorReply) and error.refuses_login:
        return ServerError(f"{shown} refused the connection: {_sentence(error)} {_CHECK_CREDENTIALS}")
    return ServerError(f"{title} failed on {shown}: {_sentence(error)} {rights.advice(title, user, str(error))}")


def unavailable(
    title: str, shown: str, patience: float, trouble: Exception, *, was_asked: bool, hint: str
) -> Unavailable:
    """Return the exception for a call without an answer. `was_asked`: the server may have carried it out."""
    outcome = f"{title} may or may not have been carried out" if was_asked else f"{title} was not carried out"
    advice = ""
    if was_asked and " on topic " in title and title.startswith(("publish", "send")):
        advice = ". Publish again with the same dedup= if the entry must not be stored twice"
    elif was_asked and title.startswith("send"):
        advice = ". Send again with the same id= or dedup= if the message must not be stored twice"
    return Unavailable(
        f"{shown} did not answer within {patience:.3g} s ({described(trouble)}): {outcome}. "
        f"Check that the server runs and can be reached{hint}{advice}"
    )


USES_TLS: Final = ", and that it speaks TLS on this port (redis:// is without)"
"""A hint for a server that was never reached by TLS."""


def is_announced(node: Node, announcer: Node) -> str:
    """Return a hint for a node that was never reached, at an address that another node announces."""
    return (
        f". {announcer} announces {node} as a node of the cluster: if that address is of another network, set "
        f"cluster-announce-ip or cluster-announce-hostname on {node} to one that can be reached from here"
    )


def described(error: Exception) -> str:
    """Describe an error, even one without a text."""
    return str(error) or type(error).__name__


def _sentence(error: Exception) -> str:
    """Return the error text of the server as a sentence."""
    text = str(error).rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."
