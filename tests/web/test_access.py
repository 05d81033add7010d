"""Tokens, roles, sessions and the login throttle, without HTTP."""

from __future__ import annotations

from typing import Any, Final

import pytest

from duly.errors import UsageError
from duly.web import login_throttle
from duly.web.access import ROLES, SESSION_SECONDS, Access, Role
from duly.web.login_throttle import FailureCounter, KnownClients, LockedOut, client_network
from tests.web.conftest import TOKENS

ADMIN: Final = "a-token-for-admins"
VIEWER: Final = "a-token-for-viewers"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> Access:
    return Access(TOKENS, clock=clock, monotonic=clock)


def test_without_tokens_none_is_required() -> None:
    assert Access(None).is_open
    assert not Access("one-token").is_open


def test_a_single_token_has_the_role_admin() -> None:
    assert Access("one-token").authenticate_token("one-token", "192.0.2.1") == "admin"


@pytest.mark.parametrize(("token", "role"), list(TOKENS.items()))
def test_a_token_grants_its_role(access: Access, token: str, role: Role) -> None:
    assert access.authenticate_token(token, "192.0.2.1") == role


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a-token-for-admin",
        "a-token-for-adminss",
        "A-TOKEN-FOR-ADMINS",
        " a-token-for-admins",
        "ä",
        "\ud800",
        "\x00",
    ],
    ids=["empty", "shorter", "longer", "other-case", "space", "not-ascii", "surrogate", "nul"],
)
def test_a_text_that_is_not_exactly_a_token_grants_no_role(access: Access, given: str) -> None:
    assert access.authenticate_token(given, "192.0.2.1") is None


@pytest.mark.parametrize(
    "tokens",
    [
        "",
        "short",
        "with a space",
        "not-ascii-ä",
        "x" * 513,
        {},
        {"a-good-token": "root"},
        {"short": "viewer"},
        {7: "admin"},
        ["a-good-token"],
        5,
    ],
    ids=["empty", "short", "space", "not-ascii", "long", "none", "unknown-role", "short-of-two", "number", "list", "5"],
)
def test_weak_and_unsendable_tokens_are_rejected(tokens: Any) -> None:
    with pytest.raises(UsageError):
        Access(tokens)


def test_a_rejected_token_is_not_part_of_the_error() -> None:
    with pytest.raises(UsageError) as rejected:
        Access("secret!")
    assert "secret!" not in str(rejected.value)


def test_a_session_grants_the_role_of_its_token_until_it_expires(access: Access, clock: Clock) -> None:
    session = access.new_session(VIEWER)
    assert access.authenticate_session([session], "192.0.2.1") == "viewer"
    clock.now += SESSION_SECONDS - 1
    assert access.authenticate_session([session], "192.0.2.1") == "viewer"
    clock.now += 1
    assert access.authenticate_session([session], "192.0.2.1") is None


def test_a_session_does_not_show_its_token(access: Access) -> None:
    assert VIEWER not in access.new_session(VIEWER)


def test_a_session_ends_with_its_token(access: Access, clock: Clock) -> None:
    session = access.new_session(ADMIN)
    assert Access({VIEWER: "viewer"}, clock=clock).authenticate_session([session], "192.0.2.1") is None


def test_a_session_is_valid_in_another_process_with_the_same_token(access: Access, clock: Clock) -> None:
    assert Access(ADMIN, clock=clock).authenticate_session([access.new_session(ADMIN)], "192.0.2.1") == "admin"


def test_a_session_cannot_be_prolonged(access: Access) -> None:
    until, _, signature = access.new_session(ADMIN).partition(".")
    assert access.authenticate_session([f"{int(until) + 1}.{signature}"], "192.0.2.1") is None


