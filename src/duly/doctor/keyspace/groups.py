"""Stores of groups that the stream does not know: nobody lists them, and nothing feeds them."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from duly._core.keys import TopicKeys
from duly.doctor.facts import Missing, Orphan
from duly.doctor.keyspace.names import held_by
from duly.doctor.keyspace.walking import Walk
from duly.doctor.wording import in_shell, quoted

_CUT_OFF: Final = """
if redis.call('EXISTS', unpack(KEYS, 2)) == 0 then return 0 end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
for _, row in ipairs(groups.err and {} or groups) do
  for field = 1, #row, 2 do
    if row[field] == 'name' and row[field + 1] == ARGV[1] then return 0 end
  end
end
return 1
"""
"""Whether there is a store of a group that the stream does not know."""
_MOMENT: Final = 0.2
"""Seconds until a group that seems lost is looked at again: one whose topic is just made anew is whole by then."""
_ENTRY: Final = re.compile(rb"\d{1,20}-\d{1,20}")


@dataclass(frozen=True)
class _Suspect:
    """A group that its stream does not seem to know."""

    owner: str
    stream: bytes
    held: list[bytes]
    meta: bytes | None
    reason: str

    @property
    def group(self) -> str:
        return self.owner.partition("/")[2]


def groups_cut_off(walk: Walk) -> Iterator[Orphan]:
    """Find them. Suspects are looked at twice: a group may go and come again meanwhile."""
    suspects = list(_suspects(walk))
    if suspects:
        time.sleep(_MOMENT)
    for each in walk.within(suspects):
        if _is_cut_off(walk, each):
            yield Orphan(each.held[0], each.reason, _fed_again(walk, each))


def _suspects(walk: Walk) -> Iterator[_Suspect]:
    groups = [(owner, keys) for (family, owner), keys in walk.owners.items() if family == "group"]
    for owner, keys in walk.within(groups):
        held = list(held_by(keys).values())
        if not any(walk.ask("orphans", "EXISTS", key) == 1 for key in held):
            continue
        topic, _, group = owner.partition("/")
        stream = TopicKeys(walk.namespace, topic).stream
        known = _groups_of(walk, stream)
        if "orphans" in walk.untold:
            return
        if known is None or group.encode() not in known:
            lost = "the stream of its topic is gone" if known is None else "the stream does not know the group"
            yield _Suspect(owner, stream, held, keys.get("meta"), lost)


def _is_cut_off(walk: Walk, suspect: _Suspect) -> bool:
    """Look at store and stream at once: the group may go and come again between two looks."""
    told = walk.asker.ask("EVAL", _CUT_OFF, len(suspect.held) + 1, suspect.stream, *suspect.held, suspect.group)
    return isinstance(told, Missing) or told == 1  # who may not run scripts goes by what was seen before


def _groups_of(walk: Walk, stream: bytes) -> set[bytes] | None:
    """Name the native groups of a stream; None: there is no stream, or it is not told."""
    told = walk.asker.ask("XINFO", "GROUPS", stream)
    if isinstance(told, Missing):
        if "no such key" not in told.reason:
            walk.untold.setdefault("orphans", told)
        return None
    return {dict(zip(row[0::2], row[1::2], strict=True))[b"name"] for row in told}


def _fed_again(walk: Walk, suspect: _Suspect) -> str:
    """Have the stream know the group again, where it was: then it is fed, or can be deleted by its name.

    Of a group that was never fed nobody knows where it was, and a place that is wrong skips entries or brings them all
    again: so that is for people to say.
    """
    fed = None if suspect.meta is None else walk.ask("orphans", "HGET", suspect.meta, "fed")
    create = f"XGROUP CREATE {quoted(suspect.stream)} {quoted(suspect.group.encode())}"
    delete = f"duly delete {in_shell(suspect.owner)} --yes"
    if isinstance(fed, bytes) and _ENTRY.fullmatch(fed):
        position = fed.decode()
        return f"{create} {position} MKSTREAM\n# if nobody needs the group any more, then also:\n{delete}"
    return (
        f"# where {suspect.owner} was in its stream is not known; say where it begins. With what comes from now on:\n"
        f"# {create} $ MKSTREAM\n"
        f"# or with all that the stream still has, also what it had before:\n"
        f"# {create} 0 MKSTREAM\n"
        f"# if nobody needs the group any more, one of them, and then: {delete}"
    )
