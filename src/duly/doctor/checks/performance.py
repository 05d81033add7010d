"""What the clocks say, how fast the server answers, and what holds it up."""

from collections.abc import Mapping, Sequence
from typing import Final

from duly.doctor.facts import PAUSE, Facts, Missing, fields, number
from duly.doctor.report import Finding, Subject, in_shell, listed, milliseconds, setting_mend, size

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


# What the server does with scripts: when it calls one stuck, and how many it remembers.
#
# INFO tells of the cache in different words: Redis 6.2 has `used_memory_scripts` and `used_memory_lua`, which are
# `used_memory_scripts_eval` and `used_memory_vm_eval` since Redis 7.0 and in Valkey, where functions have numbers of
# their own. `evicted_scripts` is there since Redis 7.4 and Valkey 8.0: older servers forget no script by themselves.

SCRIPT_LIMIT: Final = Subject(
    "script-limit",
    "From this time on the server says that a script is stuck, and lets somebody end it with SCRIPT KILL.",
)
SCRIPT_CACHE: Final = Subject(
    "script-cache",
    "A call whose script the server has forgotten is made twice, the second time with the text. Whoever builds the "
    "text of scripts from data fills the memory of a server that forgets none, and has the others forget ours.",
)

SHORTEST_LIMIT_MS: Final = 500
LONGEST_LIMIT_MS: Final = 5000
"""Above it, calls give the server up before it says that it is busy."""
REMEMBERED: Final = 500
"""Scripts of EVAL that a server keeps which evicts them. As many evictions: the cache was filled twice over."""
MANY: Final = 1000
"""Scripts where none is forgotten. Duly has some 120; two versions of it and other libraries stay far below."""
BIG: Final = 32 * 1024 * 1024
MISSED: Final = 0.01
"""Share of calls that are made twice, before it is worth a word: one in a hundred."""
MISSES: Final = 1000
"""Fewer say nothing: after a restart of the server each client may miss each script once."""
_ASK_WHO: Final = (
    "# see who sends text with values in it, which belong into KEYS and ARGV: redis-cli MONITOR, for a moment"
)


def script_limit(facts: Facts) -> Finding:
    """Look when the server calls a script stuck."""
    name = "busy-reply-threshold"
    limit = facts.setting(name)
    if isinstance(limit, Missing):
        name = "lua-time-limit"  # of servers before 7.0
        limit = facts.setting(name)
    if isinstance(limit, Missing):
        return SCRIPT_LIMIT.unknown(facts, limit)
    found, mend = f"{name} {limit} ms", setting_mend(facts, (name, str(LONGEST_LIMIT_MS)))
    if number(limit) <= 0:
        return SCRIPT_LIMIT.warn(f"{name} {limit}: a script that is stuck cannot be ended", mend)
    if number(limit) < SHORTEST_LIMIT_MS:
        return SCRIPT_LIMIT.warn(f"{found}: calls are turned away while an honest script runs", mend)
    if number(limit) > LONGEST_LIMIT_MS:
        return SCRIPT_LIMIT.warn(f"{found}: calls give up before the server says what is wrong", mend)
    return SCRIPT_LIMIT.ok(found)


def script_cache(facts: Facts) -> Finding:
    """Look whether scripts pile up, or are forgotten again and again."""
    info = facts.info
    if isinstance(info, Missing):
        return SCRIPT_CACHE.unknown(facts, info)
    cached = number(info.get("number_of_cached_scripts"))
    taken, evicted = _memory(info), number(info.get("evicted_scripts"))
    found = f"{cached:.0f} scripts in {size(taken)}{_functions(info)}"
    if evicted >= REMEMBERED:
        return SCRIPT_CACHE.warn(
            f"{found}; {evicted:.0f} were evicted since the server started",
            f"{_ASK_WHO}. Then count anew:\nCONFIG RESETSTAT",
        )
    missed, calls = _missed(info)
    if missed >= MISSES and missed / calls >= MISSED:
        return SCRIPT_CACHE.warn(
            f"{found}; {missed / calls:.0%} of {calls:.0f} calls found their script forgotten",
            "# see who runs SCRIPT FLUSH: redis-cli MONITOR, for a moment. Then count anew:\nCONFIG RESETSTAT",
        )
    if cached >= MANY or taken >= BIG:
        return SCRIPT_CACHE.warn(
            found, f"{_ASK_WHO}. Then forget them; those that are in use come again by themselves:\nSCRIPT FLUSH ASYNC"
        )
    return SCRIPT_CACHE.ok(found)


def _memory(info: Mapping[str, str]) -> float:
    """Add up what the texts take and what the engine has made of them."""
    texts = info.get("used_memory_scripts_eval") or info.get("used_memory_scripts")
    engine = info.get("used_memory_vm_eval") or info.get("used_memory_lua")
    return number(texts) + number(engine)


def _functions(info: Mapping[str, str]) -> str:
    """Say that there are functions: not ours, which are scripts, all of them."""
    count = number(info.get("number_of_functions"))
    return f", and {count:.0f} functions of others" if count else ""


def _missed(info: Mapping[str, str]) -> tuple[float, float]:
    """Count the calls by hash that found no script, and all of them."""
    missed = number(fields(info.get("errorstat_NOSCRIPT", "")).get("count"))
    calls = number(fields(info.get("cmdstat_evalsha", "")).get("calls"))
    return missed, max(calls, missed, 1)


# What the clocks say.

CLOCK: Final = Subject("clock", "Due times are the server's: at= means what its clock says, not yours.")
QUEUE_CLOCKS: Final = Subject(
    "queue-clocks",
    "After the server's clock was set back, delays, back-offs and leases of a queue wait until it has caught up.",
)

# All in seconds.
SKEW: Final = 1.0
STEP: Final = 1.0
LONG_STEP: Final = 3600.0


def clock(facts: Facts) -> Finding:
    """Compare the server's clock with ours."""
    skew = facts.skew
    if isinstance(skew, Missing):
        return CLOCK.unknown(facts, skew)
    where = "ahead of" if skew.seconds > 0 else "behind"
    found = f"the server is {abs(skew.seconds):.3f} s {where} this machine, give or take {skew.give_or_take:.3f} s"
    if abs(skew.seconds) - skew.give_or_take <= SKEW:
        return CLOCK.ok(found)
    return CLOCK.warn(found, "# have both machines follow a time service: timedatectl set-ntp true")


def queue_clocks(facts: Facts) -> Finding:
    """Look whether the server's clock was set back under a queue."""
    keyspace = facts.keys_for(QUEUE_CLOCKS.name)
    if isinstance(keyspace, Missing):
        return QUEUE_CLOCKS.unknown(facts, keyspace)
    ahead = sorted((each for each in keyspace.clocks if each.ahead > STEP), key=lambda each: -each.ahead)
    if not ahead:
        return QUEUE_CLOCKS.ok("none is ahead of the server's clock")
    named = listed([f"{each.owner} by {each.ahead:.0f} s" for each in ahead])
    tell = QUEUE_CLOCKS.bad if ahead[0].ahead > LONG_STEP else QUEUE_CLOCKS.warn
    return tell(
        f"ahead of the server's clock: {named}",
        "# it ends by itself when the server's clock has caught up; until then what cannot wait is made due by\n"
        f"duly promote {in_shell(ahead[0].owner)} ID",
    )
