"""Copies of a queue, with which a fail-over sets it back by any number of calls.

A promoted replica has a state that its primary had some calls ago. All keys of that moment, put back, are the same
state, and the number of lost calls can be chosen afterwards. A copy takes a tenth of a millisecond. A real
replica takes a hundred times as long to be in step again: `replicas.py` has one, for fewer histories.
"""

import pickle
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from duly._core.keys import QueueKeys
from duly.memory.engine import Engine
from tests.lua.harness import Wire

_COPY: Final = """
local time, copies = redis.call('TIME'), {}
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local names = redis.call('KEYS', ARGV[1])
names[#names + 1] = KEYS[1]
for _, name in ipairs(names) do
  local value = redis.call('DUMP', name)
  if value then
    local left_ms = redis.call('PTTL', name)
    copies[#copies + 1] = { name, left_ms < 0 and 0 or now_ms + left_ms, value }
  end
end
return copies
"""

_REMOVE: Final = """
for _, name in ipairs({ KEYS[1], unpack(redis.call('KEYS', ARGV[1])) }) do
  redis.call('DEL', name)
end
"""


class Copied(NamedTuple):
    """All keys that a server has of a queue, and one key of the user."""

    keys: QueueKeys
    of_user: bytes

    def spelled(self, wire: Wire) -> list[Any]:
        """Return the command that copies them, with the times at which they expire."""
        return self._spelled(wire, _COPY)

    def put_back(self, wire: Wire, copies: Sequence[Sequence[Any]]) -> None:
        """Set them back to a copy."""
        restored = [(b"RESTORE", name, until_ms, value, b"ABSTTL") for name, until_ms, value in copies]
        for answer in wire.post([self._spelled(wire, _REMOVE), *restored]):
            if isinstance(answer, Exception):
                raise answer

    def _spelled(self, wire: Wire, text: str) -> list[Any]:
        return [b"EVALSHA", wire.sha_of_text(text), 1, self.of_user, self.keys.prefix + b"*"]


def copy_of(engine: Engine) -> bytes:
    """Copy everything that an engine stores. No consumer may be waiting: its callback cannot be copied."""
    return pickle.dumps((engine._queues, engine._registries, engine._user_keys))


def put_back_in(engine: Engine, copy: bytes) -> None:
    """Set an engine back to a copy."""
    engine._queues, engine._registries, engine._user_keys = pickle.loads(copy)
