"""Outages of a node: when claims begin again, and when a claim is late."""

import pytest

from duly._core.outages import ClaimDeadlines, Outage

SECOND = 1_000_000


@pytest.mark.parametrize(("seconds", "waits"), [(0.5, 0.0), (1.5, 1.5)])
def test_after_a_long_outage_claims_wait_for_renewals(seconds: float, waits: float) -> None:
    outage = Outage()
    outage.begin(100.0)
    outage.end(100.0 + seconds)

    assert max(outage.claims_at - (100.0 + seconds), 0.0) == pytest.approx(waits)


@pytest.mark.parametrize(("seconds", "waits"), [(0.5, 0.0), (3.0, 1.5)])
def test_after_a_claim_that_took_long_the_next_one_waits_for_renewals(seconds: float, waits: float) -> None:
    outage = Outage()
    outage.note_delay(100.0, 100.0 + seconds)

    assert max(outage.claims_at - (100.0 + seconds), 0.0) == pytest.approx(waits)


def test_a_claim_is_never_late_while_the_clock_of_the_server_is_unknown() -> None:
    assert ClaimDeadlines().late_after(100.0) == -1


def test_a_claim_is_late_a_moment_after_it_was_sent() -> None:
    deadlines = ClaimDeadlines()
    deadlines.note(5000 * SECOND, asked_at=100.0)

    assert 5060 * SECOND < deadlines.late_after(160.0) <= 5061 * SECOND


def test_a_slow_reply_makes_no_claim_late() -> None:
    """The server carried the call out at any time between question and reply. The estimate is the latest clock."""
    deadlines = ClaimDeadlines()
    deadlines.note(5003 * SECOND, asked_at=100.0)  # it stood still for 3 s

    assert deadlines.late_after(103.0) > 5006 * SECOND
