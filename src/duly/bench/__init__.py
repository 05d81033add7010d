"""Quick benchmarks on the user's own server. The suites that compare with other libraries are in benchmarks/."""

from duly.bench.bench import Bench, run
from duly.bench.figure import Figure

__all__ = ["Bench", "Figure", "run"]
