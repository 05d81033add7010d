"""The command line as users run it: a separate process per command, on a server and in a namespace."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import redis

import duly
from tests.warm import WarmPopen

DEADLINE = 60.0


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def bench_apps(url: str, namespace: str) -> list[duly.Duly]:
    """Return an app for each temporary namespace of `duly bench` that has a queue or a worker."""
    with redis.Redis.from_url(url) as client:
        keys = {key.decode().partition(":")[0] for key in client.scan_iter(f"{namespace}-bench-*", 1000)}
    apps = [duly.Duly(url, namespace=found) for found in sorted(keys)]
    return [app for app in apps if app.queues() or app.workers()]


class Shell:
    """Runs `duly ...` in a directory, with a fixed environment. Tests may add variables."""

    def __init__(self, url: str, namespace: str, place: Path) -> None:
        self.url = url
        self.namespace = namespace
        self.place = place

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DULY", "COLUMNS", "LINES"))}
        return {**kept, "DULY_URL": self.url, "PYTHONUTF8": "1", "TERM": "xterm", **more}

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "duly", *words, "--namespace", self.namespace]

    def run(self, *words: str, stdin: str | bytes = b"", **variables: str) -> Done:
        """Run a command and wait for its end."""
        return self.run_bare(*words, "--namespace", self.namespace, stdin=stdin, **variables)

    def run_bare(self, *words: str, stdin: str | bytes = b"", **variables: str) -> Done:
        """Run a command without the options of the shell."""
        with self.start_bare(*words, **variables) as process:
            out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout=DEADLINE)
        return Done(process.returncode, out.decode(), err.decode())

    def start_bare(self, *words: str, **variables: str) -> "subprocess.Popen[bytes]":
        """Start a command without the options of the shell, with pipes for all streams."""
        return WarmPopen(
            [sys.executable, "-m", "duly", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(**variables),
            cwd=self.place,
        )

    def run_in_ascii(self, *words: str) -> Done:
        """Run a command with a given encoding."""
        process = self.start(
            *words, COLUMNS="60", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
        )
        out, err = process.communicate(timeout=DEADLINE)
        assert (out + err).isascii()
        return Done(process.returncode, out, err)

    def ok(self, *words: str, stdin: str | bytes = b"", **variables: str) -> Done:
        """Run a command that must succeed with empty standard error."""
        done = self.run(*words, stdin=stdin, **variables)
        assert (done.status, done.err) == (0, ""), done
        return done

    def start(self, *words: str, stdout: int | IO[Any] = subprocess.PIPE, **variables: str) -> "subprocess.Popen[str]":
        """Start a command."""
        return WarmPopen(
            self.words(*words),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**variables),
            cwd=self.place,
        )

    def start_worker(self, target: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a worker of an app in the directory."""
        return WarmPopen(
            [sys.executable, "-m", "duly", "worker", target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**variables),
            cwd=self.place,
        )


def given_dead(queue: duly.Queue, body: Any, error: str = "boom", **options: Any) -> str:
    """Send a message and reject it."""
    id_ = queue.send(body, retry=duly.Retry(attempts=1), **options)
    (delivery,) = queue.receive(1, 0)
    delivery.retry(error=error)
    return id_
