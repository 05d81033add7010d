"""Run the benchmarks: `python -m benchmarks [suite or question ...]`. Prints a table, and stores the figures."""

import argparse
import functools
import importlib
import platform
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from benchmarks import kept
from benchmarks.contest import sides
from benchmarks.peers import brokers, environments
from benchmarks.peers.catalog import PEERS
from benchmarks.rig import Result, Rig, running_rig

SUITES: Final = {
    "wire": ("wire_trip",),
    "engine": (
        "server_cost",
        "keyed_cost",
        "send_and_receive",
        "single_send",
        "concurrent_sends",
        "memory_per_message",
        "history_cost",
        "claim_growth",
        "command_start",
    ),
    "topic": (
        "topic_publish",
        "topic_cost",
        "topic_growth",
        "topic_drain",
    ),
    "worker": (
        "worker_drain",
        "worker_latency",
        "worker_delays",
        "worker_recovery",
        "worker_idle",
        "worker_fairness",
    ),
    "field": (
        "field_rates",
        "field_latency",
        "field_delays",
        "field_kills",
        "field_bodies",
        "field_network",
    ),
    "celery": (
        "celery_transports",
        "celery_crowd",
    ),
    "scale": (
        "scale_growth",
        "scale_queues",
        "scale_processes",
        "scale_cluster",
    ),
}
USUAL_SUITES: Final = tuple(suite for suite in SUITES if suite != "scale")
"""The suites that run by default: growth takes long."""


def show(result: Result) -> None:
    """Print one line."""
    sign = ">=" if result.higher_is_better else "<="
    verdict = "    " if result.bar is None else "ok  " if result.holds else "MISS"
    bar = "" if result.bar is None else f"(target {sign} {result.bar:,g})"
    beside = "  ".join(f"{name}: {value:,.6g}" for name, value in result.beside.items())
    figure = f"{result.value:,.2f}" if abs(result.value) < 100 else f"{result.value:,.0f}"
    question = f"{result.question}, {result.party}" if result.party else result.question
    print(f"{verdict} {question:50} {figure:>10} {result.unit:11} {bar:16} {beside}", flush=True)


def run(suite: str, question: str, wanted: argparse.Namespace) -> bool:
    """Measure one question, print and store its figures, and return whether all targets were met."""
    versions = prepared(tuple(_peers(suite, wanted.peers)))
    began = time.monotonic()
    results: list[Result] = []
    with running_rig() as rig:
        rig.peers, rig.rounds, rig.part = tuple(versions), wanted.rounds, wanted.part
        version, before = rig.version(), rig.calibration()
        print(f"{version}, Python {platform.python_version()}, calibration {before}", flush=True)
        for result in importlib.import_module(f"benchmarks.{question}").measure(rig):
            results.append(result)
            show(result)
        after = rig.calibration()
    print(f"calibration at the end {after}", flush=True)
    part = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": kept.commit(),
        "seconds": round(time.monotonic() - began),
        "server": version,
        "python": platform.python_version(),
        "calibration": {"before": before, "after": after},
        **({"peers": versions} if versions else {}),
        **({"sides": _sides(versions)} if suite == "field" else {}),
        "results": [result.as_json() for result in results],
    }
    if not is_trial(wanted):
        kept.keep(suite, question, part, SUITES[suite])
    return all(result.holds for result in results)


def is_trial(wanted: argparse.Namespace) -> bool:
    """Whether a run stores nothing: it has fewer rounds, fewer messages, or chosen peers."""
    return wanted.rounds < Rig.rounds or wanted.part < Rig.part or wanted.peers is not None


def _peers(suite: str, wanted: Sequence[str] | None) -> Sequence[str]:
    """List the peers that are measured."""
    if suite == "field":
        return tuple(PEERS) if wanted is None else wanted
    if suite == "worker":  # all on the server of the rig
        return [name for name in wanted or () if PEERS[name].broker == "valkey"]
    return []


def _sides(peers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Name the server, the settings and the guarantee of each party."""
    return {
        side.name: {
            "server": f"{side.broker} {brokers.version(side.broker)}".strip(),
            "guarantee": side.guarantee,
            "keeps": side.keeps,
            "settings": side.settings,
        }
        for side in sides(peers)
    }


@functools.cache
def prepared(peers: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Install peers where needed, and return the versions of those that can be measured."""
    versions = {}
    for peer in peers:
        try:
            versions[peer] = environments.prepare(peer)
            print(f"{peer}: {', '.join(' '.join(pair) for pair in versions[peer].items())}", flush=True)
        except environments.NotInstalled as error:
            print(f"without {error}", flush=True)
    return versions


def main(args: Sequence[str]) -> int:
    """Run the chosen questions, and return the exit status: 0 if all targets were met."""
    wanted = parsed(args)
    return 0 if _run_all(_asked(wanted.names, wanted.resume), wanted) else 1


def parsed(args: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Duly. Default: all suites but scale."
    )
    known = [*SUITES, *(question for questions in SUITES.values() for question in questions)]
    parser.add_argument("names", nargs="*", metavar="suite or question", help=f"of {', '.join(known)}")
    compared = f"peers for the worker and the field: none, or of {','.join(PEERS)}; not stored"
    parser.add_argument("--peers", help=compared)
    parser.add_argument(
        "--rounds", type=int, default=Rig.rounds, help="of the worker's questions and the field's; fewer are not stored"
    )
    parser.add_argument(
        "--part",
        type=float,
        default=Rig.part,
        help="of all messages in the field and of growth; less is a trial, not stored",
    )
    parser.add_argument("--resume", type=float, metavar="HOURS", help="skip questions stored in the last HOURS")
    wanted = parser.parse_args(args)
    if wanted.peers is not None:
        wanted.peers = [] if wanted.peers == "none" else wanted.peers.split(",")
    if unknown := {*wanted.names} - {*known} | {*(wanted.peers or ())} - {*PEERS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return wanted


def _asked(names: Sequence[str], resume: float | None) -> list[tuple[str, str]]:
    """List suites and questions, without those that were stored in the last `hours`."""
    asked = []
    for suite, questions in SUITES.items():
        is_whole, parts = suite in (names or USUAL_SUITES), kept.parts_of(suite)
        for question in questions:
            is_done = resume is not None and kept.is_recent(parts.get(question), resume)
            if (is_whole or question in names) and not is_done:
                asked.append((suite, question))
    return asked


def _run_all(asked: Sequence[tuple[str, str]], wanted: argparse.Namespace) -> bool:
    """Run the questions in order. Before each, print how long it and the rest took when they were last stored."""
    is_cleared = True
    for number, (suite, question) in enumerate(asked):
        estimates = [kept.seconds_of(kept.parts_of(each).get(name)) for each, name in asked[number:]]
        known = [seconds for seconds in estimates if seconds is not None]
        more = " or more" if len(known) < len(estimates) else ""
        estimate = "" if is_trial(wanted) or not known else f", about {sum(known) / 60:.0f} minutes left{more}"
        print(f"--- {number + 1} of {len(asked)}: {question}{estimate}", flush=True)
        is_cleared = run(suite, question, wanted) and is_cleared
    return is_cleared


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that the servers end as well
    sys.exit(main(sys.argv[1:]))
