"""What Duly does on the user's own server, in a few seconds. The suites that run peers are in benchmarks/."""

from duly.bench.bench import Bench, run
from duly.bench.benchmarks import Figure

__all__ = ["Bench", "Figure", "run"]
