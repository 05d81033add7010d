"""Shell completion for bash."""

from pathlib import Path

import pytest

import duly
from tests.cli.shell import Shell


def offered(shell: Shell, line: str, **variables: str) -> list[str]:
    """Complete a line, and return the candidates of bash."""
    at = str(line.count(" "))
    done = shell.run_bare(_DULY_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=at, **variables)
    assert (done.status, done.err) == (0, "")
    return done.out.split()


def test_commands_options_and_words_are_offered(shell: Shell) -> None:
    assert offered(shell, "duly re") == ["receive", "reschedule", "resume"]
    assert offered(shell, "duly send --de") == ["--delay", "--dedup", "--dedup-for"]
    assert offered(shell, "duly list orders d") == ["delayed", "dead", "done"]


def test_names_come_from_the_server_of_the_command(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send(1)
    app.queue("others").send(1)
    app.topic("ordinary").group("archive").create()
    app.schedule("report", "orders", 1, every=60)
    of = f"--namespace {shell.namespace}"

    assert offered(shell, f"duly list {of} or") == ["orders", "ordinary/archive"]
    assert offered(shell, f"duly send {of} o") == ["orders", "others"]
    assert offered(shell, f"duly topic seek {of} ord") == ["ordinary"]
    assert offered(shell, f"duly topic seek {of} ordinary ") == ["archive"]
    assert offered(shell, f"duly schedule rm {of} ") == ["report"]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "nonsense", "embedded:"])
def test_without_a_server_nothing_is_offered_or_started(shell: Shell, url: str) -> None:
    home = shell.place / "home"

    assert offered(shell, "duly list o", DULY_URL="" if url == "embedded:" else url, DULY_HOME=str(home)) == []

    assert not home.exists()
    assert not Path(shell.place / ".duly").exists()


def test_the_script_for_the_shell_is_shown(shell: Shell) -> None:
    done = shell.run_bare("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")

    assert done.status == 0
    assert "_DULY_COMPLETE=complete_bash" in done.out
