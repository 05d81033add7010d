"""Durations as people write them: 500ms, 30s, 5m, 2h, 1d, 1h30m."""

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")


def read_duration(text: str) -> float | None:
    """Read a duration with units, in seconds; None: the text is something else."""
    written = text.strip().lower()
    if not _DURATION.fullmatch(written):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(written))
