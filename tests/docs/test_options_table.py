"""The tables of the page of options and the texts of help() match the code."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest

import duly
from duly.options import QueueKeywords, TopicKeywords

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/options.md"
SECTION = re.compile(r"^## Of .*?: `([\w.@]+)\(.*?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| `(.*?)` \| [^ |]", re.MULTILINE)
DOCUMENTED = (
    duly.QueueOptions, duly.TopicOptions, duly.Send, duly.Retry, duly.Repeat, duly.Keep, duly.Batch,
)  # fmt: skip


def of_call(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters that have defaults, as they are declared."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: each.default for each in parameters if each.default is not each.empty and each.name != "function"
    }


def of_value(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


OPTIONS: Mapping[str, dict[str, Any]] = {
    "app.queue": of_value(duly.QueueOptions()),
    "queue.send": of_call(duly.Queue.send),
    "duly.Retry": of_value(duly.Retry()),
    "duly.Keep": of_value(duly.Keep()),
    "queue.receive": of_call(duly.Queue.receive),
    "@queue.handler": of_call(duly.Queue.handler),
    "app.topic": of_value(duly.TopicOptions()),
}


def tables() -> dict[str, dict[str, str]]:
    found = SECTION.findall(PAGE.read_text())
    return {name: {row[0]: row[1] for row in ROW.findall(text)} for name, text in found}


def test_all_tables_are_there() -> None:
    assert list(tables()) == list(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_table_has_the_options_of_the_code_with_their_defaults(name: str) -> None:
    listed = {option: eval(default, {"duly": duly}) for option, default in tables()[name].items()}

    assert listed == OPTIONS[name]


@pytest.mark.parametrize(
    ("options", "keywords", "not_built"),
    [(duly.QueueOptions, QueueKeywords, {"shards": Literal[1]}), (duly.TopicOptions, TopicKeywords, {})],
)
def test_editors_and_type_checkers_know_the_same_options(
    options: type, keywords: type, not_built: dict[str, object]
) -> None:
    declared = {each.name: each.type for each in dataclasses.fields(options)}
    del declared["type"]  # a separate parameter: it decides the type of a queue for type checkers

    # None: that of the app
    assert get_type_hints(keywords) == {**declared, "max_message_bytes": int | None, **not_built}


@pytest.mark.parametrize("colour", [duly.Duly, duly.AsyncDuly])
def test_an_app_takes_the_options_that_are_listed(colour: type[duly.Duly | duly.AsyncDuly]) -> None:
    app = colour("memory://")

    assert app.queue("orders", **of_value(duly.QueueOptions())).options == duly.QueueOptions()
    assert app.topic("events", **of_value(duly.TopicOptions())).options == duly.TopicOptions()


@pytest.mark.parametrize("kind", DOCUMENTED, ids=lambda kind: kind.__name__)
def test_help_explains_each_option_once(kind: type) -> None:
    said = re.findall(r"^- `(\w+)`: (.*?)(?=^- |\Z)", inspect.getdoc(kind) or "", re.MULTILINE | re.DOTALL)

    assert [name for name, _ in said] == [each.name for each in dataclasses.fields(kind)]
    assert all(text.strip() for _, text in said)
