"""Checks of round trips, slow commands, scripts and clocks."""

from collections.abc import Mapping, Sequence
from typing import Final

from duly.doctor.facts import PAUSE, Facts, Missing, fields, number
from duly.doctor.report import Finding, Subject, in_shell, listed, milliseconds, setting_fix, size

LATENCY: Final = Subject(
    "latency",
    "Every send, receive and ack is a round trip. After 5 s without a reply the server counts as unreachable.",
)
BLOCKING: Final = Subject(
    "blocking", "Idle consumers wait in a blocking call. If they cannot block, they have to poll."
)
SLOW_LOG: Final = Subject("slow-log", "The server runs one command at a time. A slow command blocks every queue.")
STALLS: Final = Subject("stalls", "A stall of the server blocks every queue, while leases continue to run out.")
COMPACT_FORMS: Final = Subject(
    "compact-forms",
    "A key in compact form is searched from the front. Members of 65 bytes keep leases out of that form.",
)

# All in seconds.
SLOW_PING: Final = 0.005
SLOW_TAIL: Final = 0.05
STUCK: Final = 1.0
LATE_WAKE: Final = 1.0
SLOW_COMMAND: Final = 0.1
LONG_STALL: Final = 0.5

_FORMS: Final = (("zset", "value", 64), ("hash", "value", 64), ("zset", "entries", 512), ("hash", "entries", 1024))
"""Kind of key, name of the limit, and its highest good value."""


def latency(facts: Facts) -> Finding:
    """Check the round trips that were measured."""
    if isinstance(facts.scripts, Missing):
        return LATENCY.unknown(facts, facts.scripts)
    measured = {"PING": facts.pings, "a script": facts.scripts}  # PING needs a permission that no role includes
    samples = {name: took for name, took in measured.items() if not isinstance(took, Missing)}
    middle, tail = (max(percentile(took, percent) for took in samples.values()) for percent in (50, 99))
    found = "; ".join(
        f"{name} p50 {milliseconds(percentile(took, 50))}, p99 {milliseconds(percentile(took, 99))}"
        for name, took in samples.items()
    )
    fix = "# run workers and server in one network; redis-cli --intrinsic-latency 5 measures the server's machine"
    if tail > STUCK:
        return LATENCY.bad(found, fix)
    return LATENCY.warn(found, fix) if middle > SLOW_PING or tail > SLOW_TAIL else LATENCY.ok(found)


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return a percentile, or 0 without samples."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else 0.0


def blocking(facts: Facts) -> Finding:
    """Check the blocking call on an empty key."""
    took = facts.blocked
    if isinstance(took, Missing):
        return BLOCKING.unknown(facts, took)
    found = f"a blocking call of {milliseconds(PAUSE)} took {milliseconds(took)}"
    if PAUSE * 0.8 <= took <= PAUSE + LATE_WAKE:
        return BLOCKING.ok(found)
    return BLOCKING.warn(found, "# connect to the server directly: a proxy in between may not allow blocking calls")


def slow_log(facts: Facts) -> Finding:
    """Find slow scripts of Duly, and slow commands of other programs."""
    if isinstance(facts.slow, Missing):
        return SLOW_LOG.unknown(facts, facts.slow)
    if number(limit if isinstance(limit := facts.setting("slowlog-log-slower-than"), str) else "0") < 0:
        return SLOW_LOG.warn("the slow log is off", setting_fix(facts, ("slowlog-log-slower-than", "10000")))
    slow = sorted((each for each in facts.slow if each.seconds >= SLOW_COMMAND), key=lambda each: -each.seconds)
    if not slow:
        return SLOW_LOG.ok(f"no command of the last day took {milliseconds(SLOW_COMMAND)}")
    named = listed(
        [f"{each.command}{' of a queue' if each.is_ours else ''} {milliseconds(each.seconds)}" for each in slow], 3
    )
    return SLOW_LOG.warn(
        f"{len(slow)} slow commands in the last day: {named}",
        "# SLOWLOG GET 10 shows the clients: use SCAN instead of KEYS, and pages instead of big ranges. Then clear "
        "the log:\nSLOWLOG RESET",
    )


