"""Every verb, when one version settles what the other one has stored or claimed, and goes on with what is left."""

from typing import Final

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
_ROUNDS: Final = 4
"""How often time passes and all that is due is finished, until nothing can be left: what repeats comes twice more."""

CASES: Final = [
    (verb, roles) for verb in VERBS for roles in ROLES if verb in OVER_HTTP or roles.endswith("claims and settles")
]


def play_verb(pair: Pair, kind: str, verb: str, roles: str, name: str) -> None:
    """Store messages of all forms, settle what is due in one way, finish the rest and delete it. Both agree."""
    store, claim, settle = (getattr(pair, who) for who in ROLES[roles].split())
    pair.open(kind, name, attempts=1 if verb == "last retry" else 3)
    forms = set(store.run("store_all_forms()"))
    pair.agree()

    settled = _claim_and_settle(pair, claim, settle, verb)
    pair.agree()
    finisher = pair.other_than(settle)
    finished = [body for _ in range(_ROUNDS) for body in _after_a_while(pair, finisher)]

    over = settled - {"again"} if verb in _FINISHING else set()
    assert {body.removesuffix("!") for body in finished} == forms - over
    left = pair.agree()["stats"]
    assert [left[state] for state in ("ready", "delayed", "leased", "parked", "dead")] == [0, 0, 0, 0, 0]
    store.run("[each.delete() for each in (box, other, topic)]")
    for stored in (name, f"{name}-other", f"@{name}"):
        assert pair.own_keys(stored) == []


def _claim_and_settle(pair: Pair, claim: Peer, settle: Peer, verb: str) -> set[str]:
    """Give the bodies that were settled."""
    if claim is not settle:
        receipts = claim.run("receive_over_http()")
        leased = pair.agree()["leased"]
        assert settle.run("settle_over_http(verb, receipts)", verb=verb, receipts=receipts) == len(leased)
        return {message["body"].strip() for message in leased}
    claimed = {delivery["body"] for delivery in claim.run("claim()")}
    pair.agree()
    if verb != "run out":
        settle.run("settle(verb)", verb=verb)
    return claimed


def _after_a_while(pair: Pair, peer: Peer) -> list[str]:
    pair.place.advance(3600)
    return list(peer.run("finish_all()"))
