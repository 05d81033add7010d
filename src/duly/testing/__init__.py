"""Aids for tests that use Duly: `clock.advance(3600)` moves the time of all `memory://` apps of the process."""

from duly.memory.clock import Clock, clock

__all__ = ["Clock", "clock"]
