"""Show signatures of the reference as callers use them. mkdocs.yml names this extension of griffe.

Some methods have parameters only to raise an error that names the right option, and defaults that are private constants
of their module. Neither means anything to a reader.
"""

from typing import Any, Final

import griffe

REFUSED: Final = {"misplaced", "unknown"}
"""The names of parameters that accept no value."""


class ReaderSignatures(griffe.Extension):
    """Leaves parameters without meaning out of signatures, and replaces private constants."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Be called by griffe with each function."""
        shown = [each for each in func.parameters if each.name not in REFUSED and not each.name.startswith("_")]
        for each in shown:
            each.default = shown_default(each.default, func)
        func.parameters = griffe.Parameters(*shown)


def shown_default(default: Any, func: griffe.Function) -> Any:
    """Return the value of a private constant, and any other default as it is."""
    name = str(default)
    if not name.startswith("_") or not name.isidentifier():
        return default
    constant = func.module.members.get(name)
    value = str(constant.value) if isinstance(constant, griffe.Attribute) else "..."
    return "..." if value == "object()" else value
