"""Errors say what they are about: what is checked without a name gets it here."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly.errors import UsageError


@contextmanager
def about(what: str, name: str) -> Iterator[None]:
    """Begin the text of a UsageError with a queue, schedule or lock, unless it names that already."""
    subject = f"{what} {name!r}"
    try:
        yield
    except UsageError as error:
        if subject in str(error):
            raise
        raise type(error)(f"{subject}: {error}") from error
