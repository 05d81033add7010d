"""Who may do what: tokens and the roles they stand for, and the cookie that a browser gets for one. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, get_args

from duly.errors import UsageError
from duly.web.login_throttle import FailureCounter, KnownClients

Role = Literal["viewer", "operator", "admin"]
"""viewer: looks, and sees no payloads. operator: sees them, sends, receives and steers. admin: also destroys."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
SESSION_SECONDS: Final = 12 * 3600
UNKNOWN_CREDENTIAL: Final = "this is not a token of this dashboard"
_MIN_TOKEN: Final = 8
_MAX_TOKEN: Final = 512
_SESSION: Final = re.compile(r"(?P<until>[0-9]{1,12})\.(?P<signature>[0-9a-f]{64})")


def sees_payloads(role: Role | None) -> bool:
    """Tell whether bodies, headers, results, errors and reasons are shown to a role."""
    return role is not None and ROLES.index(role) >= ROLES.index("operator")


class Access:
    """The tokens of a dashboard. Without any, whoever reaches it is its admin."""

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
        # Apart, so that whoever guesses tokens does not throw out those who are in, from behind the same address.
        self._wrong_tokens = FailureCounter(monotonic)
        self._wrong_sessions = FailureCounter(monotonic)
        self._known_clients = KnownClients(monotonic)

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked for a token."""
        return not self._roles

    def authenticate_token(self, token: str, address: str) -> Role | None:
        """Tell what a token stands for that somebody at an address brings; None: nothing, and that is counted.

        Raises LockedOut when too many wrong ones came from there, unless this one was right there lately. A right one
        does not clear the count: whoever has one role may not guess for another without end.
        """
        return self._authenticate(token, _equals, self._wrong_tokens, address)

    def authenticate_session(self, sessions: Iterable[str], address: str) -> Role | None:
        """Tell what the first session that holds stands for, of those that a browser at an address brings.

        A session can be made from a guess at a token, so wrong ones are counted too. One that is over tells nobody
        anything, and neither does the same wrong one again, which a browser sends until somebody logs in.
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
        """Make what a browser keeps instead of a token: it says until when it holds, and cannot be made without it."""
        until = int(self._clock()) + SESSION_SECONDS
        return f"{until}.{_signature(token, until)}"

    def _is_unexpired(self, session: str) -> bool:
        shape = _SESSION.fullmatch(session)
        return shape is not None and int(shape["until"]) > self._clock()

    def denial_reason(self, role: Role | None, needs: Role, *, changes: bool, has_token: bool = False) -> str | None:
        """Say why somebody may not do something; None: he may."""
        if role is None:
            return UNKNOWN_CREDENTIAL if has_token else "a token is needed: Authorization: Bearer TOKEN"
        if ROLES.index(role) < ROLES.index(needs):
            return f"this needs the role {needs!r}, and the token's is {role!r}"
        if changes and self.read_only:
            return "this dashboard is read-only: start it without --read-only to change something"
        return None


def _matching_token(credential: str, matches: Callable[[str, str], bool], tokens: Iterable[str]) -> str | None:
    """Find the token that something is of. All are compared, each in the same time: how long it took tells nothing."""
    found: str | None = None
    for token in tokens:
        if matches(token, credential):
            found = token
    return found


def _signs(token: str, credential: str) -> bool:
    until, _, signature = credential.partition(".")
    return _equals(_signature(token, int(until)), signature)


def _equals(known: str, credential: str) -> bool:
    # Of hashes, for a comparison of texts themselves would tell by its time how long the known one is.
    hashes = [hashlib.sha256(each.encode(errors="surrogatepass")).digest() for each in (known, credential)]
    return hmac.compare_digest(*hashes)


def _signature(token: str, until: int) -> str:
    return hmac.new(token.encode(), f"duly session until {until}".encode(), hashlib.sha256).hexdigest()


def checked_tokens(tokens: str | Mapping[str, Role] | None) -> dict[str, Role]:
    """Return tokens with their roles: a single one is an admin's. Refuses what could be guessed, or not be sent."""
    if tokens is None:
        return {}
    roles: dict[str, Role] = {tokens: "admin"} if isinstance(tokens, str) else dict(tokens)
    if not roles:
        raise UsageError("tokens is empty: nobody could come in. None asks nobody for one")
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
