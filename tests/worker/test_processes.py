"""The supervising parent, with real processes: restarts of children, forwarded signals, and the exit status."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.worker.supervised import Supervised, is_running, supervised

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_children_that_crash_are_started_again_later_and_later(tmp_path: Path) -> None:
    with supervised(tmp_path, "crash,crash,crash,steady") as parent:
        parent.wait_ready(1)
        ends = parent.wait_event("process.ended", 3)
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 0
        assert [(end["status"], end["restart_in"]) for end in ends] == [(1, 0.1), (1, 0.2), (1, 0.4)]
        assert len(parent.started()) == 4


def test_a_killed_child_is_replaced_and_the_others_continue(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady", 3) as parent:
        first = parent.wait_ready(3)
        os.kill(first[1], signal.SIGKILL)
        after = parent.wait_ready(4)
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 0
        unexpected = [end for end in parent.named("process.ended") if "restart_in" in end]
        assert [(end["pid"], end["signal"]) for end in unexpected] == [(first[1], "SIGKILL")]
        assert after[:3] == first
        assert {int(line.split()[-1]) for line in parent.records if line.startswith("heard")} == set(after) - {first[1]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_forwarded_and_the_parent_waits_for_all_children(tmp_path: Path, number: signal.Signals) -> None:
    with supervised(tmp_path, "steady", 3) as parent:
        pids = parent.wait_ready(3)
        parent.signal(number)

        assert parent.wait_status() == 0
        assert sorted(parent.records[3:]) == sorted(f"heard {number.name} {pid}" for pid in pids)
        assert not any(map(is_running, pids))
        assert [each["status"] for each in parent.named("process.ended")] == [0, 0, 0]


def test_an_interrupt_at_the_terminal_is_for_the_parent_alone(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady", 2) as parent:
        pids = parent.wait_ready(2)

        assert [os.getsid(pid) for pid in pids] == pids


def test_a_signal_before_a_child_listens_is_not_lost(tmp_path: Path) -> None:
    with supervised(tmp_path, "slow") as parent:
        wait_until(lambda: parent.pids("starting") != [], "the child is starting", parent.describe)
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 0
        assert parent.pids() == []


def test_a_second_signal_is_forwarded_as_well(tmp_path: Path) -> None:
    with supervised(tmp_path, "busy") as parent:
        (pid,) = parent.wait_ready(1)
        parent.signal(signal.SIGTERM)
        wait_until(lambda: f"heard SIGTERM {pid}" in parent.records, "the first signal is heard", parent.describe)
        parent.signal(signal.SIGINT)

        assert parent.wait_status() == 1
        assert parent.records[1:] == [f"heard SIGTERM {pid}", f"heard SIGINT {pid}"]
        assert [each["at_once"] for each in parent.named("supervisor.stopping")] == [False, True]


def test_a_child_that_does_not_stop_is_killed_with_its_own_children(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady,stubborn,steady", 3, grace=0.5, margin=6) as parent:
        parent.wait_ready(3)
        (grandchild,) = parent.pids("grandchild")
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 1
        (killed,) = parent.named("process.killed")
        ends = {each["pid"]: each.get("signal", each.get("status")) for each in parent.named("process.ended")}
        assert sorted(map(str, ends.values())) == ["0", "0", "SIGKILL"]
        assert ends[killed["pid"]] == "SIGKILL"
        parent.wait_gone(*parent.pids(), grandchild)


def test_one_child_that_cut_something_off_decides_the_status(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady,failing,steady", 3) as parent:
        parent.wait_ready(3)
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 1
        assert sorted(each["status"] for each in parent.named("process.ended")) == [0, 0, 1]


def test_misuse_is_not_tried_again_and_ends_all(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady,misuse,steady", 3) as parent:
        assert parent.wait_status() == 2

        assert len(parent.started()) == 3
        assert sorted(each["status"] for each in parent.named("process.ended")) == [0, 0, 2]
        assert not any(map(is_running, parent.started()))


def test_a_stop_while_a_child_is_to_be_started_again_starts_none(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady,crash", 2) as parent:
        parent.wait_ready(1)
        parent.wait_event("process.ended", 4)
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 1  # one of the two was not running at the stop
        stopping = [each["event"] for each in parent.events].index("supervisor.stopping")
        assert "process.started" not in [each["event"] for each in parent.events[stopping:]]


def test_a_command_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with supervised(tmp_path, "steady") as working:
        working.wait_ready(1)
        command = [*working.process.args[:7], str(tmp_path / "nothing-here")]  # type: ignore[index]
    place = tmp_path / "second"
    place.mkdir()
    parent = Supervised(place, command)
    try:
        tries = parent.wait_event("process.not_started", 3)
        parent.signal(signal.SIGTERM)

        assert parent.wait_status() == 1
        assert [each["restart_in"] for each in tries[:3]] == [0.1, 0.2, 0.4]
    finally:
        parent.process.kill()
        parent.process.wait()


def test_children_stop_in_order_when_their_parent_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path, "steady", 3) as parent:
        pids = parent.wait_ready(3)
        parent.signal(signal.SIGKILL)

        parent.wait_gone(*pids)
        assert sorted(parent.records[3:]) == sorted(f"heard SIGTERM {pid}" for pid in pids)


def test_a_child_that_is_stopping_is_not_hurried_by_its_parents_death(tmp_path: Path) -> None:
    with supervised(tmp_path, "busy", grace=1.0) as parent:
        (pid,) = parent.wait_ready(1)
        parent.signal(signal.SIGTERM)
        wait_until(lambda: f"heard SIGTERM {pid}" in parent.records, "the signal is heard", parent.describe)
        parent.signal(signal.SIGKILL)

        parent.wait_gone(pid)  # its patience is over: it was killed
        assert parent.records[1:] == [f"heard SIGTERM {pid}"]


def test_a_child_that_does_not_stop_does_not_outlive_its_parent(tmp_path: Path) -> None:
    with supervised(tmp_path, "stubborn", grace=0.5) as parent:
        pids = parent.wait_ready(1)
        parent.signal(signal.SIGKILL)

        parent.wait_gone(*pids)


def test_a_child_whose_parent_dies_while_it_starts_does_not_stay(tmp_path: Path) -> None:
    with supervised(tmp_path, "slow") as parent:
        wait_until(lambda: parent.pids("starting") != [], "the child is starting", parent.describe)
        parent.signal(signal.SIGKILL)

        parent.wait_gone(*parent.pids("starting"))


def test_the_parent_sleeps_while_nothing_happens(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    with supervised(tmp_path, "steady", 2) as parent:
        parent.wait_ready(2)
        status = Path(f"/proc/{parent.process.pid}/status")

        def switches() -> int:
            (line,) = [each for each in status.read_text().splitlines() if each.startswith("voluntary_ctxt_switches")]
            return int(line.split()[1])

        before = switches()
        time.sleep(1.0)
        assert switches() - before < 10
