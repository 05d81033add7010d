"""The style, the script and the icon: three files, and no other can be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_FOLDER: Final = Path(__file__).parents[1] / "static"
_TYPES: Final = {"duly.css": "text/css", "duly.js": "text/javascript", "icon.svg": "image/svg+xml"}
_CONTENTS: Final = {name: (_FOLDER / name).read_bytes() for name in _TYPES}


async def static(request: Request) -> Response:
    """Give one of them."""
    name = request.path_params["name"]
    if name not in _CONTENTS:
        raise HTTPException(404)
    return Response(_CONTENTS[name], media_type=_TYPES[name])
