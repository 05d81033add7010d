"""Runs all benchmarks in a temporary queue."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from duly import Duly, UsageError
from duly.bench import benchmarks
from duly.bench.benchmarks import Figure


@dataclass(frozen=True)
class Bench:
    """The figures of one run."""

    server: str
    messages: int
    body_bytes: int
    figures: tuple[Figure, ...]


def run(
    app: Duly, *, messages: int = 20_000, body_bytes: int = 100, on_progress: Callable[[str, int], None] | None = None
) -> Bench:
    """Run all benchmarks. `on_progress` gets the title of the next one, and how many are done."""
    if app._address.kind == "memory":
        raise UsageError("memory:// has no server to measure: give a --url, or leave it out for the embedded one")
    queue = app.queue(f"bench-{secrets.token_hex(6)}", lease=60)
    body = "." * body_bytes
    figures: list[Figure] = []
    try:
        for done, (title, measure) in enumerate(benchmarks.ALL.items()):
            if on_progress is not None:
                on_progress(title, done)
            figures += measure(benchmarks.Load(app, queue, messages, body))
    finally:
        queue.delete()
    return Bench(f"{app!r}".strip("<>").removeprefix("Duly on "), messages, body_bytes, tuple(figures))
