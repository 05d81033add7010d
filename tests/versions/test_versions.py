"""The previous version and this one on one server: each goes on with what the other has stored or changed."""

from typing import Final

import pytest

from tests.versions.pair import Pair
from tests.versions.scenarios import SCENARIOS, Scenario
from tests.versions.verbs import CASES, KINDS, play_verb

IN_WORKERS: Final = {
    "beat", "depart", "keep_result", "leave_group", "measure", "occupied", "take_tokens", "tidy", "tidy_topic", "wake",
    "workers",
}  # fmt: skip
"""Scripts that workers run; test_workers.py has workers of both versions."""
AFTER_INTERRUPTS: Final = {"wake_lock"}
"""A script of those who are stopped while they wait for a lock. It leaves a token, as `unlock` does."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("verb", "roles"), CASES)
def test_a_verb_means_the_same_to_both(pair: Pair, queue_name: str, kind: str, verb: str, roles: str) -> None:
    play_verb(pair, kind, verb, roles, queue_name)


@pytest.mark.parametrize("begins", ["old", "new"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_each_version_continues_the_work_of_the_other(
    pair: Pair, queue_name: str, scenario: Scenario, begins: str
) -> None:
    a = getattr(pair, begins)
    scenario(pair, a, pair.other_than(a), queue_name)


@pytest.mark.long
@pytest.mark.slow
def test_every_script_of_both_versions_is_run_here(pair: Pair, queue_name: str) -> None:
    pair.place.forget_scripts()
    for number, scenario in enumerate(SCENARIOS):
        scenario(pair, pair.old, pair.new, f"{queue_name}-{number}-old")
        scenario(pair, pair.new, pair.old, f"{queue_name}-{number}-new")
    for number, (verb, roles) in enumerate(CASES):
        play_verb(pair, "queue", verb, roles, f"{queue_name}-{number}-verb")

    for peer in (pair.old, pair.new):
        hashes = peer.run("scripts()")
        run = {name for name, forms in hashes.items() if pair.place.knows_any(forms)}
        assert set(hashes) - run - IN_WORKERS - AFTER_INTERRUPTS == set()
