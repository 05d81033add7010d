"""An audit describes each fault in words and numbers."""

from tests.client.repair.judge import Healthy


def test_accounts_that_do_not_add_up_are_explained_with_their_numbers(healthy: Healthy) -> None:
    healthy.run("HINCRBY", "meta", "sent", 1000)

    (line,) = healthy.inbox.audit().explanation

    assert line.startswith("accounts: 1,000 more came in than can be accounted for. sent 1,019 + corrected 0 is 1,019")
    assert "acked 2 + dead 1 + live 16 is 19" in line


def test_a_counter_that_is_wrong_is_named_with_both_values(healthy: Healthy) -> None:
    real = healthy.inbox.stats().dead_bytes
    healthy.run("HSET", "meta", "dead_bytes", 7)

    (fault,) = healthy.inbox.audit().faults

    assert (fault.id, fault.what) == ("dead_bytes", "counts wrong bytes")
    assert fault.detail == f"it counts 7, and {real} are stored"


def test_an_audit_is_readable_as_text(healthy: Healthy) -> None:
    right = str(healthy.inbox.audit())
    healthy.run("ZREM", "leased", "held")
    wrong = str(healthy.inbox.audit())

    assert right.startswith(f"{healthy.inbox.label}: every message is accounted for, ")
    assert wrong.splitlines()[1] == (
        "held: body without a place. The message is stored, but no consumer would ever find it. "
        "It waits again until its due time; a dead or finished message returns to that state."
    )
