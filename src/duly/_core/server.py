"""Check the INFO of a server: its version, its role, and whether it may evict messages."""

import re
from collections.abc import Mapping
from typing import Final

from duly.errors import ServerError, UnsafeServer

_OLDEST_REDIS: Final = (6, 2)
_OLDEST_VALKEY: Final = (7, 2)


def read_info(reply: bytes | Mapping[str, str]) -> dict[str, str]:
    """Decode the reply to INFO."""
    if not isinstance(reply, bytes):
        return dict(reply)
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def check_server(info: Mapping[str, str], shown: str, *, allow_eviction: bool) -> None:
    """Raise if a server cannot run Duly, or may lose messages because of its settings."""
    if valkey := info.get("valkey_version"):
        name, version, oldest = "Valkey", valkey, _OLDEST_VALKEY
    else:
        name, version, oldest = "Redis", info.get("redis_version", "0"), _OLDEST_REDIS
    if _version(version) < oldest:
        needed = ".".join(map(str, oldest))
        raise ServerError(
            f"{shown} is {name} {version}: Duly needs {needed} or later. pip install 'duly[embedded]' includes one"
        )
    if info.get("role", "master") != "master":
        raise ServerError(
            f"{shown} is a replica of {info.get('master_host')}:{info.get('master_port')}: connect to the primary"
        )
    if not allow_eviction and (danger := eviction_of(info, shown)):
        raise UnsafeServer(danger)


def hides_eviction(info: Mapping[str, str]) -> bool:
    """Return whether a server does not show if it evicts keys. Some providers leave that out of INFO."""
    return "maxmemory_policy" not in info


def eviction_of(info: Mapping[str, str], shown: str) -> str:
    """Return the warning that a server may evict keys, with advice; '': it does not, or does not show it."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return ""
    return (
        f"{shown} may evict keys (maxmemory-policy {policy}), which silently loses messages. Set it to "
        "noeviction (CONFIG SET maxmemory-policy noeviction), or accept the loss with allow_eviction=True"
    )


def is_unknown_command(text: str) -> bool:
    """Whether an error means that the server is too old for a command."""
    return "unknown command" in text.lower()
