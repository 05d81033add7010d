"""The token of a dashboard that was given none: made at its first start, and kept where its owner alone can read it."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duly.errors import DulyError, UsageError
from duly.web.access import checked_tokens

VARIABLE: Final = "DULY_DASHBOARD_TOKEN"
_NAME: Final = "dashboard-token"
_OTHERS_MAY_USE: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_LONGEST_FILE: Final = 1024


class Unkept(DulyError):
    """A token cannot be kept, or the one that is kept cannot be trusted."""


@dataclass(frozen=True)
class Token:
    """A token, and where it comes from."""

    text: str
    place: Path | None = None
    """The file that it is kept in; None: it was given."""
    is_new: bool = False
    """Whether it was made just now, and nobody knows it yet."""


def chosen_token(option: str | None, environ: Mapping[str, str]) -> Token:
    """Take the token that is given, else the one that is kept."""
    text = given_token(option, environ)
    return kept_token(state_directory(environ)) if text is None else Token(text)


def given_token(option: str | None, environ: Mapping[str, str]) -> str | None:
    """Take the token of the option, else that of the environment, if it is of use; None: there is none."""
    text = option if option is not None else environ.get(VARIABLE) or None
    checked_tokens(text)
    return text


def state_directory(environ: Mapping[str, str]) -> Path:
    """Name the directory of this user for what is kept between two runs."""
    named = Path(environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():  # others are to be ignored, says its specification
        return named / "duly"
    try:
        return Path.home() / ".local" / "state" / "duly"
    except RuntimeError:
        raise Unkept(f"this user has no home directory to keep a token in: give one by {VARIABLE}") from None


def kept_token(directory: Path) -> Token:
    """Read the token that is kept in a directory, or make one. Of two that start at once, one makes it for both."""
    place = directory / _NAME
    with _opened(directory) as folder, _told_as(place):
        try:
            return Token(_read(folder, place), place)
        except FileNotFoundError:
            is_new = _make(folder)
            return Token(_read(folder, place), place, is_new)


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    """Open the directory, made if need be: whoever else could write there could put a token of his own in place."""
    with _told_as(directory):
        _make_directory(directory)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_above(directory)
        _check_own(os.fstat(folder), directory, _OTHERS_MAY_WRITE, "others may write there: chmod 700")
        yield folder
    finally:
        os.close(folder)


def _make_directory(directory: Path) -> None:
    """Make it, and those above it that are missing: `Path.mkdir` would leave those open to whom the umask lets in."""
    for each in [*reversed(directory.parents), directory]:
        if not each.exists():
            with suppress(FileExistsError):  # another start made it just now
                each.mkdir(mode=0o700)


def _check_above(directory: Path) -> None:
    """Refuse a place above which somebody else may put another directory of the same name."""
    for each in Path(os.path.realpath(directory)).parents:
        found = each.stat()
        # A group of their own is what many users have, and a umask that lets it write.
        others = stat.S_IWOTH if found.st_gid == os.getegid() else _OTHERS_MAY_WRITE
        if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
            raise Unkept(f"{directory} is of no use for a token, since others may write in {each}: chmod go-w {each}")


def _read(folder: int, place: Path) -> str:
    """Read the file, unless it is one that somebody else could know or choose."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait for a writer
    with open(os.open(_NAME, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123 - by its folder, which was checked
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Unkept(f"{place} is no file: remove it, and a token is made at the next start")
        _check_own(found, place, _OTHERS_MAY_USE, "others may read it: remove it for a new token, or chmod 600")
        text = file.read(_LONGEST_FILE).decode("ascii", "replace").strip()
    try:
        checked_tokens(text)
    except UsageError:
        raise Unkept(f"{place} holds no token: remove it, and one is made at the next start") from None
    return text


def _make(folder: int) -> bool:
    """Put a new token in place, whole or not at all. False: somebody else was first."""
    draft = f".{_NAME}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600, dir_fd=folder), "w") as file:  # noqa: PTH123 - as above
            file.write(secrets.token_urlsafe(32) + "\n")
        os.link(draft, _NAME, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft, dir_fd=folder)
    return True


def _check_own(found: os.stat_result, place: Path, too_open: int, why: str) -> None:
    if found.st_uid != os.geteuid():
        raise Unkept(f"{place} belongs to somebody else, who would know the token: give one by {VARIABLE}")
    if stat.S_IMODE(found.st_mode) & too_open:
        raise Unkept(f"{place} is of no use for a token, since {why}")


@contextmanager
def _told_as(place: Path) -> Iterator[None]:
    """Say of which file an error is, and what to do."""
    try:
        yield
    except OSError as error:
        why = "it is a link to elsewhere" if place.is_symlink() else error.strerror or error
        raise Unkept(f"no token can be kept in {place}: {why}. Give one by {VARIABLE}") from error
