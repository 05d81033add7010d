"""The stored results: a file for each suite, with a part for each question: its date, versions and calibration.

A run of one question replaces its part and leaves the others as they are.
"""

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"

Part = dict[str, Any]
"""The results of one question: when, on which commit and versions, and in how many seconds."""


def parts_of(suite: str, directory: Path = RESULTS) -> dict[str, Part]:
    """Return the stored results of a suite, by question."""
    path = directory / f"{suite}.json"
    parts: dict[str, Part] = json.loads(path.read_text())["questions"] if path.exists() else {}
    return parts


def commit() -> str:
    """Name the commit that is measured, with a + if files differ from it."""
    asked = ("git", "-C", str(RESULTS.parent), "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+")
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def keep(suite: str, question: str, part: Part, order: Sequence[str], directory: Path = RESULTS) -> None:
    """Replace the part of one question. Questions that a suite no longer has are dropped."""
    parts = {**parts_of(suite, directory), question: part}
    ordered = {name: parts[name] for name in order if name in parts}
    directory.mkdir(exist_ok=True)
    partial = directory / f"{suite}.partial"
    partial.write_text(json.dumps({"questions": ordered}, indent=1) + "\n")
    partial.rename(directory / f"{suite}.json")


def is_recent(part: Part | None, hours: float) -> bool:
    """Whether a question was measured in the last `hours`."""
    return part is not None and datetime.now(UTC) - datetime.fromisoformat(part["at"]) < timedelta(hours=hours)


def seconds_of(part: Part | None) -> float | None:
    """Return how long a question took when it was last stored."""
    return None if part is None else part.get("seconds")
