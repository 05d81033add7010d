"""The rules for outcomes of handlers, the same for `with d:` and for workers.

The value that a handler returns or the error that it raises gives the decision. The retry policy then turns a failure
into a retry or a dead letter. A defer becomes a dead letter at its limit.
"""

import inspect
import math
import sysconfig
import traceback as tracebacks
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple

from duly._core.naming import title_of
from duly._core.verbs import Settling, verb_of
from duly.errors import UsageError
from duly.options import Retry, checked_count, checked_number, checked_seconds
from duly.outcomes import Defer, Outcome, Recycle

Verb = Settling | Literal["lost"]
"""How a delivery ends; `lost`: its lease is lost. Only workers use `release` and `lost`."""

AfterFailure = tuple[Literal["retry"], float] | tuple[Literal["dead"], str]
AfterDefer = tuple[Literal["defer"], float] | tuple[Literal["reject"], str]

_MAX_ERROR: Final = 1_000
_MAX_TRACEBACK: Final = 10_000
_WORKER: Final = "duly.worker."
_DULY: Final = str(Path(__file__).parents[1])
_INSTALLED: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""The prefixes of files of Python itself and of installed libraries."""


class DeferPolicy(NamedTuple):
    """How the delays of a repeatedly deferred message grow, and the limit of defers."""

    factor: float = 1.0
    max: float = 3600.0
    limit: int | None = None
    reason: str = ""


_PLAIN: Final = DeferPolicy()


class Decision(NamedTuple):
    """How a delivery is to be settled."""

    verb: Verb
    delay: float | None = None
    """Seconds; None: by the retry policy."""
    reason: str = ""
    """The reason of a reject."""
    error: BaseException | str | None = None
    """The error of a retry or a reject."""
    policy: DeferPolicy = _PLAIN
    """The policy of a defer."""
    result: str = ""
    """The handler's result, packed, if it is stored."""
    flaw: str = ""
    """Why a user-defined outcome counts as a failure: a line for the log."""


ACK: Final = Decision("ack")
_RETURNED_FALSE: Final = Decision("retry", error="the handler returned False")


def decision_of_return(value: Any) -> Decision:
    """Return the decision for a returned value. Most values mean success."""
    if value is None or value is True:
        return ACK
    if value is False:
        return _RETURNED_FALSE
    if isinstance(value, Recycle):
        return Decision("recycle", checked_seconds(value.delay, "Recycle.delay"))
    if isinstance(value, Outcome):
        return decision_of_error(value)
    if inspect.isawaitable(value):
        return _decision_of_awaitable(value)
    return ACK


def _decision_of_awaitable(value: Any) -> Decision:
    """Retry: a `def` handler that returns a coroutine has done nothing yet, and an ack would lose the message."""
    if inspect.iscoroutine(value):
        value.close()
    return Decision(
        "retry", error=f"the handler returned a {type(value).__name__} that nothing awaits: make it an `async def`"
    )


def decision_of_error(error: BaseException) -> Decision:
    """Return the decision for a raised error. A user-defined outcome may lack attributes."""
    try:
        if isinstance(error, Outcome) and (verb := verb_of(error)):
            return _decision_asked_for(verb, error)
    except Exception as flaw:  # noqa: BLE001
        reason = f"an outcome of type {type(error).__name__} cannot be read, and counts as a failure: {flaw!r}"
        return Decision("retry", error=error, flaw=reason)
    return Decision("retry", error=error)


def _decision_asked_for(verb: str, outcome: Any) -> Decision:
    if verb == "reject":
        return Decision("reject", reason=str(outcome.reason))
    if verb == "defer":
        return Decision("defer", checked_seconds(outcome.delay, "Defer.delay"), policy=_policy_of(outcome))
    return Decision("retry", checked_seconds(outcome.delay, "RetryIn.delay"), error=outcome)


def _policy_of(error: Defer) -> DeferPolicy:
    checked_number(error.factor, "Defer.factor", most=math.inf)
    limit = None if error.limit is None else checked_count(error.limit, "Defer.limit")
    return DeferPolicy(error.factor, checked_seconds(error.max, "Defer.max"), limit, str(error.reason))


def is_failure(decision: Decision) -> bool:
    """Whether the handler has failed. An outcome that it raised on purpose is not a failure."""
    error = decision.error
    return error is not None and decision is not _RETURNED_FALSE and not isinstance(error, Outcome)


