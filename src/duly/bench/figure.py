"""The values that a run measures."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One measured value: the median of all rounds, and the value of each round."""

    name: str
    value: float
    unit: str
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Sample:
    """A value of one round."""

    name: str
    value: float
    unit: str


def figures(rounds: list[list[Sample]]) -> tuple[Figure, ...]:
    """Combine the rounds, in the order of the first one."""
    values: dict[tuple[str, str], list[float]] = {}
    for samples in rounds:
        for sample in samples:
            values.setdefault((sample.name, sample.unit), []).append(sample.value)
    return tuple(Figure(name, median(found), unit, tuple(found)) for (name, unit), found in values.items())


def waits(name: str, seconds: list[float]) -> list[Sample]:
    """Return the median and the 99th percentile of waits, in milliseconds."""
    ordered = sorted(seconds)
    return [
        Sample(f"{name}, p50", ordered[len(ordered) // 2] * 1000, "ms"),
        Sample(f"{name}, p99", ordered[len(ordered) * 99 // 100] * 1000, "ms"),
    ]
