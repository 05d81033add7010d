"""A lock on the server: one holder at a time, over all machines, until it expires."""

import logging
import secrets
import time
from types import TracebackType
from typing import Any, Final, Self

from duly._async.primitives import uninterrupted
from duly._core import ops, outgoing, patience, replies
from duly._core.keys import LockKeys
from duly._core.naming import about
from duly.errors import DulyError, UsageError
from duly.options import Seconds, Wait, checked_positive_seconds, checked_seconds
from duly.outcomes import Defer, OnBusy

_LOG: Final = logging.getLogger("duly")


class AsyncLock:
    """A lock for one `with` block at a time. `d.lock(...)` and `app.lock(...)` return it.

    It expires `ttl` seconds after it was taken, so a holder that crashed does not block others. It is not re-entrant: a
    holder that takes it twice finds it busy.

    Entering the block raises LockBusy or Defer if another holder has the lock, depending on `on_busy`.
    """

    def __init__(
        self, link: Any, namespace: str, name: str, *, ttl: Seconds, on_busy: OnBusy, holder: str = ""
    ) -> None:
        outgoing.checked_new_text(name, "the name of a lock")
        with about("lock", name):
            if on_busy != "raise" and not isinstance(on_busy, Wait | Defer):
                raise UsageError(f'on_busy must be "raise", a duly.Wait or a duly.Defer, not {on_busy!r}')
            self._ttl = checked_positive_seconds(ttl, "ttl")
        self.name = name
        self.fence: int = 0
        """The fencing token. It grows with each holder of this lock, so a store can refuse older ones."""
        self._link = link
        self._kept = patience.call_kept(link.patience)
        self._keys = LockKeys(namespace, name)
        self._on_busy = on_busy
        self._holder = holder
        self._lock_token: str | None = None
        self._ends_at = 0.0
        self._is_lost = False

    def __repr__(self) -> str:
        state = "not held" if self._lock_token is None else f"fence {self.fence}"
        return f"<{type(self).__name__} {self.name!r}, {state}>"

    @property
    def lost(self) -> bool:
        """Whether the lock ended before its block did. It is estimated inside the block, and certain after it."""
        return self._is_lost or (self._lock_token is not None and time.monotonic() >= self._ends_at)

    async def extend(self, seconds: Seconds) -> None:
        """Set the end of the lock to `seconds` from now. Safe to repeat.

        Raises LockLost if the lock has expired, and UsageError outside of its block.
        """
        with about("lock", self.name):
            ttl = checked_positive_seconds(seconds, "seconds")
        if self._lock_token is None:
            raise UsageError(f"lock {self.name!r} is not held: extend it inside its block")
        ends_at = time.monotonic() + ttl
        if self._is_lost or not await self._link.run(ops.prolong(self._keys, self._lock_token, ttl, self._kept)):
            self._is_lost = True
            raise replies.lock_lost(self.name)
        self._ends_at = ends_at

    async def __aenter__(self) -> Self:
        seconds = checked_seconds(self._on_busy.seconds, "Wait.seconds") if isinstance(self._on_busy, Wait) else 0.0
        give_up_at, fruitless = time.monotonic() + seconds, 0
        while True:
            state = await self._try_to_take()
            if state.fence:
                return self
            left = give_up_at - time.monotonic()
            if left <= 0:  # checked after the attempt, so a wake token was used, or another holder has the lock
                raise self._refusal(state)
            period = patience.looking_period(self._ttl)
            pause, exact = patience.pause_before(state.left, left, period, fruitless)
            fruitless = fruitless + 1 if exact else 0
            await self._link.wait_for_token(self._keys, pause, exact=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock_token, self._lock_token = self._lock_token, None
        if lock_token is None:
            return
        try:
            is_freed = await uninterrupted(self._link.run_now(ops.unlock(self._keys, lock_token, self._kept)))
        except DulyError as trouble:  # the block has succeeded, and the lock expires
            self._is_lost = self._is_lost or time.monotonic() >= self._ends_at
            _LOG.warning("lock %r could not be freed, it will expire: %s", self.name, trouble)
            return
        self._is_lost = not is_freed
        if self._is_lost:
            _LOG.warning("%s", replies.lock_lost(self.name))

    async def _try_to_take(self) -> replies.LockState:
        lock_token, began_at = secrets.token_hex(8), time.monotonic()
        by = f"{self._link.consumer}{self._holder}"

        async def give_back(state: replies.LockState) -> None:
            if state.fence:
                await self._link.run_now(ops.unlock(self._keys, lock_token, self._kept))

        call = ops.lock(self._keys, lock_token, self._ttl, by, self._kept)
        # --- async only
        state: replies.LockState = await uninterrupted(self._link.run_now(call), give_back)
        # --- sync only
        # | state: replies.LockState = self._link.run_whole(call, give_back)
        # --- end
        if state.fence:
            # Counted from before the call, so that the estimate is never too late.
            self._lock_token, self.fence, self._ends_at, self._is_lost = (
                lock_token,
                state.fence,
                began_at + self._ttl,
                False,
            )
        return state

    def _refusal(self, state: replies.LockState) -> Exception:
        if isinstance(self._on_busy, Defer):
            return self._on_busy.because(f"lock {self.name!r} was busy")
        return replies.lock_busy(self.name, state)