def stalls(facts: Facts) -> Finding:
    """Check the events of the latency monitor."""
    if isinstance(facts.stalls, Missing):
        return STALLS.unknown(facts, facts.stalls)
    if facts.setting("latency-monitor-threshold") == "0":
        return STALLS.ok("not monitored: latency-monitor-threshold is 0")
    long = sorted((each for each in facts.stalls if each.longest >= LONG_STALL), key=lambda each: -each.longest)
    if not long:
        return STALLS.ok(f"none of {milliseconds(LONG_STALL)} in the last day")
    named = listed([f"{each.event} {milliseconds(each.longest)}" for each in long])
    return STALLS.warn(
        f"in the last day: {named}", "# LATENCY DOCTOR explains each of them. Then clear them:\nLATENCY RESET"
    )


def compact_forms(facts: Facts) -> Finding:
    """Check whether the limits of the compact forms suit the keys of Duly."""
    if isinstance(facts.settings, Missing):
        return COMPACT_FORMS.unknown(facts, facts.settings)
    beyond: list[tuple[str, str, int]] = []
    for kind, what, most in _FORMS:
        for form in ("listpack", "ziplist"):  # Redis 6.2 has only the second name
            name = f"{kind}-max-{form}-{what}"
            if number(value := facts.settings.get(name, "0")) > most:
                beyond.append((name, value, most))
                break
    if not beyond:
        return COMPACT_FORMS.ok("within the limits that suit the keys")
    return COMPACT_FORMS.warn(
        ", ".join(f"{name} {value}" for name, value, _ in beyond),
        setting_fix(facts, *((name, str(min(most, 512))) for name, _, most in beyond)),
    )


# Scripts
#
# The names of INFO differ. Redis 6.2 has `used_memory_scripts` and `used_memory_lua`. Redis 7.0 and Valkey call them
# `used_memory_scripts_eval` and `used_memory_vm_eval`, and count functions separately. Redis 7.4 and Valkey 8.0 added
# `evicted_scripts`: older servers never evict scripts.

SCRIPT_LIMIT: Final = Subject(
    "script-limit",
    "After this time the server reports a script as stuck, and SCRIPT KILL can end it.",
)
SCRIPT_CACHE: Final = Subject(
    "script-cache",
    "If the server does not have a script in its cache, the call is repeated with the text. A program that puts data "
    "into the text of scripts fills the memory of servers that never evict, and evicts the scripts of Duly on others.",
)

SHORTEST_LIMIT_MS: Final = 500
LONGEST_LIMIT_MS: Final = 5000
"""Above it, calls time out before the server reports that it is busy."""
REMEMBERED: Final = 500
"""Scripts in the cache of a server that evicts. After as many evictions, the whole cache was replaced once."""
MANY: Final = 1000
"""The limit for servers that never evict. Duly has some 120 scripts, so two versions and other libraries stay below."""
BIG: Final = 32 * 1024 * 1024
MISSED: Final = 0.01
"""The share of repeated calls that is worth a warning."""
MISSES: Final = 1000
"""Fewer misses are normal: after a restart of the server, each client may miss each script once."""
_FIND_SENDER: Final = (
    "# find the program that puts values into scripts instead of KEYS and ARGV: run redis-cli MONITOR briefly"
)


def script_limit(facts: Facts) -> Finding:
    """Check after which time the server reports a script as stuck."""
    name = "busy-reply-threshold"
    limit = facts.setting(name)
    if isinstance(limit, Missing):
        name = "lua-time-limit"  # the name before 7.0
        limit = facts.setting(name)
    if isinstance(limit, Missing):
        return SCRIPT_LIMIT.unknown(facts, limit)
    found, fix = f"{name} {limit} ms", setting_fix(facts, (name, str(LONGEST_LIMIT_MS)))
    if number(limit) <= 0:
        return SCRIPT_LIMIT.warn(f"{name} {limit}: a stuck script cannot be killed", fix)
    if number(limit) < SHORTEST_LIMIT_MS:
        return SCRIPT_LIMIT.warn(f"{found}: calls are rejected while a normal script runs", fix)
    if number(limit) > LONGEST_LIMIT_MS:
        return SCRIPT_LIMIT.warn(f"{found}: calls time out before the server reports the stuck script", fix)
    return SCRIPT_LIMIT.ok(found)