def decisions_of_batch(value: Any, count: int) -> list[Decision]:
    """Return the decision for each of `count` messages of a batch. The value is one for all, or a list."""
    if not isinstance(value, list | tuple):
        return [decision_of_return(value)] * count
    if len(value) != count:
        error = f"the handler returned {len(value)} outcomes for {count} messages: return one for each, or None"
        return [Decision("retry", error=error)] * count
    return [_decision_of_item(item) for item in value]


def _decision_of_item(value: Any) -> Decision:
    """Return the decision for an item in a list. An error there is the failure of one message."""
    return decision_of_error(value) if isinstance(value, BaseException) else decision_of_return(value)


def after_failure(
    policy: Retry, attempt: int, delay: float | None = None, error: BaseException | str | None = None
) -> AfterFailure:
    """Choose the step after a failed attempt: seconds until the next one, or why the message is dead.

    `delay` overrides that of the policy. `error` is what the handler raised; an outcome like RetryIn is not an error.
    Raises UsageError if a callable of the user's policy fails.
    """
    if isinstance(error, BaseException) and not isinstance(error, Outcome) and not policy.retries(error):
        return "dead", f"failed with {type(error).__name__}, which is not retried"
    if policy.is_last(attempt):
        return "dead", _last_failure(policy, attempt)
    return "retry", policy.delay_after(attempt) if delay is None else delay


def _last_failure(policy: Retry, attempt: int) -> str:
    """Name the attempt. Crashes count as attempts, so there may have been more than the policy allows."""
    if attempt == 1:
        return "failed"
    return f"failed at attempt {attempt}{f' of {policy.attempts}' if attempt == policy.attempts else ''}"


def after_failure_at_any_rate(
    queue: str, policy: Retry, attempt: int, delay: float | None = None, error: BaseException | str | None = None
) -> tuple[AfterFailure, str]:
    """Decide as `after_failure` does, but use the default if the user's policy fails: the message must be settled.

    The second value is a line for the log, if the policy failed.
    """
    try:
        return after_failure(policy, attempt, delay, error), ""
    except UsageError as bad:
        flaw = f"the retry policy of {title_of(queue)} failed, the default is used: {bad}"
        return ("retry", Retry().delay_after(attempt)), flaw


def after_defer(delay: float, policy: DeferPolicy, defers: int) -> AfterDefer:
    """Choose the step after a defer, given `defers` earlier ones: seconds to wait, or why the message is dead."""
    if policy.limit is not None and defers >= policy.limit:
        reason = f"deferred {defers} times" if defers > 1 else "deferred once"
        return "reject", storable(f"{reason}: {policy.reason}" if policy.reason else reason)
    try:
        grown = delay * float(policy.factor) ** defers
    except OverflowError:
        grown = math.inf if delay else 0.0
    return "defer", min(grown, max(policy.max, delay))


def described(error: BaseException | str | None) -> tuple[str, str]:
    """Return text and traceback of bounded length: stored errors must not fill the server."""
    if error is None:
        return "", ""
    if isinstance(error, str):
        return storable(error) or "failed", ""
    try:
        text = f"{type(error).__name__}: {error}"
        trace = "".join(tracebacks.format_exception(type(error), error, _users_part(error.__traceback__)))
    except BaseException:  # noqa: BLE001 - the error's __str__ may raise anything
        text, trace = type(error).__name__, ""
    return storable(text), _encodable(trace[-_MAX_TRACEBACK:])


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Remove the frames of the worker above the handler, unless there are no others."""
    found = trace
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith(_WORKER):
        found = found.tb_next
    return found or trace


def place_of(error: BaseException | str | None) -> dict[str, Any]:
    """Return as {"at": "shop.py:12"} the last line of the user's code before the error, not of a called library."""
    trace = error.__traceback__ if isinstance(error, BaseException) else None
    own = installed = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        place = f"{PurePath(file).name}:{trace.tb_lineno}"
        if not file.startswith((_DULY, *_INSTALLED)):
            own = place
        elif not file.startswith(_DULY):
            installed = installed or place  # the handler, if it is installed as a library
        trace = trace.tb_next
    return {"at": own or installed} if own or installed else {}


def storable(text: str) -> str:
    """Shorten a reason or an error to its stored length, and make it encodable."""
    return _encodable(text[:_MAX_ERROR])


def on_one_line(text: str) -> str:
    """Escape a text for the log. A sender may be untrusted: the text must not break lines or move the cursor."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
