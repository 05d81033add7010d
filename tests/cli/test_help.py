"""The help of each command."""

import re

import pytest

from tests.cli.commands import ALL
from tests.cli.conftest import Call
from tests.cli.shell import Shell


@pytest.mark.parametrize("words", list(ALL), ids="-".join)
def test_every_command_has_a_description_and_the_shared_options(words: tuple[str, ...]) -> None:
    command = ALL[words]
    options = {name for each in command.params for name in each.opts}
    text = command.help or ""

    assert text[0].isupper()
    assert text.splitlines()[0].endswith(".")
    for each in command.params:
        assert (getattr(each, "help", None) or "-.")[-1] in '.")', (words, each.name)
    if words[0] != "worker":
        assert "--json" in options
    if words[0] not in ("worker", "call", "demo", "server", "bench", "doctor", "acl"):
        assert {"--url", "--namespace", "--json"} <= options


@pytest.mark.parametrize("words", [words for words, command in ALL.items() if "Example:" in command.help], ids="-".join)
def test_examples_are_of_their_command_and_on_one_line(words: tuple[str, ...]) -> None:
    (example,) = [line for line in ALL[words].help.splitlines() if line.startswith("Example:")]

    assert example.startswith(f"Example: duly {' '.join(words)} ")
    assert len(example) <= 78
    for option in re.findall(r"(--[a-z-]+)", example):
        assert option in {name for each in ALL[words].params for name in each.opts}


def test_the_version_is_printed(shell: Shell) -> None:
    assert re.fullmatch(r"duly \d+\.\d+\.\d+\n", shell.run_bare("--version").out)


@pytest.mark.parametrize("words", list(ALL), ids="-".join)
def test_help_names_no_types_of_flags_and_no_braces(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.run_bare(*words, "--help", COLUMNS="80")

    assert done.status == 0
    assert "<bool>" not in done.out
    usage = next(line for line in done.out.splitlines() if "Usage:" in line)
    assert usage.strip().startswith(f"Usage: duly {' '.join(words)} [OPTIONS]")
    assert "{" not in usage


def test_help_is_not_cut_in_a_narrow_terminal(call: Call) -> None:
    done = call("send", "--help", columns=80)

    assert done.status == 0
    assert "…" not in done.out
    assert "duly send orders '{\"order\": 17}' --delay 30m" in done.out
