"""The tables of the pages that have as many rows as there are results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from benchmarks.report.numbers import count, short
from benchmarks.report.results import Figure, NotMeasured, Results

Write = Callable[[Results], str]

NOT_YET: Final = "Not measured yet."
_COUNTED: Final = ("messages", "tasks")
"""The units of whole numbers."""
LABELS: Final = {"": "", "one sample": " ¹", "noisy": " ~"}


def missed(results: Results) -> str:
    """List the targets that were not met."""
    rows = [
        (each.question, f"{_exact(each.value)} {each.unit}", f"{_exact(each.bar or 0)} {each.unit}")
        for each in results.missed()
    ]
    return _table(("", "measured", "target"), rows) if rows else "These runs met all of them."


def _exact(value: float) -> str:
    """Write a figure that is compared with its target."""
    return short(value) if value >= 1_000 else f"{value:.3g}"


def guarantees(results: Results) -> str:
    """Name the settings and the guarantee of each party."""
    peers, rows = results.merged("field", "peers"), []
    for name, side in results.merged("field", "sides").items():
        versions = peers.get(name, {})
        version = next(iter(versions.values()), "")
        who = f"{name} {version}".strip()
        rows.append((who, side["server"], side["guarantee"], side["keeps"], side["settings"]))
    return _table(("", "server", "a message is delivered", "the server keeps it", "settings"), rows)


def field(*columns: tuple[str, str]) -> Write:
    """Draw a table with a row for each party. A column has a heading and a question."""

    def write(results: Results) -> str:
        figures = {(each.question, each.party): each for each in results.of("field")}
        parties = dict.fromkeys(each.party for each in results.of("field"))
        rows = []
        for party in parties:
            found = [figures.get((question, party)) for _, question in columns]
            if any(found):
                rows.append((party, *map(_cell, found)))
        if not rows:
            raise NotMeasured(f"field: {columns[0][1]}")
        return _table(("", *(heading for heading, _ in columns)), rows)

    return write


def behind(results: Results) -> str:
    """List the columns in which a peer with the same guarantee on the same server has a better figure than Duly."""
    sides = results.merged("field", "sides")
    ours = sides["duly"]
    rivals = [
        name
        for name, side in sides.items()
        if name != "duly" and all(side[what] == ours[what] for what in ("server", "guarantee"))
    ]
    figures = {(each.question, each.party): each for each in results.of("field")}
    rows = []
    for question in (question for columns in _COMPARED for _, question in columns):
        own = figures.get((question, "duly"))
        against = [figures[question, rival] for rival in rivals if (question, rival) in figures]
        if own is None or not against:
            continue
        best = max(against, key=lambda each: each.value if each.higher_is_better else -each.value)
        if best.value > own.value if best.higher_is_better else best.value < own.value:
            rows.append((f"{question}, {own.unit}", _cell(own), f"{best.party}: {_cell(best)}"))
    return _table(("", "duly", "the best of the others"), rows) if rows else "There is none."


def celery(results: Results) -> str:
    """Draw a table with a row for each question about Celery, and a column for each transport."""
    figures = {(each.question, each.party): each for each in results.of("celery")}
    parties = list(dict.fromkeys(party for _, party in figures))
    if not figures:
        raise NotMeasured("celery")
    units = {each.question: each.unit for each in figures.values()}
    rows = [
        (f"{question}, {unit}", *(_cell(figures.get((question, party))) for party in parties))
        for question, unit in units.items()
    ]
    return _table(("", *parties), rows)


def scale(words: str, step: str, *beside: str) -> Write:
    """Draw a table with a row for each step of a growth. The question has these words."""

    def write(results: Results) -> str:
        figures = [each for each in results.of("scale") if words in each.question and step in each.beside]
        if not figures:
            raise NotMeasured(f"scale: {words}")
        rows = [
            (
                f"{each.beside[step]:,.0f}",
                _cell(each),
                *(short(each.beside[name]) for name in beside if name in each.beside),
            )
            for each in figures
        ]
        return _table((step, figures[0].unit, *beside), rows)

    return write


def _cell(figure: Figure | None) -> str:
    """Write a median with the range of its samples, and how far it can be trusted."""
    if figure is None:
        return ""
    written = count if figure.unit in _COUNTED else short
    text = written(figure.value)
    if len(figure.samples) > 1 and min(figure.samples) != max(figure.samples):
        text += f" ({written(min(figure.samples))} to {written(max(figure.samples))})"
    return text + LABELS[figure.label]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_RATES: Final = (
    ("send/s", "send, one after another"),
    ("send many/s", "send, many at once"),
    ("drain/s", "drain, one worker process"),
)
_COSTS: Final = (
    ("server CPU of a send, us", "server CPU of a send"),
    ("of a drained message, us", "server CPU of a drained message"),
    ("worker CPU, us", "worker CPU of a message"),
    ("memory waiting, bytes", "memory of a waiting message"),
)
_LATENCY: Final = (
    ("idle p50, ms", "latency, idle, p50"),
    ("idle p99, ms", "latency, idle, p99"),
    ("half load p50, ms", "latency, half load, p50"),
    ("half load p99, ms", "latency, half load, p99"),
)
_DELAYS: Final = (
    ("200 over 5 s, late p50, ms", "delayed over 5 s, late, p50"),
    ("late p99, ms", "delayed over 5 s, late, p99"),
    ("5,000 at once, the last one, ms", "5,000 due at once, the last one"),
    ("10 queues, late p50, ms", "delayed, 10 queues, late, p50"),
    ("10 queues, late p99, ms", "delayed, 10 queues, late, p99"),
)
_BODIES: Final = tuple(
    (f"{what}/s, {size}", f"{what}, bodies of {size}")
    for what in ("send", "drain")
    for size in ("100 B", "10 KB", "1 MB")
)
_NETWORK: Final = (
    ("send/s", "network of 1 ms: send"),
    ("send many/s", "network of 1 ms: send many"),
    ("drain/s", "network of 1 ms: drain"),
    ("idle p50, ms", "network of 1 ms: latency, idle, p50"),
)
_COMPARED: Final = (_RATES, _COSTS, _LATENCY, _DELAYS, _BODIES, _NETWORK)
"""The columns that compare speed and cost."""

TABLES: Final[Mapping[str, Write]] = {
    "table.missed": missed,
    "table.guarantees": guarantees,
    "table.behind": behind,
    "table.rates": field(*_RATES),
    "table.costs": field(
        *_COSTS[:3],
        ("wall time, of the larger CPU time", "drain: wall time of a message, of the larger CPU time"),
        _COSTS[3],
    ),
    "table.latency": field(*_LATENCY[:2], ("half load, messages/s", "half load"), *_LATENCY[2:]),
    "table.delays": field(*_DELAYS, ("the earliest, ms", "delayed, the earliest")),
    "table.kills": field(
        ("lost", "kill -9: lost"),
        ("started twice", "kill -9: started twice"),
        ("the last one done after, s", "kill -9: the last one done after"),
    ),
    "table.bodies": field(*_BODIES),
    "table.network": field(*_NETWORK),
    "table.celery": celery,
    "table.growth": scale("claim and release", "waiting", "bytes a message"),
    "table.queues.idle": scale("queues, idle", "queues", "server's, %"),
    "table.queues.latency": scale("messages/s over them", "queues", "p50 ms", "most ms"),
    "table.processes": scale("drain", "processes", "cores"),
}
