"""Run the benchmarks: `python -m benchmarks [name ...]`. Prints a table and keeps the results as JSON."""

import importlib
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rig import Result, running_rig

QUESTIONS = (
    "server_cost",
    "send_and_receive",
    "single_send",
    "concurrent_sends",
    "memory_per_message",
    "claim_growth",
)
RESULTS = Path(__file__).parent / "results"


def show(result: Result) -> None:
    """Print one line."""
    sign = ">=" if result.higher_is_better else "<="
    verdict = "ok  " if result.holds else "MISS"
    beside = "  ".join(f"{name}: {value:,.6g}" for name, value in result.beside.items())
    figure = f"{result.value:,.2f}" if result.value < 100 else f"{result.value:,.0f}"
    print(
        f"{verdict} {result.question:50} {figure:>10} {result.unit:11} (bar {sign} {result.bar:,g})  {beside}",
        flush=True,
    )


def main(names: list[str]) -> int:
    """Measure, print, keep; the exit status says whether all bars were cleared."""
    results: list[Result] = []
    with running_rig() as rig:
        version, before = rig.version(), rig.calibration()
        print(f"{version}, Python {platform.python_version()}, calibration {before}", flush=True)
        for name in names or QUESTIONS:
            for result in importlib.import_module(f"benchmarks.{name}").measure(rig):
                results.append(result)
                show(result)
        after = rig.calibration()
    print(f"calibration at the end {after}")
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "server": version,
        "python": platform.python_version(),
        "calibration": {"before": before, "after": after},
        "results": [result.as_json() for result in results],
    }
    if not names:
        (RESULTS / "engine.json").write_text(json.dumps(kept, indent=1) + "\n")
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
