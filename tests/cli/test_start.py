"""The start of a command: it imports its own module, since all of them would take longer than most commands."""

import json
import subprocess
import sys

import pytest

from duly.cli.app import COMMANDS

PROGRAM = """
import json, sys
from duly.cli.app import command_line
command_line({word!r})
print(json.dumps([name for name in sys.modules if name.startswith("duly.")]))
"""
LARGE = {"duly.bench", "duly.doctor", "duly.web", "duly.worker", "duly.demo"}
"""Packages that only their own commands need."""
NEEDS = {
    "bench": {"duly.bench", "duly.worker"},
    "call": {"duly.worker"},
    "dashboard": {"duly.web"},
    "demo": {"duly.demo"},
    "doctor": {"duly.doctor"},
    "worker": {"duly.worker"},
}


def imported(word: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(word=word)], capture_output=True, text=True, check=True
    )
    return set(json.loads(found.stdout))


@pytest.mark.parametrize("word", ["--version", "queues", "send", "list", "dead", "doctor", "worker"])
def test_a_command_imports_only_the_packages_that_it_needs(word: str) -> None:
    assert imported(word) & LARGE <= NEEDS.get(word, set())


def test_help_imports_all_commands() -> None:
    assert {f"duly.cli.{module}" for module, *_ in COMMANDS.values()} <= imported("--help")
