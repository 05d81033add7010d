"""Locks: lock, unlock, prolong.

A lock is a queue that never holds a message: its waiters are woken like those of a queue.
"""

from duly.memory.calls import Kept
from duly.memory.state import QueueState


class Lock(QueueState):
    """The holder of a lock, its deadline, and the fence of the last holding."""

    def __init__(self) -> None:
        super().__init__()
        self.lock_token: bytes | None = None
        self.until_us: int = 0
        self.fence = 0
        self.by: bytes = b""

    def next_poll(self) -> int:
        """Return when it is free."""
        return self.until_us

    def free(self) -> None:
        """Remove the holder."""
        self.lock_token, self.until_us, self.by = None, 0, b""

    def has(self, lock_token: bytes) -> bool:
        """Return whether the holder of this lock token has the lock now."""
        return self.lock_token == lock_token and self.until_us > self.server_us


def lock(lock: Lock, args: list[bytes]) -> Kept:
    """Take a lock that is free, or return its holder."""
    lock_token, ttl_us, by = args[0], int(args[1]), args[2]
    now = lock.server_us
    if lock.until_us > now:
        fence = lock.fence if lock.lock_token == lock_token else 0
        return Kept([fence, lock.until_us - now, lock.by])
    lock.lock_token, lock.until_us, lock.by = lock_token, now + ttl_us, by
    lock.fence = max(now, lock.fence + 1)
    return Kept([lock.fence, ttl_us, by])


def unlock(lock: Lock, args: list[bytes]) -> Kept | int:
    """Free a lock that the caller has."""
    if not lock.has(args[0]):
        return 0
    lock.free()
    return Kept(1)


def prolong(lock: Lock, args: list[bytes]) -> Kept | int:
    """Set the end of a lock that the caller has to a duration from now."""
    lock_token, ends = args[0], lock.server_us + int(args[1])
    if not lock.has(lock_token):
        return 0
    lock.until_us = ends
    return Kept(1)
