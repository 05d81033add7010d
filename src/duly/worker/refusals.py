"""Errors that no further try mends: somebody must change the server, the address or the app first."""

from duly._core.replies import is_denied
from duly.errors import DulyError, UnsafeServer


def is_refusal(error: DulyError) -> bool:
    """Say whether the server refuses the user, or the app the server."""
    return isinstance(error, UnsafeServer) or is_denied(error.__cause__)
