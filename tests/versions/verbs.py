"""Every verb: one version settles a message that the other one has stored or claimed, and continues with it."""

from typing import Any, Final

from tests.versions.pair import Pair, Peer

KINDS: Final = ("queue", "keeping queue", "group", "freeing group")
ROLES: Final = {
    "old stores, new claims and settles": "old new new",
    "new stores, old claims and settles": "new old old",
    "old stores and claims, new settles": "old old new",
    "new stores and claims, old settles": "new new old",
}
OVER_HTTP: Final = ("ack", "retry", "defer", "recycle", "reject", "release", "extend")
"""Verbs of a receipt, with which a process settles what another one has claimed."""
VERBS: Final = (*OVER_HTTP, "last retry", "recycle with another body", "commit", "run out")
_FINISHING: Final = ("ack", "commit")
_COUNTED: Final = {
    "retry": {"failures": 1, "attempt": 2},
    "defer": {"defers": 1, "attempt": 1},
    "recycle": {"cycles": 1, "deliveries": 1},
    "recycle with another body": {"cycles": 1, "deliveries": 1},
    "reject": {"redrives": 1, "attempt": 1},
    "release": {"attempt": 1},
    "extend": {"crashes": 1, "attempt": 2},
    "run out": {"crashes": 1, "attempt": 2},
}
"""The effect of a verb on the next delivery. The time that passes is longer than a lease that was extended."""
_ROUNDS: Final = 4
"""How often time passes and all that is due is finished, until nothing can be left: what repeats comes twice more."""

CASES: Final = [
    (verb, roles) for verb in VERBS for roles in ROLES if verb in OVER_HTTP or roles.endswith("claims and settles")
]


def play_verb(pair: Pair, kind: str, verb: str, roles: str, name: str) -> None:
    """Store messages of all forms, settle the due ones in one way, ack the rest and delete it. Both agree."""
    store, claim, settle = (getattr(pair, who) for who in ROLES[roles].split())
    pair.open(kind, name, attempts=1 if verb == "last retry" else 3)
    forms = set(store.run("store_all_forms()"))
    pair.agree()

    settled = _claim_and_settle(pair, claim, settle, verb)
    pair.agree()
    finisher = pair.other_than(settle)
    finished = [delivery for _ in range(_ROUNDS) for delivery in _after_a_while(pair, finisher)]

    over = settled - {"again"} if verb in _FINISHING else set()
    next_of = {delivery["body"].removesuffix("!"): delivery for delivery in reversed(finished)}
    assert set(next_of) == forms - over
    for body in settled - over:
        counted = {name: next_of[body][name] for name in _COUNTED.get(verb, {})}
        assert (body, counted) == (body, _COUNTED.get(verb, {}))
    left = pair.agree()["stats"]
    assert [left[state] for state in ("ready", "delayed", "leased", "parked", "dead")] == [0, 0, 0, 0, 0]
    store.run("[each.delete() for each in (box, other, topic)]")
    for stored in (name, f"{name}-other", f"@{name}"):
        assert pair.own_keys(stored) == []


def _claim_and_settle(pair: Pair, claim: Peer, settle: Peer, verb: str) -> set[str]:
    """Return the bodies that were settled."""
    if claim is not settle:
        claim.run("claim(5)")
        claim.run("settle('release')")  # so that some have counts when they are settled
        receipts = claim.run("receive_over_http()")
        leased = pair.agree()["leased"]
        assert settle.run("settle_over_http(verb, receipts)", verb=verb, receipts=receipts) == len(leased)
        return {message["body"].strip() for message in leased}
    claimed = claim.run("claim()")
    leased = {message["id"]: message for message in pair.agree()["leased"]}
    for delivery in claimed:
        same = delivery.keys() & leased[delivery["id"]].keys() - {"body"}
        assert {name: delivery[name] for name in same} == {name: leased[delivery["id"]][name] for name in same}
    if verb != "run out":
        settle.run("settle(verb)", verb=verb)
    return {delivery["body"] for delivery in claimed}


def _after_a_while(pair: Pair, peer: Peer) -> list[dict[str, Any]]:
    pair.place.advance(3600)
    return list(peer.run("finish_all()"))
