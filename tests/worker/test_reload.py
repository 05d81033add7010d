"""Reloading: which files count as a change, and how the children are replaced."""

import os
import signal
from pathlib import Path

import pytest

from duly.worker.reloader import SourceFiles
from tests.waiting import wait_until
from tests.worker.supervised import is_running, supervised


def test_a_change_is_found_once(tmp_path: Path) -> None:
    file = tmp_path / "shop" / "jobs.py"
    file.parent.mkdir()
    file.write_text("x = 1")
    files = SourceFiles(tmp_path)
    assert files.find_change() is None

    file.write_text("x = 22")

    assert files.find_change() == file
    assert files.find_change() is None


def test_a_change_of_the_same_length_is_found(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    file.write_text("x = 1")
    os.utime(file, ns=(1, 1))
    files = SourceFiles(tmp_path)

    file.write_text("x = 2")

    assert files.find_change() == file


def test_new_and_removed_files_are_changes(tmp_path: Path) -> None:
    files = SourceFiles(tmp_path)

    (tmp_path / "new.py").touch()
    assert files.find_change() == tmp_path / "new.py"

    (tmp_path / "new.py").unlink()
    assert files.find_change() == tmp_path / "new.py"


@pytest.mark.parametrize(
    "path", [".venv/a.py", ".git/a.py", "node_modules/a.py", "shop/__pycache__/a.py", "env/lib/a.py", "a.txt", "a.pyc"]
)
def test_files_that_are_not_source_of_the_user_are_ignored(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if path.startswith("env"):
        (tmp_path / "env" / "pyvenv.cfg").touch()
    files = SourceFiles(tmp_path)

    file.touch()

    assert files.find_change() is None


def test_links_that_lead_nowhere_or_in_circles_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "broken.py").symlink_to(tmp_path / "nothing")
    (tmp_path / "circle").symlink_to(tmp_path)
    files = SourceFiles(tmp_path)

    (tmp_path / "a.py").touch()

    assert files.find_change() == tmp_path / "a.py"


def test_the_number_of_files_is_limited_and_the_warning_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        (tmp_path / f"file{number}.py").touch()
    files = SourceFiles(tmp_path, most=3)
    (tmp_path / "file0.py").write_text("changed")
    (tmp_path / "file4.py").write_text("changed")

    assert files.find_change() == tmp_path / "file0.py"
    assert files.find_change() is None
    assert [record.getMessage().split()[:2] for record in caplog.records] == [["reload.too_many_files", "watched=3"]]


def change(file: Path, text: str) -> None:
    """Change a file in one step. Written in place, it could be seen empty first, and count as two changes."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


@pytest.mark.fault
@pytest.mark.slow
class TestWithProcesses:
    def test_a_change_replaces_the_children_in_order(self, tmp_path: Path) -> None:
        with supervised(tmp_path, "steady", 2, kind="reload") as parent:
            first = parent.wait_ready(2)
            change(tmp_path / "jobs.py", "x = 1")
            second = parent.wait_ready(4)[2:]
            parent.signal(signal.SIGINT)

            assert parent.wait_status() == 0
            assert [each["path"] for each in parent.named("reload.file_changed")] == ["jobs.py"]
            heard = [line for line in parent.records if line.startswith("heard")]
            assert sorted(heard[:2]) == sorted(f"heard SIGTERM {pid}" for pid in first)
            assert sorted(heard[2:]) == sorted(f"heard SIGINT {pid}" for pid in second)
            assert not any(map(is_running, [*first, *second]))

    @pytest.mark.parametrize(("manner", "status"), [("crash", 1), ("misuse", 2)])
    def test_a_child_that_fails_is_started_again_by_the_next_change(
        self, tmp_path: Path, manner: str, status: int
    ) -> None:
        with supervised(tmp_path, f"{manner},steady", kind="reload") as parent:
            (end,) = parent.wait_event("process.ended")
            change(tmp_path / "jobs.py", "x = 1")
            parent.wait_ready(1)
            parent.signal(signal.SIGTERM)

            assert parent.wait_status() == 0
            assert (end["status"], end["restart"]) == (status, "upon the next change")
            order = [each["event"] for each in parent.events]
            assert order[:4] == ["process.started", "process.ended", "reload.file_changed", "process.started"]

    def test_a_stop_while_it_waits_for_a_change(self, tmp_path: Path) -> None:
        with supervised(tmp_path, "crash", kind="reload") as parent:
            parent.wait_event("process.ended")
            parent.signal(signal.SIGINT)

            assert parent.wait_status() == 1
            assert len(parent.started()) == 1

    def test_further_changes_do_not_hurry_a_child_that_is_stopping(self, tmp_path: Path) -> None:
        with supervised(tmp_path, "busy,steady", kind="reload") as parent:
            (pid,) = parent.wait_ready(1)
            for number in (1, 2):
                change(tmp_path / "jobs.py", "x" * number)
                parent.wait_event("reload.file_changed", number)
            wait_until(lambda: f"heard SIGTERM {pid}" in parent.records, "the signal is heard", parent.describe)
            os.kill(pid, signal.SIGINT)
            parent.wait_ready(2)
            parent.signal(signal.SIGTERM)

            assert parent.wait_status() == 0
            # One signal of the parent for two changes, and one of the test.
            assert [line for line in parent.records if line.endswith(f" {pid}")][1:] == [
                f"heard SIGTERM {pid}",
                f"heard SIGINT {pid}",
            ]

    def test_nothing_stays_when_the_parent_is_killed(self, tmp_path: Path) -> None:
        with supervised(tmp_path, "steady", 2, kind="reload") as parent:
            pids = parent.wait_ready(2)
            parent.signal(signal.SIGKILL)

            parent.wait_gone(*pids)
