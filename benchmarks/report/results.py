"""Reads the stored results. A question that was never run to the end has none."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.kept import RESULTS, Part, parts_of

NOISY: Final = 0.3
"""Samples whose spread is more than this part of their median are called noisy."""


class NotMeasured(Exception):
    """No result is kept for a question."""


@dataclass(frozen=True)
class Figure:
    """One result with its samples."""

    question: str
    value: float
    unit: str
    samples: list[float]
    beside: dict[str, float]
    party: str
    bar: float | None
    holds: bool
    higher_is_better: bool

    @property
    def label(self) -> str:
        """Label a figure that should not be compared closely: a single sample, or samples that are far apart."""
        if len(self.samples) < 2:
            return "one sample"
        middle = median(self.samples)
        is_noisy = bool(middle) and (max(self.samples) - min(self.samples)) / abs(middle) > NOISY
        return "noisy" if is_noisy else ""


class Results:
    """All suites that have results in a directory."""

    def __init__(self, directory: Path = RESULTS) -> None:
        self._directory = directory

    @cached_property
    def _suites(self) -> dict[str, dict[str, Part]]:
        return {path.stem: parts_of(path.stem, self._directory) for path in sorted(self._directory.glob("*.json"))}

    def parts(self, suite: str) -> list[Part]:
        """Return the parts of a suite, one for each question: when, on which machine and with which peers it ran."""
        if suite not in self._suites:
            raise NotMeasured(suite)
        return list(self._suites[suite].values())

    def merged(self, suite: str, what: str) -> dict[str, Any]:
        """Return what all parts of a suite have under a name. Later questions win."""
        return {key: value for part in self.parts(suite) for key, value in part.get(what, {}).items()}

    def of(self, suite: str) -> list[Figure]:
        """Return the figures of a suite."""
        return [
            Figure(
                question=each["question"],
                value=each["value"],
                unit=each["unit"],
                samples=each["samples"],
                beside=each["beside"],
                party=each.get("party", ""),
                bar=each["bar"],
                holds=each["holds"],
                higher_is_better=each["higher_is_better"],
            )
            for part in self.parts(suite)
            for each in part["results"]
        ]

    def figure(self, suite: str, question: str, party: str = "") -> Figure:
        """Find the figure that answers a question."""
        for figure in self.of(suite):
            if (figure.question, figure.party) == (question, party):
                return figure
        raise NotMeasured(f"{suite}: {question}")

    def missed(self) -> list[Figure]:
        """List the figures that do not reach their bars."""
        return [
            figure
            for suite in self._suites
            if suite in SUITES_WITH_BARS
            for figure in self.of(suite)
            if not figure.holds
        ]


SUITES_WITH_BARS: Final = ("wire", "engine", "topic", "worker", "field", "scale")
