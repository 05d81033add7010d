"""Locks: lock, unlock, prolong, wake_lock.

A lock is a queue that never holds a message: those who wait for it are woken like those who wait for one.
"""

from duly.memory.calls import Kept
from duly.memory.state import QueueState


class Lock(QueueState):
    """Who has a lock until when, and the fence of the last holding."""

    def __init__(self) -> None:
        super().__init__()
        self.token: bytes | None = None
        self.until_us = 0
        self.fence = 0
        self.by = b""

    def leave_token_if_any(self) -> None:
        """Say that somebody else must look: one who waited leaves."""
        self.leave_token()

    def free(self) -> None:
        """Have nobody hold it, and wake one who waits for it."""
        self.token, self.until_us, self.by = None, 0, b""
        self.leave_token()

    def has(self, token: bytes) -> bool:
        """Tell whether somebody with this token has it now."""
        return self.token == token and self.until_us > self.server_us


def lock(lock: Lock, args: list[bytes]) -> Kept:
    """Take a lock that is free, or tell who has it."""
    token, ttl_us, by = args[0], int(args[1]), args[2]
    now = lock.server_us
    if lock.until_us > now:
        fence = lock.fence if lock.token == token else 0
        return Kept([fence, lock.until_us - now, lock.by])
    lock.token, lock.until_us, lock.by = token, now + ttl_us, by
    lock.fence = max(now, lock.fence + 1)
    lock.has_token = False
    return Kept([lock.fence, ttl_us, by])


def unlock(lock: Lock, args: list[bytes]) -> Kept | int:
    """Free a lock that the caller has, and wake one who waits for it."""
    if not lock.has(args[0]):
        return 0
    lock.free()
    return Kept(1)


def prolong(lock: Lock, args: list[bytes]) -> Kept | int:
    """Let a lock that the caller has end so long from now."""
    token, ends = args[0], lock.server_us + int(args[1])
    if not lock.has(token):
        return 0
    if ends < lock.until_us:
        lock.leave_token()
    lock.until_us = ends
    return Kept(1)


def wake_lock(lock: Lock, _args: list[bytes]) -> int:
    """Have somebody else look: one who waited leaves in the middle."""
    lock.leave_token()
    return 1
