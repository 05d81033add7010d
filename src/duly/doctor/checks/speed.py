"""How fast it answers, and what holds it up."""

from collections.abc import Sequence
from typing import Final

from duly.doctor.facts import PAUSE, Facts, Missing
from duly.doctor.reading import number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject, setting_mend
from duly.doctor.wording import listed, milliseconds

LATENCY: Final = Subject(
    "latency",
    "Every send, claim and settle is a round trip, and one that takes more than 5 s counts as a server that is away.",
)
BLOCKING: Final = Subject(
    "blocking", "Idle consumers wait on the server: one that cannot block would have to ask again and again."
)
SLOW_LOG: Final = Subject(
    "slow-log", "The server does one thing at a time: while a command is slow, every queue stands still."
)
STALLS: Final = Subject("stalls", "What stops the server stops every queue: leases go on running out meanwhile.")
COMPACT_FORMS: Final = Subject(
    "compact-forms",
    "In its compact form a key is searched from the front; leases are kept out of it by members of 65 bytes.",
)

# All in seconds.
SLOW_PING: Final = 0.005
SLOW_TAIL: Final = 0.05
STUCK: Final = 1.0
LATE_WAKE: Final = 1.0
SLOW_COMMAND: Final = 0.1
LONG_STALL: Final = 0.5

_FORMS: Final = (("zset", "value", 64), ("hash", "value", 64), ("zset", "entries", 512), ("hash", "entries", 1024))
"""Kind of key, limit of what, and how far it may be raised."""


def latency(facts: Facts) -> Finding:
    """Judge the round trips that were measured."""
    if isinstance(facts.scripts, Missing):
        return LATENCY.unknown(facts, facts.scripts)
    told = {"PING": facts.pings, "a script": facts.scripts}  # few users may PING; all who work run scripts
    samples = {name: took for name, took in told.items() if not isinstance(took, Missing)}
    middle, tail = (max(percentile(took, percent) for took in samples.values()) for percent in (50, 99))
    found = "; ".join(
        f"{name} p50 {milliseconds(percentile(took, 50))}, p99 {milliseconds(percentile(took, 99))}"
        for name, took in samples.items()
    )
    mend = "# have workers and server in one network; redis-cli --intrinsic-latency 5 says what its machine adds"
    if tail > STUCK:
        return LATENCY.bad(found, mend)
    return LATENCY.warn(found, mend) if middle > SLOW_PING or tail > SLOW_TAIL else LATENCY.ok(found)


def percentile(samples: Sequence[float], percent: int) -> float:
    """Take a percentile; 0 of none."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else 0.0


def blocking(facts: Facts) -> Finding:
    """Judge a wait on a key that nobody fills."""
    took = facts.blocked
    if isinstance(took, Missing):
        return BLOCKING.unknown(facts, took)
    found = f"a wait of {milliseconds(PAUSE)} took {milliseconds(took)}"
    if PAUSE * 0.8 <= took <= PAUSE + LATE_WAKE:
        return BLOCKING.ok(found)
    return BLOCKING.warn(found, "# connect to the server itself: a proxy between may not let clients wait")


def slow_log(facts: Facts) -> Finding:
    """Look for slow scripts, and for slow commands of others."""
    if isinstance(facts.slow, Missing):
        return SLOW_LOG.unknown(facts, facts.slow)
    if number(told if isinstance(told := facts.setting("slowlog-log-slower-than"), str) else "0") < 0:
        return SLOW_LOG.warn("the slow log is off", setting_mend(facts, ("slowlog-log-slower-than", "10000")))
    slow = sorted((each for each in facts.slow if each.seconds >= SLOW_COMMAND), key=lambda each: -each.seconds)
    if not slow:
        return SLOW_LOG.ok(f"no command of the last day took {milliseconds(SLOW_COMMAND)}")
    named = listed(
        [f"{each.command}{' of a queue' if each.is_ours else ''} {milliseconds(each.seconds)}" for each in slow], 3
    )
    return SLOW_LOG.warn(
        f"{len(slow)} slow commands in the last day: {named}",
        "# SLOWLOG GET 10 shows who ran what: KEYS becomes SCAN, big ranges become pages. Then forget them:\n"
        "SLOWLOG RESET",
    )


def stalls(facts: Facts) -> Finding:
    """Look at what the latency monitor noted."""
    if isinstance(facts.stalls, Missing):
        return STALLS.unknown(facts, facts.stalls)
    if facts.setting("latency-monitor-threshold") == "0":
        return STALLS.ok("not watched: latency-monitor-threshold is 0")
    long = sorted((each for each in facts.stalls if each.longest >= LONG_STALL), key=lambda each: -each.longest)
    if not long:
        return STALLS.ok(f"none of {milliseconds(LONG_STALL)} in the last day")
    named = listed([f"{each.event} {milliseconds(each.longest)}" for each in long])
    return STALLS.warn(
        f"in the last day: {named}", "# LATENCY DOCTOR says what each of them is; then forget them:\nLATENCY RESET"
    )


def compact_forms(facts: Facts) -> Finding:
    """Look whether the limits of the compact forms are as the keys were laid out for."""
    if isinstance(facts.settings, Missing):
        return COMPACT_FORMS.unknown(facts, facts.settings)
    beyond: list[tuple[str, str, int]] = []
    for kind, what, most in _FORMS:
        for form in ("listpack", "ziplist"):  # Redis 6.2 knows the second, later ones both
            name = f"{kind}-max-{form}-{what}"
            if number(value := facts.settings.get(name, "0")) > most:
                beyond.append((name, value, most))
                break
    if not beyond:
        return COMPACT_FORMS.ok("within what the keys were laid out for")
    return COMPACT_FORMS.warn(
        ", ".join(f"{name} {value}" for name, value, _ in beyond),
        setting_mend(facts, *((name, str(min(most, 512))) for name, _, most in beyond)),
    )
