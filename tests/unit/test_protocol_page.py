"""The specification names everything there is."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from duly import _lua
from duly.message import Stats

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
LOOKED_UP = {"ready", "delayed", "leased", "parked", "dead", "done", "oldest_age", "next_due_in", "paused", "lateness"}
LOOKED_UP |= {"lateness_times", "handling_times", "history"}


@pytest.mark.parametrize("name", _lua.names())
def test_every_script_is_in_the_specification(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", sorted({key for script in _lua.names() for key in _lua.script(script).keys}))
def test_every_key_is_in_the_specification(name: str) -> None:
    wanted = {"waiting*": "`waiting0`", "call": "`call:<stream>`"}.get(name, f"`{name}`")

    assert wanted in PAGE


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Stats)} - LOOKED_UP))
def test_every_counter_is_in_the_specification(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("number", range(1, 13))
def test_every_invariant_is_in_the_specification(number: int) -> None:
    assert re.search(rf"^\| I{number} \|", PAGE, re.MULTILINE)
