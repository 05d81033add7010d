"""`duly demo` as a command: real processes, a kill, the ledger, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.waiting import wait_until
from tests.warm import WarmPopen

pytestmark = [pytest.mark.fault, pytest.mark.slow]

DEADLINE = 60.0

SECONDS = "8"
"""Long enough for the kill, even if the machine stalls for two seconds while messages are sent."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Yield a separate temporary directory, to find files that stay behind."""
    return tmp_path


def start(place: Path, *options: str) -> "subprocess.Popen[str]":
    return WarmPopen(
        [sys.executable, "-m", "duly.cli", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )


def run(place: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    process = start(place, *options)
    out, err = process.communicate(timeout=90)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def processes_of(place: Path) -> list[str]:
    """Return the processes with the directory in their environment: all that a run has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"TMPDIR={place}\0".encode() in variables:
                found.append(f"{entry.name} {command}")
    return found


def test_the_demo_keeps_every_guarantee_and_leaves_nothing_behind(place: Path) -> None:
    done = run(place, "--seconds", SECONDS)

    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"(orders-[123]) \(pid \d+\) was killed with -9 while it held", done.stdout)
    assert killed
    assert f"{killed[1]} was killed while it held the message, and its lease ran out" in done.stdout
    assert "verdict: OK" in done.stdout
    late = re.findall(r"^  lateness +p50 .*$", done.stdout, re.MULTILINE)
    assert [line.endswith("(a backlog is made on purpose)") for line in late] == [True, False]
    times = [float(found) for found in re.findall(r"^ *([0-9.]+) s  ", done.stdout, re.MULTILINE)]
    assert times == sorted(times)  # the clock starts with the first message
    assert processes_of(place) == []
    assert list(place.iterdir()) == []


def test_json_has_the_figures(place: Path) -> None:
    kept = place / "kept"

    done = run(place, "--seconds", SECONDS, "--json", "--histories", str(kept))

    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["ok"] is True
    assert found["problems"] == []
    orders, reminders = found["queues"]["orders"], found["queues"]["reminders"]
    assert orders["sent"] == orders["acked"] == 1600
    assert reminders["sent"] == reminders["acked"] == 400
    assert orders["lost"] == orders["early"] == orders["unexplained"] == []
    # On a machine that stalls for seconds, other consumers lose leases as well, and the ledger shows it.
    of_the_killed = [one for one in orders["redelivered"] if "was killed" in one["reason"]]
    assert 1 <= found["killed"]["held"] == len(of_the_killed)
    assert {path.name for path in kept.glob("*.jsonl")} >= {"orders-2.jsonl", "orders-4.jsonl", "producer-1.jsonl"}


def test_the_users_own_server_is_left_without_queues(place: Path) -> None:
    done = run(place, "--seconds", SECONDS, "--dir", str(place / "d"))

    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: processes_of(place) == [], "the server has stopped with its last user")
    assert (place / "d" / "appendonlydir").is_dir()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stop_in_the_middle_leaves_no_process(place: Path, how: signal.Signals) -> None:
    process = start(place, "--seconds", "10")
    wait_until(lambda: len(processes_of(place)) >= 8, "all processes are there")

    process.send_signal(how)
    process.communicate(timeout=DEADLINE)

    wait_until(lambda: processes_of(place) == [], "all processes are gone")
    if how != signal.SIGKILL:
        assert list(place.iterdir()) == []


def test_a_password_is_not_in_the_command_lines_of_the_processes(place: Path, server: StartedServer) -> None:
    url = server("valkey").url.replace("://", "://default:s3cr3t@")  # the default user accepts any password
    process = start(place, "--seconds", "20", "--url", url, "--histories", str(place / "kept"))
    wait_until((place / "kept" / "producer-2.jsonl").exists, "all processes are at work")

    parts = [command for command in processes_of(place) if "duly.demo." in command]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE)

    assert len(parts) == 7
    assert "s3cr3t" not in "".join(parts) + out + err


def test_histories_of_another_run_are_left_alone(place: Path) -> None:
    kept = place / "kept"
    kept.mkdir()
    (kept / "orders-1.jsonl").write_text("of another run\n")

    done = run(place, "--seconds", "2", "--histories", str(kept))
    nowhere = run(place, "--seconds", "2", "--histories", str(kept / "orders-1.jsonl"))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"duly: --histories: '{kept}' has histories of another run: name a new directory\n"
    assert nowhere.returncode == 2
    assert nowhere.stderr == f"duly: --histories: '{kept}/orders-1.jsonl' cannot be used: File exists\n"
    assert [file.name for file in kept.iterdir()] == ["orders-1.jsonl"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seconds", "1"], "--seconds must be from 2 to 60"),
        (["--url", "memory://"], "memory:// works within one process"),
        (["--url", "redis://localhost", "--dir", "d"], "exclude each other"),
    ],
)
def test_misuse_is_explained(place: Path, options: list[str], words: str) -> None:
    done = run(place, *options)

    assert done.returncode == 2
    assert words in done.stderr
    assert list(place.iterdir()) == []
