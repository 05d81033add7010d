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
FROM_ONE_ADDRESS: Final = 10
IN_ALL: Final = 100
ADDRESSES_KEPT: Final = 4096


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
    seen: set[bytes] = field(default_factory=set)
    """What failed, as hashes. Few: an address with many has to wait."""


class Attempts:
    """What failed in the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._overall = _Window(float("-inf"))

    def lock_of(self, address: str) -> LockedOut | None:
        """Tell how long an address has to wait; None: few enough attempts from there failed lately."""
        now = self._clock()
        window = self._windows.get(group_of(address))
        if window is None or _is_over(window, now):
            return None
        is_quiet = _is_over(self._overall, now) or self._overall.failures < IN_ALL
        if window.failures >= (FROM_ONE_ADDRESS if is_quiet else 1):
            return LockedOut(max(1, math.ceil(window.since + WINDOW_SECONDS - now)))
        return None

    def failed(self, address: str, given: str) -> None:
        """Count what failed, unless the same failed before from there."""
        now = self._clock()
        window = self._window_of(group_of(address), now)
        hashed = hashlib.sha256(given.encode(errors="surrogatepass")).digest()
        if hashed in window.seen:
            return
        window.seen.add(hashed)
        window.failures += 1
        if _is_over(self._overall, now):
            self._overall = _Window(now)
        self._overall.failures += 1

    def _window_of(self, group: str, now: float) -> _Window:
        window = self._windows.get(group)
        if window is not None and not _is_over(window, now):
            return window
        # They stand in the order in which they began, so the first is the one that is over next.
        self._windows.pop(group, None)
        if len(self._windows) >= ADDRESSES_KEPT:
            del self._windows[next(iter(self._windows))]
        self._windows[group] = _Window(now)
        return self._windows[group]


def group_of(address: str) -> str:
    """Name what one stranger can have at once: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a socket without addresses: all who come by it are one
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found.packed[:8] + bytes(8), 64)))


def _is_over(window: _Window, now: float) -> bool:
    return now >= window.since + WINDOW_SECONDS


REMEMBERED_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 4096


class Known:
    """The tokens that were right in the last hour, by address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], float] = {}
        """When each was last right; the one that was not for the longest time is first."""

    def note(self, token: str, address: str) -> None:
        """Remember that a token was right."""
        key = (group_of(address), token)
        self._seen.pop(key, None)
        if len(self._seen) >= MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = self._clock()

    def among(self, tokens: Iterable[str], address: str) -> list[str]:
        """Find those of some tokens that were right lately from an address."""
        group, since = group_of(address), self._clock() - REMEMBERED_SECONDS
        return [each for each in tokens if self._seen.get((group, each), float("-inf")) > since]
