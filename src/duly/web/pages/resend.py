"""`/queues/{queue}/resend/{id}`: edit a dead or done message and send it as a new one. Works without scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec
from msgspec import Raw
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly import Send
from duly._port import Inbox, purge_letters
from duly.errors import DulyError, Unavailable, UsageError
from duly.message import Message
from duly.web.api.requests import checked_body
from duly.web.changes import log_change
from duly.web.names import message_not_found
from duly.web.opaque import decode_cursor, encode_cursor
from duly.web.pages.forms import read_form
from duly.web.pages.places import Place, find_place
from duly.web.pages.renderer import path_of, render
from duly.web.pages.text import editable_json
from duly.web.problems import Refused, status_of
from duly.web.site import denial_reason, site_of

_MAX_EDITED: Final = 200_000
"""The largest body in bytes that can be edited."""
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_FIELDS: Final = 12
_RESENT: Final = ("dead", "done")
_DEDUP_SECONDS: Final = 86_400


@dataclass(frozen=True)
class Draft:
    """The fields of the form."""

    body: str
    is_bytes: bool
    """Whether the body is bytes, edited as Base64. Otherwise it is JSON."""
    headers: str
    """A JSON object."""
    delay: str
    once: str
    """A random text of the page. With it, the same content that is sent twice is stored once."""
    state: str
    old: str
    """The state of the old message and its position, which has its key and priority.

    So a form can be sent again after the old message was removed.
    """
    removes: bool

    @property
    def _digest(self) -> str:
        content = json.dumps([self.body, self.headers, self.delay])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def position(self, id_: str) -> Message:
        """Return the old message. Only its id, state, key and priority are known."""
        found = decode_cursor(self.old, self.state)
        if isinstance(found, str) or found.id != id_ or found.state not in _RESENT:
            raise Refused(400, "the form does not name the message of this page: reload the page")
        return found

    def message(self, old: Message) -> Send[Raw | bytes]:
        """Create the new message. Key and priority stay."""
        body = (None, self.body) if self.is_bytes else (Raw(self.body.encode()), None)
        return Send(
            checked_body(msgspec.UNSET if body[0] is None else body[0], body[1]),
            headers=_headers(self.headers) or None,
            delay=_delay(self.delay),
            key=old.key,
            priority=old.priority,
            dedup=f"resend-{self.once}-{self._digest}",
            dedup_for=_DEDUP_SECONDS,
        )


async def show(request: Request) -> Response:
    """`GET`: the form, with the present body and headers."""
    _check_allowed(request)
    place = await find_place(request)
    old = await _find(place.inbox, request.path_params["id"])
    return _form(request, place, old, _draft_of(old))


async def submit(request: Request) -> Response:
    """`POST`: send the new message, then remove the dead letter if that is chosen."""
    _check_allowed(request)
    if not request.state.has_own_origin:
        raise Refused(403, "a form must name the page it comes from: send Origin, or use the HTTP API")
    place = await find_place(request)
    draft = _posted(await read_form(request, "this page", most_bytes=_MAX_BYTES, most_fields=_MAX_FIELDS))
    old = draft.position(request.path_params["id"])
    try:
        queue = site_of(request).names.open_for_sending(place.inbox.label)
        (new,) = await queue.send_many([draft.message(old)])
    except Unavailable:
        raise
    except DulyError as error:
        return _form(request, place, old, draft, status_of(error), str(error))
    log_change("resend", request)
    query = urlencode({"resent": str(new), "old": await _removed(place.inbox, old) if draft.removes else "kept"})
    return RedirectResponse(f"{path_of(request, *place.parts, 'dead')}?{query}", 303)


async def _removed(inbox: Inbox, letter: Message) -> str:
    """Remove the dead letter. It stays if it has changed since the form was made, or if the server does not answer."""
    try:
        return "removed" if await purge_letters(inbox, [letter]) else "changed"
    except DulyError:
        return "changed"


async def _find(inbox: Inbox, id_: str) -> Message:
    found = await inbox.get(id_)
    if found is None:
        raise message_not_found(inbox, id_)
    if found.state not in _RESENT:
        raise Refused(409, f"message {id_} of {inbox.title} is {found.state}: only dead and done ones are resent")
    if found.raw is None or len(found.raw) > _MAX_EDITED:
        problem = "was lost" if found.raw is None else f"has more than {_MAX_EDITED:,} bytes"
        raise Refused(409, f"message {id_} of {inbox.title} cannot be edited here: its body {problem}")
    return found


def _form(
    request: Request, place: Place, old: Message, draft: Draft, status: int = 200, problem: str | None = None
) -> Response:
    return render(request, "resend.html", status, place=place, old=old, draft=draft, problem=problem)


def _draft_of(old: Message) -> Draft:
    is_bytes = isinstance(old.body, bytes)
    raw = old.raw or b""
    return Draft(
        body=base64.b64encode(raw).decode() if is_bytes else editable_json(raw),
        is_bytes=is_bytes,
        headers=json.dumps(dict(old.headers), indent=2),
        delay="",
        once=secrets.token_hex(16),
        state=old.state,
        old=encode_cursor(old),
        removes=old.state == "dead",
    )


def _posted(fields: Mapping[str, Sequence[str]]) -> Draft:
    def one(name: str) -> str:
        return fields.get(name, [""])[0]

    return Draft(
        body=one("base64") if "base64" in fields else one("body"),
        is_bytes="base64" in fields,
        headers=one("headers"),
        delay=one("delay").strip(),
        once=one("once")[:64] or secrets.token_hex(16),
        state=one("state"),
        old=one("old"),
        removes="remove" in fields and one("state") == "dead",
    )


def _headers(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"the headers must be a JSON object of texts: {error}") from None


def _delay(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"the delay must be a number of seconds, not {text!r}")
    return seconds


def _check_allowed(request: Request) -> None:
    reason = denial_reason(request, "operator", changes=True)
    if reason is not None:
        raise Refused(403, reason)
