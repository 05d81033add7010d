"""The benchmarks can be run: every question and every peer has its file, and the tools around them work."""

import socket
import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks import __main__ as runs
from benchmarks import contest, field_delays, instructions, kept, slow_network
from benchmarks.__main__ import SUITES
from benchmarks.contest import figure, of_best_peer
from benchmarks.peers.brokers import BROKERS, HOST, Broker
from benchmarks.peers.catalog import PEERS, adapter_of
from benchmarks.rig import Result

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_question_has_a_file() -> None:
    asked = {question for questions in SUITES.values() for question in questions}

    assert {question for question in asked if not (BENCHMARKS / f"{question}.py").exists()} == set()


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_has_an_adapter_a_server_settings_and_a_guarantee(name: str) -> None:
    peer = PEERS[name]

    assert (BENCHMARKS / "peers/adapters" / f"{adapter_of(name)}.py").exists()
    assert peer.broker in BROKERS
    assert peer.settings
    assert peer.guarantee.startswith(("at least once", "at most once"))


def test_peers_are_measured_in_the_field_and_elsewhere_only_on_request() -> None:
    assert runs._peers("field", None) == tuple(PEERS)
    assert runs._peers("worker", None) == []
    assert runs._peers("worker", ["repid", "nats"]) == ["repid"]


def test_counts_that_rise_or_are_new_are_reported() -> None:
    stored = {"same": 1000, "noise": 1000, "rose": 1000, "fell": 1000}

    found = {"same": 1000, "noise": 1049, "rose": 1051, "fell": 500, "new": 1}

    assert instructions.compare(stored, found) == ["rose", "new"]


def test_the_run_of_one_question_replaces_its_part_and_no_other(tmp_path: Path) -> None:
    order = ["first", "second"]
    for question, at in (("second", "2026-01-01"), ("first", "2026-01-02"), ("gone", "2026-01-03")):
        kept.keep("suite", question, {"at": at, "results": []}, [*order, "gone"], tmp_path)

    kept.keep("suite", "second", {"at": "2026-01-04", "results": []}, order, tmp_path)

    parts = kept.parts_of("suite", tmp_path)
    assert [(question, part["at"]) for question, part in parts.items()] == [
        ("first", "2026-01-02"),
        ("second", "2026-01-04"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["suite.json"]


def test_a_resumed_run_skips_recent_measurements() -> None:
    now = datetime.now(UTC)

    assert kept.is_recent({"at": (now - timedelta(hours=1)).isoformat()}, 2)
    assert not kept.is_recent({"at": (now - timedelta(hours=3)).isoformat()}, 2)
    assert not kept.is_recent(None, 2)


@pytest.mark.parametrize(
    ("args", "is_trial"),
    [([], False), (["--rounds", "1"], True), (["--part", "0.1"], True), (["--peers", "none"], True)],
)
def test_only_a_run_of_all_rounds_messages_and_peers_is_kept(args: list[str], is_trial: bool) -> None:
    assert runs.is_trial(runs.parsed(args)) is is_trial


def result(party: str, *samples: float) -> Result:
    return figure("drain", party, "messages/s", list(samples), higher_is_better=True)


def test_duly_is_compared_with_the_best_peer_of_its_kind_round_by_round() -> None:
    """NATS has another server, huey delivers at most once, and arq is slower than repid."""
    results = [result("duly", 100, 120), result("arq", 4, 4), result("repid", 10, 8)]
    results += [result("nats", 50, 50), result("huey", 20, 20)]

    (found,) = of_best_peer("drain", results, bar=15)

    assert found.question == "drain: Duly, of the best peer on Valkey (repid)"
    assert (found.samples, found.value, found.holds) == ([10.0, 15.0], 12.5, False)


def test_only_duly_has_to_clear_a_bar() -> None:
    ours, theirs = (
        figure("lost", party, "messages", [0, 3, 0], higher_is_better=False, bar=0, of_all=max)
        for party in ("duly", "repid")
    )

    assert (ours.value, ours.holds) == (3, False)
    assert (theirs.value, theirs.holds) == (3, True)


def test_duly_is_not_compared_without_rivals() -> None:
    assert of_best_peer("drain", [result("duly", 1.0), result("nats", 1.0)], bar=15) == []


def test_lateness_is_not_compared_with_a_peer_that_delivers_early() -> None:
    def late(question: str, party: str, value: float) -> Result:
        return figure(question, party, "ms", [value, value], higher_is_better=False)

    results = [late("late", "duly", 1.0), late("late", "saq", -30.0), late("late", "celery", 2.0)]
    results += [late(field_delays.EARLIEST, party, at) for party, at in (("saq", -500), ("celery", 1), ("duly", 0.5))]

    (found,) = of_best_peer("late", field_delays._without_early(results), bar=1)

    assert found.question.endswith("(celery)")
    assert found.value == 0.5


def test_a_slow_network_delivers_all_bytes_in_order_after_a_round_trip() -> None:
    sent = bytes(range(256)) * 4000
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        broker = Broker("echo", f"echo://{HOST}:{port}", port, [])
        with slow_network.before(broker, 0.02) as url:
            near = int(url.rpartition(":")[2])
            assert near != port
            with socket.create_connection((HOST, near)) as client:
                began = time.monotonic()
                threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
                first = client.recv(1)
                elapsed = time.monotonic() - began
                rest = bytearray()
                while len(rest) < len(sent) - 1:
                    rest += client.recv(1 << 16)

    assert first + rest == sent
    assert elapsed >= 0.02


def test_peers_far_from_duly_take_part_in_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "running", lambda _kind: nullcontext())

    found = contest.in_turn(contest.sides(["repid"]), 3, lambda side, _broker: side.name, peer_rounds=1)

    assert {name: len(rounds) for name, rounds in found.items()} == {"duly": 3, "duly-always": 3, "repid": 1}


def _echo(server: socket.socket) -> None:
    """Echo everything on all connections, one after another. The first one only tests whether the proxy answers."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
