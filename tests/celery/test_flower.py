"""Flower and `celery events` see the workers and tasks."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.celery.rig import ROOT, Program
from tests.servers import dying_with_parent
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_flower_shows_workers_and_tasks(program: Program, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "flower.log"
    options = [f"--port={port}", "--address=127.0.0.1"]
    command = [sys.executable, "-m", "celery", "-A", "tests.celery.program", "flower", *options]
    environment = {**os.environ, **program.environment, "FLOWER_UNAUTHENTICATED_API": "1"}

    def asked(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=60) as answer:
                return json.load(answer)
        except OSError:
            return {}

    with (
        log.open("wb") as output,
        subprocess.Popen(dying_with_parent(command), cwd=ROOT, env=environment, stdout=output, stderr=output) as flower,
    ):
        try:
            program.worker("-P", "solo", "-E")
            wait_until(lambda: "w0@test" in asked("workers?refresh=1"), "Flower knows the worker", log.read_text)
            sent = program.module.work.delay("seen")
            program.wait_for("end", "seen")

            wait_until(
                lambda: asked("tasks").get(sent.id, {}).get("state") == "SUCCESS",
                "Flower knows the task",
                log.read_text,
            )
            # Flower asks the worker for its queues, and does not wait long for the answer.
            wait_until(
                lambda: "active_queues" in asked("workers?refresh=1").get("w0@test", {}),
                "Flower knows the queues of the worker",
                log.read_text,
            )
            assert [queue["name"] for queue in asked("workers")["w0@test"]["active_queues"]] == ["celery"]
        finally:
            flower.kill()
