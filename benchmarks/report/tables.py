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
    rows = [(described(each.question), _exact(each.value, each.unit), _target(each)) for each in results.missed()]
    return _table(("", "measured", "target"), rows) if rows else "These runs met all of them."


def described(question: str) -> str:
    """Write the question of a target so that it is clear without the benchmark."""
    name, _, rival = question.partition(": Duly, of the best peer on Valkey (")
    text = _QUESTIONS.get(name, name)
    return f"{text}, relative to {rival.removesuffix(')')}, the best peer on Valkey" if rival else text


def _exact(value: float, unit: str) -> str:
    """Write a figure that is compared with its target."""
    number = short(value) if value >= 1_000 else f"{value:.3g}"
    return number if unit in ("x", "ratio") else f"{number} {unit}"


def _target(figure: Figure) -> str:
    return f"at {'least' if figure.higher_is_better else 'most'} {_exact(figure.bar or 0, figure.unit)}"


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
    """List the columns in which a peer with the same guarantee on the same server has a better figure than Duly.

    Figures that are written alike are equal. A peer that delivers early does not count for lateness.
    """
    sides = results.merged("field", "sides")
    ours = sides["duly"]
    rivals = [
        name
        for name, side in sides.items()
        if name != "duly" and all(side[what] == ours[what] for what in ("server", "guarantee"))
    ]
    figures = {(each.question, each.party): each for each in results.of("field")}
    early = {party for (question, party), each in figures.items() if question == _EARLIEST and each.value < 0}
    rows = []
    for heading, question in (column for columns in _COMPARED for column in columns):
        own = figures.get((question, "duly"))
        fair = [rival for rival in rivals if rival not in early or (heading, question) not in _DELAYS]
        against = [figures[question, rival] for rival in fair if (question, rival) in figures]
        if own is None or not against:
            continue
        best = max(against, key=lambda each: each.value if each.higher_is_better else -each.value)
        is_better = best.value > own.value if best.higher_is_better else best.value < own.value
        if is_better and short(best.value) != short(own.value):
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


def scale(words: str, step: str, *beside: str, heads: Sequence[str] = ()) -> Write:
    """Draw a table with a row for each step of a growth. The question has these words, the columns these headings."""

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
        return _table(heads or (step, figures[0].unit, *beside), rows)

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
_EARLIEST: Final = "delayed, the earliest"
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

_QUESTIONS: Final = {
    "server CPU for a message's life, batches of 100": "server CPU of a message from send to ack, in batches of 100",
    "server CPU with a key / without, 1,000 keys in turn": (
        "server CPU of a message with `key=`, 1,000 keys in turn, relative to one without"
    ),
    "server CPU with a key / without, 1,000 keys at random": (
        "server CPU of a message with `key=`, 1,000 keys at random, relative to one without"
    ),
    "server CPU of a message's life with history / without, batches of 1": (
        "server CPU of a single message from send to ack, relative to one without history"
    ),
    "server CPU of a message's life with history / without, batches of 100": (
        "server CPU of a message from send to ack in batches of 100, relative to one without history"
    ),
    "server CPU of a message on three primaries / on one server": (
        "server CPU of a message on a cluster of three primaries, relative to one server"
    ),
    "three primaries: CPU of the busiest, of an equal part": (
        "work of the busiest of three primaries, relative to an equal part"
    ),
    "idle, 1 queue: calls": "calls of an idle worker of one queue",
    "single send, of a bare EVALSHA": "a single `send`, relative to a bare EVALSHA",
    "100 concurrent awaits of send": "100 concurrent `await queue.send()`",
    "memory of a waiting message of 100 bytes": "memory of a waiting message with a body of 100 bytes",
    "claim with 1,000,000 waiting, of one with 1,000": "a claim with 1,000,000 waiting, relative to one with 1,000",
    "server CPU, three groups / three queues, kept for 7 days": (
        "server CPU of three groups of a topic whose entries are kept for 7 days, relative to three queues"
    ),
    "server CPU, three groups / three queues, freed when acked": (
        "server CPU of three groups of a topic whose entries are deleted after the last ack, relative to three queues"
    ),
    "claim + ack with 1,000,000 entries, of one with 10,000": (
        "claim and ack with 1,000,000 entries in a topic, relative to 10,000"
    ),
    "latency, idle, p50": "time from `send` to the handler of an idle worker, p50",
    "latency, idle, p99": "time from `send` to the handler of an idle worker, p99",
    "delayed over 5 s, late, p50": "lateness of 200 messages over 5 s, p50",
    "delayed over 5 s, late, p99": "lateness of 200 messages over 5 s, p99",
    "delayed, 10 queues, late, p50": "lateness of 400 messages in ten queues, p50",
    "delayed, 10 queues, late, p99": "lateness of 400 messages in ten queues, p99",
    "drain: wall time of a message, of the larger CPU time": (
        "wall time of a message in a drain, relative to the larger CPU time of worker and server"
    ),
}
"""Questions of targets whose names are too short to be clear on a page."""

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
    "table.delays": field(*_DELAYS, ("the earliest, ms", _EARLIEST)),
    "table.kills": field(
        ("lost", "kill -9: lost"),
        ("started twice", "kill -9: started twice"),
        ("the last one done after, s", "kill -9: the last one done after"),
    ),
    "table.bodies": field(*_BODIES),
    "table.network": field(*_NETWORK),
    "table.celery": celery,
    "table.growth": scale(
        "claim and release",
        "waiting",
        "bytes a message",
        heads=("messages waiting", "server CPU of a claim and a release of 100, us", "server memory, bytes/message"),
    ),
    "table.queues.idle": scale(
        "queues, idle", "queues", "server's, %", heads=("queues", "worker CPU, % of a core", "server CPU, % of a core")
    ),
    "table.queues.latency": scale(
        "messages/s over them", "queues", "p50 ms", "most ms", heads=("queues", "p99, ms", "p50, ms", "longest, ms")
    ),
    "table.processes": scale(
        "drain", "processes", "cores", heads=("worker processes", "messages/s", "cores of the machine")
    ),
}
