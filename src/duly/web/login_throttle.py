"""Limits failed logins: wrong tokens are counted per client address for a minute. Pure.

An address may fail ten times. Repeating the same wrong token counts once, since a program with an outdated token does
not guess. After many failures in total, each address has one attempt instead of ten, which slows down distributed
guessing. Clients with a valid token are still accepted, and known clients bypass the throttle at their address.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from duly.errors import DulyError

WINDOW_SECONDS: Final = 60.0
MAX_PER_ADDRESS: Final = 10
MAX_TOTAL: Final = 100
MAX_ADDRESSES: Final = 4096


class LockedOut(DulyError):
    """Too many wrong tokens came from an address. It may try again after `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many wrong tokens came from this address: try again in {seconds} seconds")
        self.seconds = seconds


@dataclass
class _Window:
    """The failures since a moment."""

    since: float
    failures: int = 0
    hashes: set[bytes] = field(default_factory=set)
    """Hashes of the wrong credentials. They are few, because an address with many is locked out."""


class FailureCounter:
    """Counts the failures of the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._overall = _Window(float("-inf"))

    def lockout_for(self, address: str) -> LockedOut | None:
        """Return the lockout of an address. None: it may try."""
        now = self._clock()
        window = self._windows.get(client_network(address))
        if window is None or _has_expired(window, now):
            return None
        is_normal = _has_expired(self._overall, now) or self._overall.failures < MAX_TOTAL
        if window.failures >= (MAX_PER_ADDRESS if is_normal else 1):
            return LockedOut(max(1, math.ceil(window.since + WINDOW_SECONDS - now)))
        return None

    def record_failure(self, address: str, credential: str) -> None:
        """Count a failure, unless the same credential failed from there before."""
        now = self._clock()
        window = self._window_of(client_network(address), now)
        digest = hashlib.sha256(credential.encode(errors="surrogatepass")).digest()
        if digest in window.hashes:
            return
        window.hashes.add(digest)
        window.failures += 1
        if _has_expired(self._overall, now):
            self._overall = _Window(now)
        self._overall.failures += 1

    def _window_of(self, group: str, now: float) -> _Window:
        window = self._windows.get(group)
        if window is not None and not _has_expired(window, now):
            return window
        # Windows are in the order of their start, so the first one expires next.
        self._windows.pop(group, None)
        if len(self._windows) >= MAX_ADDRESSES:
            del self._windows[next(iter(self._windows))]
        self._windows[group] = _Window(now)
        return self._windows[group]


def client_network(address: str) -> str:
    """Return what one client can control: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket has no addresses: its clients share one limit
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed.packed[:8] + bytes(8), 64)))


def _has_expired(window: _Window, now: float) -> bool:
    return now >= window.since + WINDOW_SECONDS


REMEMBERED_SECONDS: Final = 3600.0
MAX_REMEMBERED: Final = 4096


class KnownClients:
    """Remembers the tokens that were valid in the last hour, by address. Their clients are not locked out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_valid: dict[tuple[str, str], float] = {}
        """When each was last valid, oldest first."""

    def remember(self, token: str, address: str) -> None:
        """Remember that a token was valid."""
        key = (client_network(address), token)
        self._last_valid.pop(key, None)
        if len(self._last_valid) >= MAX_REMEMBERED:
            del self._last_valid[next(iter(self._last_valid))]
        self._last_valid[key] = self._clock()

    def known_tokens(self, tokens: Iterable[str], address: str) -> list[str]:
        """Return the tokens that were recently valid from an address."""
        group, since = client_network(address), self._clock() - REMEMBERED_SECONDS
        return [each for each in tokens if self._last_valid.get((group, each), float("-inf")) > since]
