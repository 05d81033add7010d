"""What the server does with scripts: when it calls one stuck, and how many it remembers.

INFO tells of the cache in different words: Redis 6.2 has `used_memory_scripts` and `used_memory_lua`, which are
`used_memory_scripts_eval` and `used_memory_vm_eval` since Redis 7.0 and in Valkey, where functions have numbers of
their own. `evicted_scripts` is there since Redis 7.4 and Valkey 8.0: older servers forget no script by themselves.
"""

from collections.abc import Mapping
from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.reading import fields, number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject, setting_mend
from duly.doctor.wording import size

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
