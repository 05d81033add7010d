"""Codes that log in one browser, once and soon, in place of a token. Pure."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

LIFE_SECONDS: Final = 300
PREFIX: Final = "once-"
_MAX_CODES: Final = 16
"""The oldest code is dropped for a new one beyond this number."""


class OneTimeCodes:
    """The codes that were issued and not used yet. They are kept in memory only, as hashes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[bytes, tuple[str, float]] = {}

    def issue(self, token: str) -> str:
        """Create a code that stands for a token until it is used or five minutes have passed."""
        code = PREFIX + secrets.token_urlsafe(32)
        self._codes[_hash(code)] = (token, self._clock() + LIFE_SECONDS)
        while len(self._codes) > _MAX_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def token_of(self, code: str) -> str | None:
        """Return the token of a code, which stays valid. None: it is unknown, used or expired."""
        given, found = _hash(code), None
        for each, entry in self._codes.items():  # all are compared, so that the duration reveals nothing
            if hmac.compare_digest(each, given):
                found = entry
        if found is None:
            return None
        token, until = found
        return token if self._clock() < until else None

    def spend(self, code: str) -> None:
        """Forget a code."""
        self._codes.pop(_hash(code), None)


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="surrogatepass")).digest()
