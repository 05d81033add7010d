"""Standard error that is closed or full: the command works anyway."""

import json
import subprocess

import pytest

import duly
from tests.cli.shell import DEADLINE, Shell


def run(shell: Shell, errors: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", f'exec "$@" 2>{errors}', "sh", *shell.words(*words)],
        env=shell.environment(),
        cwd=shell.place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("errors", ["&-", "/dev/full"], ids=["closed", "full"])
def test_a_note_that_cannot_be_printed_is_left_out(shell: Shell, app: duly.Duly, errors: str) -> None:
    app.queue("orders").send("x")

    sent = run(shell, errors, "send", "order", "x", "--json")  # prints a note about the similar name

    (stored,) = app.queue("order").list("ready")
    assert (sent.returncode, json.loads(sent.stdout)) == (0, {"queue": "order", "id": stored.id})


@pytest.mark.parametrize("errors", ["&-", "/dev/full"], ids=["closed", "full"])
def test_work_with_a_progress_bar_is_done(shell: Shell, app: duly.Duly, errors: str) -> None:
    (shell.place / "bodies").write_text("1\n2\n")

    done = [
        run(shell, errors, *words)
        for words in (("send", "q", "@bodies", "--lines"), ("audit", "q"), ("purge", "q", "--yes"))
    ]

    assert [each.returncode for each in done] == [0, 0, 0]
    assert [each.stdout.splitlines()[0].split()[0] for each in done] == ["2", "QUEUE", "2"]
    assert app.queue("q").stats().purged == 2


@pytest.mark.parametrize("errors", ["&-", "/dev/full"], ids=["closed", "full"])
def test_an_error_still_has_its_status(shell: Shell, app: duly.Duly, errors: str) -> None:
    app.queue("q").send("x")

    failed = run(shell, errors, "show", "q", "nothing")
    misused = run(shell, errors, "purge", "q")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert (misused.returncode, misused.stdout) == (2, "")
