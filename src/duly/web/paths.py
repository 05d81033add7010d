"""Routes that take a path to its very end, whatever characters are in it."""

from __future__ import annotations

import re
from typing import TypeVar

from starlette.routing import Mount, Route

R = TypeVar("R", Route, Mount)


def to_its_end(route: R) -> R:
    """Let a route match line breaks too: without it, an id that ends in one is taken for the id without."""
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    return route
