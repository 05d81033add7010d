"""Which place the server has among others."""

import re
from collections.abc import Mapping
from typing import Final

from duly.doctor.checks.disk import has_file, replicas_of
from duly.doctor.facts import Facts, Missing
from duly.doctor.reading import fields, number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject, setting_mend
from duly.doctor.wording import in_shell

ROLE: Final = Subject("role", "A replica takes no writes: an app refuses it.")
REPLICAS: Final = Subject(
    "replicas", "A primary that is cut off goes on answering, and what it answered is gone when a replica takes over."
)
RESTART: Final = Subject(
    "restart", "A primary that keeps nothing on disk comes back empty, and its replicas empty themselves to match."
)

LAG: Final = 10
"""Seconds."""


def role(facts: Facts) -> Finding:
    """Look whether it is a primary."""
    info = facts.info
    if isinstance(info, Missing):
        return ROLE.unknown(facts, info)
    if info.get("role", "master") == "master":
        return ROLE.ok("primary")
    primary = f"{info.get('master_host')}:{info.get('master_port')}"
    return ROLE.bad(
        f"replica of {primary}", f"# connect to the primary:\nduly doctor --url {in_shell(f'redis://{primary}')}"
    )


def replicas(facts: Facts) -> Finding:
    """Look whether replicas keep up, and whether the primary stops when it has lost them."""
    info = facts.info
    if isinstance(info, Missing):
        return REPLICAS.unknown(facts, info)
    if info.get("role", "master") != "master":
        return REPLICAS.ok("this is a replica itself: see role")
    least = facts.setting("min-replicas-to-write")
    needed = 0 if isinstance(least, Missing) else int(number(least))
    count = replicas_of(info)
    good = int(number(info.get("min_slaves_good_slaves", str(count))))
    if needed > good:
        return REPLICAS.bad(
            f"min-replicas-to-write is {needed}, and {good} keep up: the server refuses every write",
            "# bring the replicas back; or, until then:\n" + setting_mend(facts, ("min-replicas-to-write", str(good))),
        )
    return _followed(facts, info, count, least) if count else REPLICAS.ok("none: this server has the only copy")


def _followed(facts: Facts, info: Mapping[str, str], count: int, least: str | Missing) -> Finding:
    if behind := _behind(info):
        return REPLICAS.warn(f"{count}, of which {behind} lag or are not in step", "# see the log of the replica")
    if isinstance(least, Missing):
        return REPLICAS.unknown(facts, least)
    if number(least) < 1:
        return REPLICAS.warn(
            f"{count}, and the primary goes on without them",
            setting_mend(facts, ("min-replicas-to-write", "1"), ("min-replicas-max-lag", str(LAG))),
        )
    return REPLICAS.ok(f"{count}, of which {least} must keep up")


def restart(facts: Facts) -> Finding:
    """Look whether a restart would empty the replicas."""
    info = facts.info
    if isinstance(info, Missing):
        return RESTART.unknown(facts, info)
    count = replicas_of(info)
    if not count or info.get("role", "master") != "master":
        return RESTART.ok("no replicas that could follow")
    if has_file(info):
        return RESTART.ok("the data is on disk")
    saves = facts.setting("save")
    if isinstance(saves, Missing):
        return RESTART.unknown(facts, saves)
    if saves:
        return RESTART.warn(
            "it comes back with the last snapshot, and so do they", setting_mend(facts, ("appendonly", "yes"))
        )
    return RESTART.bad(f"nothing on disk, and {count} replicas", setting_mend(facts, ("appendonly", "yes")))


def _behind(info: Mapping[str, str]) -> int:
    rows = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name)]
    return sum(each.get("state") != "online" or number(each.get("lag")) > LAG for each in map(fields, rows))
