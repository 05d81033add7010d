"""Carries out claims. A claim that fails is retried later."""

import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from duly._core import patience
from duly._core.replies import Claimed
from duly._core.topology import Node
from duly.errors import DulyError, Unavailable
from duly.worker.claim import Claim
from duly.worker.claim_plan import ClaimPlan
from duly.worker.logs import event
from duly.worker.refusals import is_refusal
from duly.worker.source import Source

_LOG: Final = logging.getLogger("duly.worker")

_REFUSED_PAUSE: Final = 5.0
"""Seconds before the next claim of a queue whose claim the server refused."""


class Refused(Exception):
    """The server has refused the claims of every queue since the worker started."""

    def __init__(self, error: DulyError) -> None:
        self.error = error


class Claimer:
    """Makes claims, learns from their answers, and counts failures."""

    def __init__(
        self, sources: Sequence[Source], plan: ClaimPlan, prepare: Callable[[Source], Awaitable[None]] | None
    ) -> None:
        """Take `prepare`, which is awaited before the first claim of each group."""
        self._plan = plan
        self._prepare = prepare
        self._unprepared = {source for source in sources if source.wake_state is not None and prepare is not None}
        self._fails: Counter[Node | None] = Counter()
        """Consecutive claims that did not reach each node."""
        self._sources = sources
        self._refused: set[Source] | None = set()
        """Sources whose claims the server has refused so far. None: a claim has succeeded."""

    @property
    def has_claimed(self) -> bool:
        """Whether a claim has succeeded since the worker started."""
        return self._refused is None

    async def answer_to(self, claim: Claim) -> Claimed | None:
        """Carry out a claim, and plan the next one. None: it failed. Raises Refused."""
        source, runtime = claim.source, claim.source.runtime
        try:
            if source in self._unprepared and self._prepare is not None:
                await self._prepare(source)
                self._unprepared.discard(source)
            claimed, is_asked_now = await _asked(claim)
        except Unavailable as error:
            self._note_unavailable(claim, error)
            return None
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=runtime.name, error=str(error))
            self._plan.postpone(source, _REFUSED_PAUSE)
            self._note_refusal(source, error)
            return None
        self._refused = None
        now = source.polled_at = time.monotonic()
        self._fails[claim.node] = 0
        if is_asked_now:
            runtime.pace.learn(runtime.handled, claim.asked_at, now)
            source.clock_translator.learn(claim.asked_at, now, claimed.now)
        else:
            source.clock_translator.learn_from_answer(now, claimed.now)
        self._plan.note_answer(claim, claimed, now)
        return claimed

    def _note_unavailable(self, claim: Claim, error: Unavailable) -> None:
        """Retry soon. The link has logged the outage, unless an embedded server could not be started."""
        source, fails = claim.source, self._fails[claim.node]
        if not fails and not source.is_down:
            event(_LOG, logging.ERROR, "claim.failed", queue=source.runtime.name, error=str(error))
        self._plan.postpone(source, patience.backoff(fails, random.random))
        self._fails[claim.node] = fails + 1

    def _note_refusal(self, source: Source, error: DulyError) -> None:
        """Raise Refused if no claim has ever succeeded: the password is wrong, or the server evicts keys.

        After a first success, refusals are retried.
        """
        if self._refused is not None and is_refusal(error):
            self._refused.add(source)
            if len(self._refused) == len(self._sources):
                raise Refused(error)


async def _asked(claim: Claim) -> tuple[Claimed, bool]:
    """Return the answer to a claim, and whether the server carried it out only now."""
    if claim.behind is not None:
        return await claim.behind.answer(), False
    call = claim.source.claim_call(claim.limit, then="stay", suspects=claim.suspects)
    claimed: Claimed = await claim.source.link.run_claim(call)
    return claimed, True
