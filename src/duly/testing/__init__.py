"""Aids for tests that use Duly.

`clock.advance(3600)` moves the time of all `memory://` apps of the process. `user_keys(app)` reads and writes
the keys that commits of a `memory://` app change.
"""

from duly.memory.clock import Clock, clock
from duly.testing.user_keys import UserKeys, user_keys

__all__ = ["Clock", "UserKeys", "clock", "user_keys"]
