"""Errors that a retry cannot fix: the server, its address or the app must change first."""

from duly._core.replies import is_denied
from duly.errors import DulyError, UnsafeServer


def is_refusal(error: DulyError) -> bool:
    """Return whether the server refuses the user, or the app refuses the server."""
    return isinstance(error, UnsafeServer) or is_denied(error.__cause__)
