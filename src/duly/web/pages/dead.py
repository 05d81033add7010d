"""`.../dead`: dead letters by error, and the forms that redrive or delete them. The forms work without scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly import Where
from duly._port import purge_letters, redrive_letters
from duly.errors import UsageError
from duly.message import Message
from duly.web.access import Role, sees_payloads
from duly.web.bounded_gather import bounded_gather
from duly.web.changes import log_change
from duly.web.opaque import decode_cursor, encode_cursor, position_before
from duly.web.pages.error_groups import grouped
from duly.web.pages.filters import Filter
from duly.web.pages.forms import read_form
from duly.web.pages.places import Place, find_place
from duly.web.pages.renderer import path_of, render
from duly.web.problems import Refused
from duly.web.scanning import Budget, Scan, scan
from duly.web.site import denial_reason, role_of

ROWS: Final = 50
_GROUPS: Final = 50
_PREVIEW: Final = Budget(most=10_000, seconds=3)
"""The dead letters that a preview reads."""
_MAX_NAMED: Final = 20
_MAX_FIELDS: Final = 2 * ROWS
_MAX_BYTES: Final = 256 * 1024
_MICROSECONDS: Final = re.compile(r"[0-9]{1,16}")  # until the year 2286
_NO_PREVIEW: Final = "the form names no preview: use the buttons of the page"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Action = Literal["redrive", "delete"]


async def show(request: Request) -> Response:
    """`GET .../dead`: a page of dead letters, the newest first. The first page groups them by error."""
    place, params = await find_place(request), request.query_params
    filter_ = Filter.of(params, sees_payloads=sees_payloads(role_of(request)))
    where, after = filter_.where(), params.get("after") or None
    if after is None:
        found = await _find(place, where)
        groups = grouped(found.matches)
    else:
        found = await _find(place, where, decode_cursor(after, "dead"), wanted=ROWS)
        groups = []
    letters = found.matches[:ROWS]
    last = letters[-1] if len(found.matches) > ROWS else None if found.is_complete else found.last
    return render(
        request, "dead.html", place=place, filter=filter_, stats=await place.inbox.stats(), letters=letters,
        groups=groups[:_GROUPS], more_groups=len(groups) - _GROUPS, scan=found, cursor=encode_cursor,
        next=None if last is None else encode_cursor(last), has_previous=after is not None, done=_done(params),
        resent=params.get("resent", "")[:512], old=params.get("old"),
    )  # fmt: skip


async def _find(place: Place, where: Where, after: Message | str | None = None, **limits: Any) -> Scan:
    """Find letters, the newest first. Only letters that died within the times of the filter are read."""
    since = -math.inf if where.since is None else _microseconds(where.since)
    if after is None and where.until is not None:
        after = position_before("dead", _microseconds(where.until))
    return await scan(
        place.inbox,
        "dead",
        where.matches,
        after=after,
        newest=True,
        is_over=lambda each: each.cursor[0] < since,
        **limits,
    )


def _microseconds(at: datetime | float) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) if isinstance(at, datetime) else int(at * 1_000_000)


def _done(params: Mapping[str, str]) -> tuple[str, int] | None:
    """Return what the form before has done: the verb, and the number of dead letters."""
    for verb in ("redriven", "deleted"):
        if params.get(verb, "").isdecimal():
            return verb, int(params[verb][:12])
    return None


@dataclass(frozen=True)
class Choice:
    """The dead letters that a form names: by check boxes, or all that match a filter."""

    action: Action
    filter: Filter
    letters: Sequence[Message] | None
    """Positions of the selected letters. None: all that match the filter."""
    end: int | None = None
    """Microseconds. Letters that died then or later are not meant: they were not in the preview."""

    @property
    def needs(self) -> Role:
        """The role that may do this. To delete by a filter is to purge."""
        return "admin" if self.action == "delete" and self.letters is None else "operator"

    def where(self) -> Where:
        """Return the filter with its end."""
        where = self.filter.where()
        if self.end is None:
            return where
        end = _EPOCH + timedelta(microseconds=self.end)
        return replace(where, until=min(end, where.until) if isinstance(where.until, datetime) else end)


async def preview(request: Request) -> Response:
    """`POST .../dead/preview`: show what a redrive or delete would do, and ask for a confirmation."""
    place, choice = await find_place(request), _choice(await _fields(request))
    _check_allowed(request, choice)
    if choice.letters is None:
        found = await _find(place, choice.where(), budget=_PREVIEW)
        letters, is_complete, gone = found.matches, found.is_complete, 0
        choice = replace(choice, end=letters[0].cursor[0] + 1 if letters else None)
    else:
        letters, is_complete = await _still_dead(place, choice.letters), True
        gone = len(choice.letters) - len(letters)
        choice = replace(choice, letters=letters)
    return render(
        request, "dead_preview.html", place=place, choice=choice, letters=letters, named=letters[:_MAX_NAMED],
        is_complete=is_complete, gone=gone, groups=grouped(letters)[:_GROUPS], cursor=encode_cursor,
    )  # fmt: skip


async def _still_dead(place: Place, letters: Sequence[Message]) -> list[Message]:
    found = await bounded_gather(letters, lambda each: place.inbox.get(each.id))
    pairs = zip(letters, found, strict=True)
    return [now for then, now in pairs if now and now.state == "dead" and now.cursor[0] == then.cursor[0]]


async def change(request: Request) -> Response:
    """`POST .../dead/change`: redrive or delete, then show the rest. Letters that have changed since then stay."""
    place, fields = await find_place(request), await _fields(request)
    choice = _choice(fields)
    _check_allowed(request, choice)
    if choice.letters is None and choice.end is None:
        raise Refused(400, _NO_PREVIEW)
    if choice.action == "redrive":
        verb, count = "redriven", await _redrive(place, choice, at_end="at_end" in fields)
    else:
        verb, count = "deleted", await _delete(place, choice, _one(fields, "confirm"))
    log_change("purge" if choice.action == "delete" else "redrive", request)
    query = urlencode({verb: count}) + choice.filter.query
    return RedirectResponse(f"{path_of(request, *place.parts, 'dead')}?{query}", 303)


async def _redrive(place: Place, choice: Choice, *, at_end: bool) -> int:
    if choice.letters is not None:
        return await redrive_letters(place.inbox, choice.letters, at_end=at_end)
    return await place.inbox.redrive(where=choice.where(), at_end=at_end)


async def _delete(place: Place, choice: Choice, confirm: str) -> int:
    if choice.letters is not None:
        return await purge_letters(place.inbox, choice.letters)
    if confirm != place.inbox.label:
        raise UsageError(f"type {place.inbox.label!r} to confirm: nothing was deleted")
    return await place.inbox.purge("dead", where=choice.where())


async def _fields(request: Request) -> dict[str, list[str]]:
    if not request.state.has_own_origin:
        raise Refused(403, "a form must name the page it comes from: send Origin, or use the HTTP API")
    return await read_form(request, "this page", most_bytes=_MAX_BYTES, most_fields=_MAX_FIELDS)


def _one(fields: Mapping[str, Sequence[str]], name: str) -> str:
    return fields.get(name, [""])[0]


def _choice(fields: Mapping[str, Sequence[str]]) -> Choice:
    given, _, scope = _one(fields, "do").partition("-")
    action: Action | None = "redrive" if given == "redrive" else "delete" if given == "delete" else None
    if action is None or scope not in ("", "all"):
        raise Refused(400, "the form names no action: use the buttons of the page")
    filter_ = Filter.of({name: values[0] for name, values in fields.items()}, sees_payloads=True)
    if scope == "all":
        return Choice(action, filter_, None, _end(_one(fields, "end")))
    letters = [_position(each) for each in fields.get("letter", ())]
    if not letters:
        raise UsageError("no dead letter is selected: go back and check some")
    return Choice(action, filter_, letters)


def _end(text: str) -> int | None:
    """Read the end that a preview has set. None: the form is from the list, not from a preview."""
    if not text:
        return None
    if not _MICROSECONDS.fullmatch(text):
        raise Refused(400, _NO_PREVIEW)
    return int(text)


def _position(text: str) -> Message:
    """Return the dead letter that a check box names."""
    found = decode_cursor(text, "dead")
    if isinstance(found, str):
        raise UsageError("the form has an id in place of a position: use the check boxes of the page")
    return found


def _check_allowed(request: Request, choice: Choice) -> None:
    reason = denial_reason(request, choice.needs, changes=True)
    if reason is not None:
        raise Refused(403, reason)
