"""Runs all benchmarks in a temporary namespace."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from duly import Duly, UsageError
from duly.bench import benchmarks, server_use
from duly.bench.figure import Figure, Sample, figures

_LONGEST_PART: Final = 100
"""Characters of the user's namespace that the temporary one begins with."""


@dataclass(frozen=True)
class Bench:
    """The figures of one run."""

    server: str
    messages: int
    body_bytes: int
    rounds: int
    figures: tuple[Figure, ...]


def run(
    app: Duly,
    *,
    messages: int = 20_000,
    body_bytes: int = 100,
    rounds: int = 3,
    on_progress: Callable[[str, int], None] | None = None,
) -> Bench:
    """Run all benchmarks in each round. `on_progress` gets the title of the next one, and how many are done."""
    if app._address.kind == "memory":
        raise UsageError("memory:// has no server to measure: give a --url, or leave it out for the embedded one")
    server_use.check_room(app, messages, body_bytes)
    found: list[list[Sample]] = []
    done = 0
    with Duly(app, namespace=_own_namespace(app.namespace)) as own:
        queue = own.queue("bench", lease=60)
        try:
            for _ in range(rounds):
                samples: list[Sample] = []
                for title, measure in benchmarks.ALL.items():
                    if on_progress is not None:
                        on_progress(title, done)
                    samples += measure(benchmarks.Load(own, queue, messages, "." * body_bytes))
                    done += 1
                found.append(samples)
        finally:
            queue.delete()
    shown = f"{app!r}".strip("<>").removeprefix("Duly on ")
    return Bench(shown, messages, body_bytes, rounds, figures(found))


def _own_namespace(namespace: str) -> str:
    """Name a namespace that no other program uses, in braces if the given one is."""
    end = f"-bench-{secrets.token_hex(6)}"
    if namespace.endswith("}"):
        return f"{namespace[:-1][:_LONGEST_PART]}{end}}}"
    return f"{namespace[:_LONGEST_PART]}{end}"
