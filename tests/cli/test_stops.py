"""Ctrl-C and SIGTERM: printed messages are acked, the others released, and nothing stays behind."""

import array
import fcntl
import os
import re
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

import duly
from tests.cli.shell import DEADLINE, Shell, bench_apps, given_dead


def wait_until(condition: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def unread(process: "subprocess.Popen[str]") -> int:
    """Return the number of bytes in the output pipe."""
    assert process.stdout is not None
    found = array.array("i", [0])
    fcntl.ioctl(process.stdout, termios.FIONREAD, found)
    return found[0]


@pytest.mark.parametrize(
    ("options", "how", "status"),
    [
        ((), signal.SIGTERM, 143),
        (("--raw",), signal.SIGINT, 130),
        (("--follow", "--json"), signal.SIGINT, 0),
    ],
    ids=["SIGTERM", "Ctrl-C", "follow"],
)
def test_a_stop_while_printing_acks_printed_messages_and_releases_the_rest(
    shell: Shell, app: duly.Duly, options: tuple[str, ...], how: signal.Signals, status: int
) -> None:
    """The pipe has room for the first message only and is not read, so the command blocks."""
    queue = app.queue("q")
    queue.send_many(["x" * 50_000] * 4)
    with shell.start("receive", "q", "--limit", "4", *options) as process:
        wait_until(lambda: unread(process) > 55_000, process)

        process.send_signal(how)
        process.wait(DEADLINE)
        out, err = process.communicate()

    assert (process.returncode, err) == (status, "")
    assert "x" * 50_000 in out.splitlines()[0]
    stats = queue.stats()
    assert (stats.acked, stats.ready, stats.leased) == (1, 3, 0)


@pytest.mark.parametrize(
    ("words", "how", "status", "said"),
    [
        ("send q x", signal.SIGINT, 130, r"duly: \S+ is stored in q, but the command was stopped before"),
        ("send q @bodies --lines", signal.SIGTERM, 143, r"duly: 3 (were )?sent to q"),  # before or while it prints
        ("topic publish q x", signal.SIGHUP, -1, r"duly: \S+ is published to q, but the command was stopped before"),
        (
            "schedule add s q x --every 1d",
            signal.SIGTERM,
            143,
            r"duly: schedule s is stored, but the command was stopped",
        ),
    ],
    ids=["send", "lines", "publish", "schedule"],
)
def test_a_stored_id_goes_to_standard_error_if_the_output_blocks(
    shell: Shell, app: duly.Duly, words: str, how: signal.Signals, status: int, said: str
) -> None:
    """The stop may arrive before or while the command prints."""
    (shell.place / "bodies").write_text("1\n2\n3\n")
    reading, writing = full_pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as out, shell.start(*words.split(), stdout=out) as process:
        wait_until(lambda: app.queue("q").stats().sent or app.topic("q").stats().published or app.schedules(), process)

        process.send_signal(how)
        _, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == status
    assert re.match(said, err), err


def full_pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    return reading, writing


def test_a_terminated_bench_leaves_no_queue(shell: Shell) -> None:
    with shell.start("bench") as process:
        wait_until(lambda: bench_apps(shell.url, shell.namespace), process)

        process.terminate()
        _, err = process.communicate(timeout=DEADLINE)

    assert (process.returncode, err) == (143, "")
    assert bench_apps(shell.url, shell.namespace) == []


@pytest.mark.parametrize("is_ignored", [False, True], ids=["foreground", "background of a script"])
def test_a_bench_is_terminated_while_its_worker_runs(shell: Shell, is_ignored: bool) -> None:
    """An event loop runs then. In the background of a script, Ctrl-C is ignored, but SIGTERM is not."""
    trap = "trap '' INT; " if is_ignored else ""
    words = ["sh", "-c", f'{trap}exec "$@"', "sh", *shell.words("bench", "--messages", "30000")]
    with subprocess.Popen(
        words, env=shell.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: any(each.workers() for each in bench_apps(shell.url, shell.namespace)), process)
        if is_ignored:
            process.send_signal(signal.SIGINT)

        process.terminate()
        out, err = process.communicate(timeout=DEADLINE)

    assert (process.returncode, out, err) == (143, "", "")
    assert bench_apps(shell.url, shell.namespace) == []


def test_a_stopped_redrive_prints_its_progress(shell: Shell, app: duly.Duly) -> None:
    source, target = app.queue("q"), app.queue("other")
    for number in range(200):  # 10 s of work at this rate
        given_dead(source, number)
    with shell.start("dead", "redrive", "q", "--rate", "20/s", "--to", "other") as process:
        wait_until(lambda: target.stats().ready > 5, process)

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)

    said = re.fullmatch(r"duly: at least (\d+) were redriven from q to other before it was stopped\n", err)
    assert (process.returncode, out) == (130, "")
    assert said is not None, err
    assert 4 <= int(said[1]) <= target.stats().ready < 200


def test_a_stop_at_the_start_is_quiet(shell: Shell) -> None:
    (shell.place / "typer.py").write_text("raise KeyboardInterrupt")  # like Ctrl-C during the import

    with shell.start("queues", PYTHONPATH=str(shell.place)) as process:
        out, err = process.communicate(timeout=DEADLINE)

    assert (process.returncode, out, err) == (130, "", "")
