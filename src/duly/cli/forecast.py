"""`duly stats --ahead`: how many messages become due in each interval from now on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from duly._core.forecast import checked_ahead
from duly.cli import output, values
from duly.cli.each_inbox import Failed, read_each, report_failed
from duly.cli.output import Align
from duly.cli.session import Session
from duly.errors import UsageError
from duly.message import Bucket

_COLUMNS: Final[dict[str, Align]] = {"FROM": "left", "DUE": "right", "CHART": "left"}
_BAR_WIDTH: Final = 40
_MINUTE: Final = timedelta(minutes=1)


def ahead_of(text: str, *, is_alone: bool) -> float:
    """Read the value of --ahead, in seconds."""
    if not is_alone:
        raise UsageError("--ahead shows the future, --since the past, and --watch the present: choose one of them")
    try:
        return checked_ahead(values.duration(text, "--ahead"))
    except UsageError:
        raise UsageError(f"--ahead: {text!r} must be a duration from a second to ten years, like 1d") from None


def show_forecast(session: Session, queues: Iterable[str] | None, ahead: float) -> None:
    """Print a histogram for each queue and group."""
    failed: Failed = {}
    survey = session.survey()
    found = read_each(session.inboxes(queues, survey), survey, lambda inbox: inbox.forecast(ahead), failed)
    rows: list[dict[str, Any]] = [{"name": name, "forecast": output.plain(each)} for name, each in found.items()]
    missing = [{"node": str(each.node), "reason": each.reason} for each in survey.away]
    session.show({"queues": rows, **({"missing": missing} if missing else {})}, _view(found))
    report_failed(session, survey, failed)


def _view(found: Mapping[str, Sequence[Bucket]]) -> RenderableType:
    parts: list[RenderableType] = []
    for name, buckets in found.items():
        total = sum(bucket.count for bucket in buckets)
        if not total:
            parts.append(Text(f"{output.visible(name)}: nothing becomes due"))
            continue
        become = "becomes" if total == 1 else "become"
        parts += [Text(f"{output.visible(name)}: {total:,} {become} due", "bold"), _histogram(buckets), Text("")]
    return Group(*parts) if parts else Text("there are no queues yet: `duly send orders hello` creates one")


def _histogram(buckets: Sequence[Bucket]) -> output.Sheet:
    largest = max(bucket.count for bucket in buckets)
    has_seconds = max(bucket.end - bucket.start for bucket in buckets) < _MINUTE
    bar = "█" if output.supports_unicode() else "#"
    rows = []
    for bucket in buckets:
        width = -(-bucket.count * _BAR_WIDTH // largest)  # rounded up: one message is visible
        rows.append([_start(bucket.start, has_seconds=has_seconds), f"{bucket.count:,}", Text(bar * width, "green")])
    return output.Sheet(_COLUMNS, rows)


def _start(at: datetime, *, has_seconds: bool) -> str:
    return output.clock_text(at)[: 19 if has_seconds else 16]