def script_cache(facts: Facts) -> Finding:
    """Check whether scripts accumulate in the cache, or are evicted repeatedly."""
    info = facts.info
    if isinstance(info, Missing):
        return SCRIPT_CACHE.unknown(facts, info)
    cached = number(info.get("number_of_cached_scripts"))
    taken, evicted = _memory(info), number(info.get("evicted_scripts"))
    found = f"{cached:.0f} scripts in {size(taken)}{_functions(info)}"
    if evicted >= REMEMBERED:
        return SCRIPT_CACHE.warn(
            f"{found}; {evicted:.0f} evicted since the server started",
            f"{_FIND_SENDER}. Then reset the counters:\nCONFIG RESETSTAT",
        )
    missed, calls = _missed(info)
    if missed >= MISSES and missed / calls >= MISSED:
        return SCRIPT_CACHE.warn(
            f"{found}; {missed / calls:.0%} of {calls:.0f} calls did not find their script in the cache",
            "# find the program that runs SCRIPT FLUSH: run redis-cli MONITOR briefly. Then reset the counters:\n"
            "CONFIG RESETSTAT",
        )
    if cached >= MANY or taken >= BIG:
        return SCRIPT_CACHE.warn(
            found,
            f"{_FIND_SENDER}. Then clear the cache; scripts in use are loaded again:\nSCRIPT FLUSH ASYNC",
        )
    return SCRIPT_CACHE.ok(found)


def _memory(info: Mapping[str, str]) -> float:
    """Return the memory of texts and compiled scripts."""
    texts = info.get("used_memory_scripts_eval") or info.get("used_memory_scripts")
    engine = info.get("used_memory_vm_eval") or info.get("used_memory_lua")
    return number(texts) + number(engine)


def _functions(info: Mapping[str, str]) -> str:
    """Mention functions, which belong to other programs: Duly has none."""
    count = number(info.get("number_of_functions"))
    return f", and {count:.0f} functions of other programs" if count else ""


def _missed(info: Mapping[str, str]) -> tuple[float, float]:
    """Return the number of calls by hash that found no script, and of all calls by hash."""
    missed = number(fields(info.get("errorstat_NOSCRIPT", "")).get("count"))
    calls = number(fields(info.get("cmdstat_evalsha", "")).get("calls"))
    return missed, max(calls, missed, 1)


# Clocks

CLOCK: Final = Subject("clock", "Due times follow the server's clock: at= is compared with it, not with yours.")
QUEUE_CLOCKS: Final = Subject(
    "queue-clocks",
    "After the server's clock was set back, delays, backoffs and leases of a queue stop until it has caught up.",
)

# All in seconds.
SKEW: Final = 1.0
STEP: Final = 1.0
LONG_STEP: Final = 3600.0


def clock(facts: Facts) -> Finding:
    """Compare the server's clock with this machine's."""
    skew = facts.skew
    if isinstance(skew, Missing):
        return CLOCK.unknown(facts, skew)
    where = "ahead of" if skew.seconds > 0 else "behind"
    found = f"the server is {abs(skew.seconds):.3f} s {where} this machine, +/- {skew.margin:.3f} s"
    if abs(skew.seconds) - skew.margin <= SKEW:
        return CLOCK.ok(found)
    return CLOCK.warn(found, "# synchronize both machines: timedatectl set-ntp true")


def queue_clocks(facts: Facts) -> Finding:
    """Check whether the server's clock was set back while queues existed."""
    keyspace = facts.keys_for(QUEUE_CLOCKS.name)
    if isinstance(keyspace, Missing):
        return QUEUE_CLOCKS.unknown(facts, keyspace)
    ahead = sorted((each for each in keyspace.clocks if each.ahead > STEP), key=lambda each: -each.ahead)
    if not ahead:
        return QUEUE_CLOCKS.ok("none is ahead of the server's clock")
    named = listed([f"{each.owner} by {each.ahead:.0f} s" for each in ahead])
    finding = QUEUE_CLOCKS.bad if ahead[0].ahead > LONG_STEP else QUEUE_CLOCKS.warn
    return finding(
        f"ahead of the server's clock: {named}",
        "# this ends when the server's clock has caught up; until then, make urgent messages due with\n"
        f"duly promote {in_shell(ahead[0].owner)} ID",
    )
