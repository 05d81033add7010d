"""How often somebody may be wrong: wrong tokens are counted by where they come from, for a minute. Pure.

From one address ten may fail; the same one again counts as nothing, for a program that was not told of a new token
guesses nothing. When many fail in all, an address has one try left instead of ten: guessing from
many places at once gets slow, and whoever comes with the right token from elsewhere is let in all the same.
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
    """Too many wrong tokens came from an address. `seconds` from now it may try again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many wrong tokens came from this address: try again in {seconds} seconds")
        self.seconds = seconds


@dataclass
class _Window:
    """What failed since a moment."""

    since: float
    failures: int = 0
    hashes: set[bytes] = field(default_factory=set)
    """What failed, as hashes. Few: an address with many has to wait."""


class FailureCounter:
    """What failed in the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._overall = _Window(float("-inf"))

    def lockout_for(self, address: str) -> LockedOut | None:
        """Tell how long an address has to wait; None: few enough attempts from there failed lately."""
        now = self._clock()
        window = self._windows.get(client_network(address))
        if window is None or _has_expired(window, now):
            return None
        is_normal = _has_expired(self._overall, now) or self._overall.failures < MAX_TOTAL
        if window.failures >= (MAX_PER_ADDRESS if is_normal else 1):
            return LockedOut(max(1, math.ceil(window.since + WINDOW_SECONDS - now)))
        return None

    def record_failure(self, address: str, credential: str) -> None:
        """Count what failed, unless the same failed before from there."""
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
        # They stand in the order in which they began, so the first is the one that is over next.
        self._windows.pop(group, None)
        if len(self._windows) >= MAX_ADDRESSES:
            del self._windows[next(iter(self._windows))]
        self._windows[group] = _Window(now)
        return self._windows[group]


def client_network(address: str) -> str:
    """Name what one stranger can have at once: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a socket without addresses: all who come by it are one
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
    """The tokens that were right in the last hour, by address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_valid: dict[tuple[str, str], float] = {}
        """When each was last right; the one that was not for the longest time is first."""

    def remember(self, token: str, address: str) -> None:
        """Remember that a token was right."""
        key = (client_network(address), token)
        self._last_valid.pop(key, None)
        if len(self._last_valid) >= MAX_REMEMBERED:
            del self._last_valid[next(iter(self._last_valid))]
        self._last_valid[key] = self._clock()

    def known_tokens(self, tokens: Iterable[str], address: str) -> list[str]:
        """Find those of some tokens that were right lately from an address."""
        group, since = client_network(address), self._clock() - REMEMBERED_SECONDS
        return [each for each in tokens if self._last_valid.get((group, each), float("-inf")) > since]
