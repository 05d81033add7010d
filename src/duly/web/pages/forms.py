"""Reads the forms that browsers send, with limits."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request

from duly.web.problems import Refused

_FORM: Final = "application/x-www-form-urlencoded"
_FEW_BYTES: Final = 16 * 1024
_FEW_FIELDS: Final = 8


async def read_small_form(request: Request, what: str) -> dict[str, str]:
    """Return the fields of a form that has few of them. A field that was sent twice is left out."""
    fields = await read_form(request, what, most_bytes=_FEW_BYTES, most_fields=_FEW_FIELDS)
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


async def read_form(request: Request, what: str, *, most_bytes: int, most_fields: int) -> dict[str, list[str]]:
    """Return the values of each field of a form. `what` names the form in errors."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise Refused(415, f"{what} expects a form: send it with Content-Type: {_FORM}")
    content = await _read_content(request, most_bytes)
    try:
        return parse_qs(content.decode("latin-1"), keep_blank_values=True, max_num_fields=most_fields)
    except ValueError:
        raise Refused(400, f"the form has more than {most_fields} fields") from None


async def _read_content(request: Request, most_bytes: int) -> bytes:
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > most_bytes:
                raise Refused(413, f"the form is too large: the limit is {most_bytes} bytes")
    except ClientDisconnect:
        raise Refused(408, "the client disconnected before its request was complete") from None
    return bytes(content)
