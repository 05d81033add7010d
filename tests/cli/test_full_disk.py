"""A full disk as standard output: an error is printed, and messages that were not printed are not lost."""

from pathlib import Path

import pytest

import duly
from tests.cli.shell import DEADLINE, Done, Shell

NO_SPACE = "duly: cannot write to standard output: No space left on device\n"


def run_into_full_disk(shell: Shell, *words: str) -> Done:
    with Path("/dev/full").open("w") as full, shell.start(*words, stdout=full) as process:
        _, err = process.communicate(timeout=DEADLINE)
    return Done(process.returncode, "", err)


@pytest.mark.parametrize("option", ["--wait=0s", "--json", "--raw"])
def test_messages_that_cannot_be_printed_are_released(shell: Shell, app: duly.Duly, option: str) -> None:
    queue = app.queue("q")
    queue.send_many(["a", "b" * 100_000])

    failed = run_into_full_disk(shell, "receive", "q", "--limit", "2", option)

    assert (failed.status, failed.err) == (1, NO_SPACE)
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.acked) == (2, 0, 0)


@pytest.mark.parametrize("words", ["list q ready", "list q ready --json", "queues", "stats", "acl --role producer"])
def test_read_only_commands_fail_with_a_sentence(shell: Shell, app: duly.Duly, words: str) -> None:
    app.queue("q").send("x")

    failed = run_into_full_disk(shell, *words.split())

    assert failed.status == 1
    assert failed.err.endswith(NO_SPACE)
    assert "Traceback" not in failed.err


def test_an_id_that_cannot_be_printed_goes_to_standard_error(shell: Shell, app: duly.Duly) -> None:
    for words in (("send", "q", "x"), ("topic", "publish", "events", "x")):
        failed = run_into_full_disk(shell, *words)

        (stored,) = app.queue("q").list("ready") if words[0] == "send" else app.topic("events").read()
        assert failed.status == 1
        assert failed.err.startswith(f"duly: {stored.id} is ")
        assert failed.err.endswith(f", but this could not be printed\n{NO_SPACE}")
