"""Tokens, the roles they grant, and the sessions that browsers get for them. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, get_args

from duly.errors import UsageError
from duly.web.login_throttle import FailureCounter, KnownClients
from duly.web.one_time_codes import OneTimeCodes

Role = Literal["viewer", "operator", "admin"]
"""viewer: reads without payloads. operator: also reads payloads, sends, receives and controls. admin: also purges."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
SESSION_SECONDS: Final = 12 * 3600
UNKNOWN_CREDENTIAL: Final = "this token is not known to this dashboard"
SPENT_CODE: Final = "this link has been used or has expired: sign in with the token"
_MIN_TOKEN: Final = 8
_MAX_TOKEN: Final = 512
_SESSION: Final = re.compile(r"(?P<until>[0-9]{1,12})\.(?P<signature>[0-9a-f]{64})")


def sees_payloads(role: Role | None) -> bool:
    """Return whether a role may see bodies, headers, results, errors and reasons."""
    return role is not None and ROLES.index(role) >= ROLES.index("operator")


class Access:
    """The tokens of a dashboard. Without tokens, every client is an admin."""

    def __init__(
        self,
        tokens: str | Mapping[str, Role] | None,
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roles = checked_tokens(tokens)
        self.read_only = read_only
        self._clock = clock
        # Counted separately, so that a client that guesses tokens does not end the sessions behind the same address.
        self._wrong_tokens = FailureCounter(monotonic)
        self._wrong_sessions = FailureCounter(monotonic)
        self._known_clients = KnownClients(monotonic)
        self.codes: OneTimeCodes = OneTimeCodes(monotonic)

    @property
    def is_open(self) -> bool:
        """Whether no token is required."""
        return not self._roles

    def authenticate_token(self, token: str, address: str) -> Role | None:
        """Return the role of a token that a client at `address` sent. None: it is wrong, and the failure is counted.

        Raises LockedOut after too many failures from that address, unless this token was valid there recently. A valid
        token does not reset the count, so the holder of one role cannot guess the tokens of another without limit.
        """
        return self._authenticate(token, _equals, self._wrong_tokens, address)

    def authenticate_session(self, sessions: Iterable[str], address: str) -> Role | None:
        """Return the role of the first valid session that a browser at `address` sent.

        A session can be forged from a guessed token, so failures are counted. An expired session and a repeated wrong
        one reveal nothing and are not counted: browsers send them until the user logs in.
        """
        for session in filter(self._is_unexpired, sessions):
            role = self._authenticate(session, _signs, self._wrong_sessions, address)
            if role is not None:
                return role
        return None

    def _authenticate(
        self, credential: str, matches: Callable[[str, str], bool], failures: FailureCounter, address: str
    ) -> Role | None:
        lockout = failures.lockout_for(address)
        candidates = self._roles if lockout is None else self._known_clients.known_tokens(self._roles, address)
        token = _matching_token(credential, matches, candidates)
        if token is not None:
            self._known_clients.remember(token, address)
            return self._roles[token]
        if lockout is not None:
            raise lockout
        failures.record_failure(address, credential)
        return None

    def new_session(self, token: str) -> str:
        """Create a session for a browser: its expiry time, signed with the token."""
        until = int(self._clock()) + SESSION_SECONDS
        return f"{until}.{_signature(token, until)}"

    def _is_unexpired(self, session: str) -> bool:
        shape = _SESSION.fullmatch(session)
        return shape is not None and int(shape["until"]) > self._clock()

    def denial_reason(self, role: Role | None, needs: Role, *, changes: bool, has_token: bool = False) -> str | None:
        """Return the reason for a denial, or None."""
        if role is None:
            return UNKNOWN_CREDENTIAL if has_token else "this needs a token: Authorization: Bearer TOKEN"
        if ROLES.index(role) < ROLES.index(needs):
            return f"this needs the role {needs!r}, but the token has the role {role!r}"
        if changes and self.read_only:
            return "this dashboard is read-only: start it without --read-only to make changes"
        return None


def _matching_token(credential: str, matches: Callable[[str, str], bool], tokens: Iterable[str]) -> str | None:
    """Find the token that matches. All are compared in constant time, so that the duration reveals nothing."""
    found: str | None = None
    for token in tokens:
        if matches(token, credential):
            found = token
    return found


def _signs(token: str, credential: str) -> bool:
    until, _, signature = credential.partition(".")
    return _equals(_signature(token, int(until)), signature)


def _equals(known: str, credential: str) -> bool:
    # Hashes have the same length. Comparing the texts would reveal the length of the token by its duration.
    hashes = [hashlib.sha256(each.encode(errors="surrogatepass")).digest() for each in (known, credential)]
    return hmac.compare_digest(*hashes)


def _signature(token: str, until: int) -> str:
    return hmac.new(token.encode(), f"duly session until {until}".encode(), hashlib.sha256).hexdigest()


def checked_tokens(tokens: str | Mapping[str, Role] | None) -> dict[str, Role]:
    """Return tokens with their roles. A single token has the role admin. Rejects weak tokens and unsendable ones."""
    if tokens is None:
        return {}
    if not isinstance(tokens, str | Mapping):  # its repr has the tokens
        raise UsageError(
            f"tokens must be one token, or a dict of tokens and their roles, not a {type(tokens).__name__}"
        )
    roles: dict[str, Role] = {tokens: "admin"} if isinstance(tokens, str) else dict(tokens)
    if not roles:
        raise UsageError("tokens is empty, so no client could log in: pass None to require no token")
    for token, role in roles.items():
        if role not in ROLES:
            raise UsageError(f"{role!r} is not a role: use one of {', '.join(ROLES)}")
        if not _is_usable(token):
            raise UsageError(
                f"a token of the role {role!r} cannot be used: {_MIN_TOKEN} to {_MAX_TOKEN} printable ASCII "
                "characters without spaces, like those of `python -c 'import secrets; print(secrets.token_urlsafe())'`"
            )
    return roles


def _is_usable(credential: object) -> bool:
    is_sendable = (
        isinstance(credential, str) and credential.isascii() and credential.isprintable() and " " not in credential
    )
    return is_sendable and _MIN_TOKEN <= len(str(credential)) <= _MAX_TOKEN
