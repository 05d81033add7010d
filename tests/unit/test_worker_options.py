"""Options of a worker: accepted in several forms, checked when made, passed to other processes."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from duly.errors import InvalidName, UsageError
from duly.worker.assignment import Assignment
from duly.worker.worker_options import WorkerOptions


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        (None, None),
        ("high:3,low:1", {"high": 3, "low": 1}),
        ("a,b", {"a": 1, "b": 1}),
        (" a : 2 , b ", {"a": 2, "b": 1}),
        ("a:1000", {"a": 1000}),
        (["b", "a"], {"b": 1, "a": 1}),
        (("a",), {"a": 1}),
        ({"a": 5, "b": 1}, {"a": 5, "b": 1}),
    ],
)
def test_queues_may_be_given_in_several_forms(given: Any, weights: Mapping[str, int] | None) -> None:
    options = WorkerOptions(given)

    assert options.queues == weights
    assert options.queues is None or weights is None or list(options.queues) == list(weights)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        (":3", "a name is missing"),
        ("a:", "is not a weight from 1 to 1000"),
        ("a:x", "'x' is not a weight"),
        ("a:-1", "'-1' is not a weight"),
        ("a:1.5", "'1.5' is not a weight"),
        ("a:1:2", "'1:2' is not a weight"),
        ("a:٣", "is not a weight"),
        pytest.param("a:" + "9" * 5000, "is not a weight", id="huge"),
        ("a:0", "the weight of queue 'a' must be from 1 to 1000"),
        ("a:1001", "the weight of queue 'a' must be from 1 to 1000"),
        ("a,b,a:2", "queue 'a' is named twice"),
        (["a", "a"], "queue 'a' is named twice"),
        ("a b", "'a b' is not a queue name"),
        (["a:3"], "'a:3' is not a queue name"),
        ([1], "1 is not a queue name"),
        ({"a": True}, "must be a whole number"),
        ({"a": 1.0}, "must be a whole number"),
        ({"a": 0}, "must be from 1 to 1000"),
        ([], "at least one queue"),
        ({}, "at least one queue"),
        (b"a", "or given as a list of names"),
        (7, "or given as a list of names"),
    ],
)
def test_queues_that_cannot_be_meant_are_refused(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        WorkerOptions(given)


def test_a_bad_name_is_the_error_of_names() -> None:
    with pytest.raises(InvalidName):
        WorkerOptions("-a")


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "3", 100_001])
def test_a_concurrency_that_cannot_be_meant_is_refused(concurrency: Any) -> None:
    with pytest.raises(UsageError, match="concurrency must be"):
        WorkerOptions(concurrency=concurrency)


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "30", None, True, 1e12])
def test_a_grace_that_cannot_be_meant_is_refused(grace: Any) -> None:
    with pytest.raises(UsageError, match="grace must be"):
        WorkerOptions(grace=grace)


def test_grace_is_kept_in_seconds() -> None:
    assert WorkerOptions().grace == 30.0
    assert WorkerOptions(grace=0).grace == 0.0
    assert WorkerOptions(grace=timedelta(minutes=1)).grace == 60.0


def test_options_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        WorkerOptions().grace = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("options", [WorkerOptions(), WorkerOptions("b:3,a", 7, 2.5)])
def test_options_survive_the_way_to_another_process(options: WorkerOptions) -> None:
    again = WorkerOptions.from_json(options.to_json())

    assert again == options
    assert list(again.queues or ()) == list(options.queues or ())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "7", '{"queues": null, "concurrency": null}'])
def test_a_text_that_has_no_options_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not the options of a worker"):
        WorkerOptions.from_json(text)


def test_an_assignment_survives_the_way_to_another_process() -> None:
    assignment = Assignment("shop.jobs:app", WorkerOptions("a:2", 3, 4), "json", "debug")

    assert Assignment.from_json(assignment.to_json()) == assignment


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"target": "a", "log": ["text"], "options": {}}'])
def test_a_text_that_is_not_an_assignment_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not the arguments of a child of `duly worker`"):
        Assignment.from_json(text)
