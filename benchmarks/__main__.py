"""Run the benchmarks: `python -m benchmarks [suite or question ...]`. Prints a table and keeps the results as JSON."""

import argparse
import importlib
import json
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.contest import sides
from benchmarks.peers import brokers, environments
from benchmarks.peers.catalog import PEERS, USUAL
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
        "claim_growth",
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
    ),
}
USUAL_SUITES: Final = tuple(suite for suite in SUITES if suite != "scale")
"""What runs unless told otherwise: growth takes long."""

RESULTS = Path(__file__).parent / "results"


def show(result: Result) -> None:
    """Print one line."""
    sign = ">=" if result.higher_is_better else "<="
    verdict = "    " if result.bar is None else "ok  " if result.holds else "MISS"
    bar = "" if result.bar is None else f"(bar {sign} {result.bar:,g})"
    beside = "  ".join(f"{name}: {value:,.6g}" for name, value in result.beside.items())
    figure = f"{result.value:,.2f}" if abs(result.value) < 100 else f"{result.value:,.0f}"
    question = f"{result.question}, {result.party}" if result.party else result.question
    print(f"{verdict} {question:50} {figure:>10} {result.unit:11} {bar:16} {beside}", flush=True)


def run(suite: str, questions: Sequence[str], wanted: argparse.Namespace) -> bool:
    """Measure, print, keep; say whether all bars were cleared."""
    results: list[Result] = []
    versions = prepared(_peers(suite, wanted.peers))
    with running_rig() as rig:
        rig.peers, rig.rounds, rig.part = tuple(versions), wanted.rounds, wanted.part
        version, before = rig.version(), rig.calibration()
        print(f"{version}, Python {platform.python_version()}, calibration {before}", flush=True)
        for question in questions:
            for result in importlib.import_module(f"benchmarks.{question}").measure(rig):
                results.append(result)
                show(result)
        after = rig.calibration()
    print(f"calibration at the end {after}")
    kept = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "server": version,
        "python": platform.python_version(),
        "calibration": {"before": before, "after": after},
        **({"peers": versions} if versions else {}),
        **({"sides": _sides(versions)} if suite == "field" else {}),
        "results": [result.as_json() for result in results],
    }
    is_whole = set(questions) == set(SUITES[suite]) and wanted.rounds >= Rig.rounds and wanted.part >= Rig.part
    if is_whole:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{suite}.json").write_text(json.dumps(kept, indent=1) + "\n")
    return all(result.holds for result in results)


def _peers(suite: str, wanted: Sequence[str] | None) -> Sequence[str]:
    """List who is measured beside Duly."""
    if suite == "field":
        return tuple(PEERS) if wanted is None else wanted
    if suite == "worker":  # all on the server of the rig
        return [name for name in (USUAL if wanted is None else wanted) if PEERS[name].broker == "valkey"]
    return []


def _sides(peers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Name the server, the settings and the guarantee of everyone who took part."""
    return {
        side.name: {
            "server": f"{side.broker} {brokers.version(side.broker)}".strip(),
            "guarantee": side.guarantee,
            "keeps": side.keeps,
            "settings": side.settings,
        }
        for side in sides(peers)
    }


def prepared(peers: Sequence[str]) -> dict[str, dict[str, str]]:
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
    """Run what is asked for; the exit status says whether all bars were cleared."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Duly. Default: all suites but scale."
    )
    known = [*SUITES, *(question for questions in SUITES.values() for question in questions)]
    parser.add_argument("names", nargs="*", metavar="suite or question", help=f"of {', '.join(known)}")
    beside = f"beside the worker and in the field: none, all, or of {','.join(PEERS)}"
    parser.add_argument("--peers", help=beside)
    parser.add_argument(
        "--rounds", type=int, default=Rig.rounds, help="of the worker's questions and the field's; fewer are not kept"
    )
    parser.add_argument(
        "--part",
        type=float,
        default=Rig.part,
        help="of all messages in the field and of growth; less is a trial, not kept",
    )
    wanted = parser.parse_args(args)
    if wanted.peers is not None:
        wanted.peers = {"all": list(PEERS), "none": []}.get(wanted.peers, wanted.peers.split(","))
    if unknown := {*wanted.names} - {*known} | {*(wanted.peers or ())} - {*PEERS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    is_cleared = True
    for suite, all_of_it in SUITES.items():
        whole = suite in (wanted.names or USUAL_SUITES)
        questions = [question for question in all_of_it if whole or question in wanted.names]
        if questions:
            is_cleared = run(suite, questions, wanted) and is_cleared
    return 0 if is_cleared else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
