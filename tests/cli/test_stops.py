"""Ctrl-C and SIGTERM in the middle: what was printed is acked, the rest goes back, and nothing stays behind."""

import array
import fcntl
import signal
import subprocess
import termios
import time
from collections.abc import Callable

import pytest

import duly
from tests.cli.shell import DEADLINE, Shell


def wait_until(condition: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def unread(process: "subprocess.Popen[str]") -> int:
    """Count the bytes in the pipe of its output."""
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
def test_a_stop_while_it_prints_acks_what_was_printed_and_gives_back_the_rest(
    shell: Shell, app: duly.Duly, options: tuple[str, ...], how: signal.Signals, status: int
) -> None:
    """The pipe holds the first message and not the second, and nobody reads: the command stands there."""
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


def test_a_terminated_bench_leaves_no_queue(shell: Shell, app: duly.Duly) -> None:
    with shell.start("bench") as process:
        wait_until(app.queues, process)

        process.terminate()
        _, err = process.communicate(timeout=DEADLINE)

    assert (process.returncode, err) == (143, "")
    assert app.queues() == []


def test_a_stop_at_the_start_is_quiet(shell: Shell) -> None:
    (shell.place / "typer.py").write_text("raise KeyboardInterrupt")  # as if Ctrl-C came while it is imported

    with shell.start("queues", PYTHONPATH=str(shell.place)) as process:
        out, err = process.communicate(timeout=DEADLINE)

    assert (process.returncode, out, err) == (130, "", "")
