"""Every layer has each verb of the table, and agrees with the table."""

from pathlib import Path
from typing import Final

import pytest

import duly
from duly import _lua, outcomes
from duly._core.call import Call
from duly._core.outcome_rules import decision_of_error, decision_of_return
from duly._core.rights import roles_of
from duly._core.verbs import MOVES, VERBS
from duly._core.views import NOTHING_COUNTED
from duly.acl.roles import CONSUMER, OBSERVER, PRODUCER
from duly.memory import commits, engine
from duly.web.api.catalog import OPERATIONS

PAGE: Final = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
SCRIPTS: Final = [(verb, script) for verb, row in VERBS.items() for script in row.scripts]
OUTCOMES: Final = [outcomes.Defer(1), outcomes.RetryIn(1), outcomes.Reject("no"), outcomes.Recycle(1)]

each_verb = pytest.mark.parametrize("verb", VERBS)
each_script = pytest.mark.parametrize(("verb", "script"), SCRIPTS)


@each_verb
@pytest.mark.parametrize("delivery", [duly.Delivery, duly.AsyncDelivery])
def test_a_delivery_has_each_verb(delivery: type, verb: str) -> None:
    assert callable(getattr(delivery, verb))


@each_verb
def test_the_glossary_of_the_protocol_has_each_verb(verb: str) -> None:
    assert f"\n| {verb} |" in PAGE or f"`{verb}`" in PAGE


@each_verb
def test_the_http_api_has_each_verb_but_commit(verb: str) -> None:
    assert (verb in {each.name for each in OPERATIONS}) == (verb != "commit")


@each_verb
def test_a_verb_that_the_server_refuses_is_for_consumers(verb: str) -> None:
    assert roles_of(f"{verb} on queue 'orders'") == [VERBS[verb].role, "admin"]


@each_verb
def test_the_moves_of_a_verb_begin_at_a_lease(verb: str) -> None:
    assert {to for state, name, to in MOVES if (state, name) == ("leased", verb)} == set(VERBS[verb].to)


@each_verb
def test_stats_has_the_counter_of_a_verb(verb: str) -> None:
    assert not VERBS[verb].counter or hasattr(NOTHING_COUNTED, VERBS[verb].counter)


@each_script
def test_a_consumer_may_run_each_script_of_a_verb_and_others_may_not(verb: str, script: str) -> None:
    assert CONSUMER.runs(script, "queue")
    assert not PRODUCER.runs(script, "queue")
    assert not OBSERVER.runs(script, "queue")


@each_script
def test_errors_name_the_verb_and_not_the_script(verb: str, script: str) -> None:
    assert Call.titled(script, "queue 'orders'") == f"{verb} on queue 'orders'"


@each_script
def test_the_memory_engine_has_each_script_of_a_verb(verb: str, script: str) -> None:
    assert script in engine.TRANSITIONS or script in commits.TRANSITIONS


@each_script
def test_each_script_of_a_verb_takes_a_fence(verb: str, script: str) -> None:
    text = (Path(_lua.__file__).parent / f"{script}.lua").read_text()
    assert "fence" in text[: text.index("]]")]


@each_verb
def test_the_first_script_of_a_verb_raises_its_counter(verb: str) -> None:
    row = VERBS[verb]
    if row.counter:
        assert f"'{row.counter}'" in _lua.script(row.scripts[0]).text


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
def test_an_outcome_has_the_verb_of_the_table(outcome: object) -> None:
    (verb,) = (name for name, row in VERBS.items() if row.outcome is type(outcome))
    assert decision_of_return(outcome).verb == verb
    if isinstance(outcome, outcomes.Outcome):
        assert decision_of_error(outcome).verb == verb


def test_every_outcome_has_a_verb() -> None:
    known = {row.outcome for row in VERBS.values()}
    assert {*outcomes.Outcome.__subclasses__(), outcomes.Recycle} - {None} <= known