@pytest.mark.parametrize(
    "given",
    ["", ".", "1", "9999999999", "9999999999.", ".abc", "x.y", "٣٣٣٣٣٣٣٣٣٣." + "a" * 64, "9" * 5000 + "." + "a" * 64,
     "9999999999." + "a" * 63, "9999999999." + "ä" * 64, "-9999999999." + "a" * 64, "9999999999." + "a" * 64],
    ids=["empty", "dot", "number", "until", "no-signature", "no-until", "words", "other-digits", "huge", "short",
         "not-ascii", "negative", "wrong"],
)  # fmt: skip
def test_an_invalid_session_grants_no_role(access: Access, given: str) -> None:
    assert access.authenticate_session([given], "192.0.2.1") is None


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("needs", ROLES)
def test_a_role_has_the_permissions_of_lower_roles(access: Access, role: Role, needs: Role) -> None:
    may = access.denial_reason(role, needs, changes=True) is None
    assert may == (ROLES.index(role) >= ROLES.index(needs))


def test_without_a_role_everything_is_denied(access: Access) -> None:
    assert access.denial_reason(None, "viewer", changes=False) == "this needs a token: Authorization: Bearer TOKEN"
    assert (
        access.denial_reason(None, "viewer", changes=False, has_token=True)
        == "this token is not known to this dashboard"
    )


def test_read_only_denies_all_changes_and_allows_all_reads() -> None:
    access = Access(TOKENS, read_only=True)
    assert access.denial_reason("admin", "viewer", changes=True) is not None
    assert access.denial_reason("viewer", "viewer", changes=False) is None


def fail(access: Access, address: str, times: int = 1) -> None:
    for number in range(times):
        assert access.authenticate_token(f"a-wrong-token-{number}", address) is None


def test_after_ten_wrong_tokens_an_address_is_locked_out_for_a_minute_even_with_a_valid_new_token(
    access: Access, clock: Clock
) -> None:
    fail(access, "192.0.2.1", 10)
    clock.now += 18.5
    with pytest.raises(LockedOut) as locked:
        access.authenticate_token(ADMIN, "192.0.2.1")
    assert locked.value.seconds == 42
    clock.now += 41.5
    assert access.authenticate_token(ADMIN, "192.0.2.1") == "admin"


def test_nine_wrong_tokens_cause_no_lockout(access: Access) -> None:
    fail(access, "192.0.2.1", 9)
    assert access.authenticate_token(ADMIN, "192.0.2.1") == "admin"


def test_a_valid_token_does_not_reset_the_failures(access: Access) -> None:
    fail(access, "192.0.2.1", 9)
    assert access.authenticate_token(VIEWER, "192.0.2.1") == "viewer"
    assert access.authenticate_token("another-wrong-token", "192.0.2.1") is None
    with pytest.raises(LockedOut):
        access.authenticate_token("one-more-wrong-token", "192.0.2.1")


def test_repeating_the_same_wrong_token_causes_no_lockout(access: Access) -> None:
    for _ in range(100):
        assert access.authenticate_token("a-token-of-yesterday", "192.0.2.1") is None
    fail(access, "192.0.2.1", 8)
    assert access.authenticate_token(ADMIN, "192.0.2.1") == "admin"


def test_a_known_client_is_not_locked_out_by_others_at_its_address(access: Access) -> None:
    assert access.authenticate_token(VIEWER, "192.0.2.1") == "viewer"
    fail(access, "192.0.2.1", 10)
    for number in range(10):
        assert access.authenticate_session([forged(number)], "192.0.2.1") is None
    assert access.authenticate_token(VIEWER, "192.0.2.1") == "viewer"
    assert access.authenticate_session([access.new_session(VIEWER)], "192.0.2.1") == "viewer"
    for token in (ADMIN, "another-wrong-token"):
        with pytest.raises(LockedOut):
            access.authenticate_token(token, "192.0.2.1")
        with pytest.raises(LockedOut):
            access.authenticate_session([access.new_session(token)], "192.0.2.1")


def test_a_known_client_with_a_session_is_not_locked_out_either(access: Access) -> None:
    assert access.authenticate_session([access.new_session(ADMIN)], "192.0.2.1") == "admin"
    for number in range(10):
        assert access.authenticate_session([forged(number)], "192.0.2.1") is None
    assert access.authenticate_session([access.new_session(ADMIN)], "192.0.2.1") == "admin"


def test_a_token_is_known_at_an_address_for_an_hour_after_it_was_valid(clock: Clock) -> None:
    seen = KnownClients(clock)
    seen.remember(ADMIN, "2001:db8::1")
    clock.now += login_throttle.REMEMBERED_SECONDS - 1
    assert seen.known_tokens([ADMIN, VIEWER], "2001:db8::2") == [ADMIN]
    assert seen.known_tokens([ADMIN, VIEWER], "192.0.2.1") == []
    clock.now += 1
    assert seen.known_tokens([ADMIN, VIEWER], "2001:db8::1") == []


def test_known_clients_are_bounded_and_the_oldest_is_evicted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_throttle, "MAX_REMEMBERED", 2)
    seen = KnownClients(clock)
    for last in (1, 2, 1, 3):
        seen.remember(ADMIN, f"192.0.2.{last}")
    assert [last for last in (1, 2, 3) if seen.known_tokens([ADMIN], f"192.0.2.{last}")] == [1, 3]


def test_a_valid_token_is_accepted_despite_failures_at_other_addresses(access: Access) -> None:
    for number in range(login_throttle.MAX_TOTAL * 2):
        fail(access, f"198.51.{number}.1")
    assert access.authenticate_token(ADMIN, "192.0.2.1") == "admin"


def test_after_many_failures_in_total_an_address_has_one_attempt(access: Access, clock: Clock) -> None:
    for number in range(login_throttle.MAX_TOTAL):
        fail(access, f"198.51.{number}.1")
    fail(access, "192.0.2.1")
    with pytest.raises(LockedOut):
        access.authenticate_token("a-wrong-token", "192.0.2.1")
    clock.now += login_throttle.WINDOW_SECONDS
    fail(access, "192.0.2.1", 10)


def test_addresses_of_one_network_share_a_limit() -> None:
    assert (
        client_network("2001:db8:1:2::1") == client_network("2001:db8:1:2:ffff::9") != client_network("2001:db8:1:3::1")
    )
    assert client_network("192.0.2.1") == client_network("::ffff:192.0.2.1") != client_network("192.0.2.2")
    assert client_network("") == ""


def test_failure_windows_are_bounded_and_the_oldest_is_evicted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_throttle, "MAX_ADDRESSES", 3)
    monkeypatch.setattr(login_throttle, "MAX_PER_ADDRESS", 1)
    counted = FailureCounter(clock)
    for last in range(1, 6):
        counted.record_failure(f"192.0.2.{last}", "a-wrong-token")
    assert len(counted._windows) == 3
    assert counted.lockout_for("192.0.2.2") is None
    assert counted.lockout_for("192.0.2.3") is not None


def forged(number: int) -> str:
    return f"9999999999.{number:064x}"


def test_forged_sessions_are_counted(access: Access) -> None:
    for number in range(10):
        assert access.authenticate_session([forged(number)], "192.0.2.1") is None
    with pytest.raises(LockedOut):
        access.authenticate_session([access.new_session(ADMIN)], "192.0.2.1")
    assert access.authenticate_session([access.new_session(ADMIN)], "192.0.2.2") == "admin"


def test_repeating_the_same_wrong_session_causes_no_lockout(access: Access) -> None:
    for _ in range(100):
        assert access.authenticate_session([forged(1), forged(2)], "192.0.2.1") is None
    assert access.authenticate_session([forged(1), access.new_session(ADMIN)], "192.0.2.1") == "admin"


def test_expired_sessions_are_not_counted(access: Access, clock: Clock) -> None:
    over = []
    for _ in range(20):
        over.append(access.new_session(ADMIN))
        clock.now += 1
    clock.now += SESSION_SECONDS
    for session in over:
        assert access.authenticate_session([session], "192.0.2.1") is None
    assert access.authenticate_session([access.new_session(ADMIN)], "192.0.2.1") == "admin"


def test_wrong_tokens_do_not_end_sessions(access: Access) -> None:
    fail(access, "192.0.2.1", 10)
    assert access.authenticate_session([access.new_session(ADMIN)], "192.0.2.1") == "admin"
