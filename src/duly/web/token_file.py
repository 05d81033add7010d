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
_ACCESS_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_MAX_FILE: Final = 1024


class TokenFileError(DulyError):
    """A token cannot be kept, or the one that is kept cannot be trusted."""


@dataclass(frozen=True)
class Token:
    """A token, and where it comes from."""

    text: str
    path: Path | None = None
    """The file that it is kept in; None: it was given."""
    is_new: bool = False
    """Whether it was made just now, and nobody knows it yet."""


def resolve_token(option: str | None, environ: Mapping[str, str]) -> Token:
    """Take the token that is given, else the one that is kept."""
    text = configured_token(option, environ)
    return stored_token(state_directory(environ)) if text is None else Token(text)


def configured_token(option: str | None, environ: Mapping[str, str]) -> str | None:
    """Take the token of the option, else that of the environment, if it is of use; None: there is none."""
    text = option if option is not None else environ.get(VARIABLE) or None
    checked_tokens(text)
    return text


def state_directory(environ: Mapping[str, str]) -> Path:
    """Name the directory of this user for what is kept between two runs."""
    state_home = Path(environ.get("XDG_STATE_HOME", ""))
    if state_home.is_absolute():  # others are to be ignored, says its specification
        return state_home / "duly"
    try:
        return Path.home() / ".local" / "state" / "duly"
    except RuntimeError:
        raise TokenFileError(f"this user has no home directory to keep a token in: give one by {VARIABLE}") from None


def stored_token(directory: Path) -> Token:
    """Read the token that is kept in a directory, or make one. Of two that start at once, one makes it for both."""
    path = directory / _NAME
    with _open_directory(directory) as directory_fd, _errors_of(path):
        try:
            return Token(_read(directory_fd, path), path)
        except FileNotFoundError:
            is_new = _create(directory_fd)
            return Token(_read(directory_fd, path), path, is_new)


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    """Open the directory, made if need be: whoever else could write there could put a token of his own in place."""
    with _errors_of(directory):
        _create_directory(directory)
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_parents(directory)
        _check_owner(os.fstat(directory_fd), directory, _WRITE_BY_OTHERS, "others may write there: chmod 700")
        yield directory_fd
    finally:
        os.close(directory_fd)


def _create_directory(directory: Path) -> None:
    """Make it, and those above it that are missing: `Path.mkdir` would leave those open to whom the umask lets in."""
    for each in [*reversed(directory.parents), directory]:
        if not each.exists():
            with suppress(FileExistsError):  # another start made it just now
                each.mkdir(mode=0o700)


def _check_parents(directory: Path) -> None:
    """Refuse a place above which somebody else may put another directory of the same name."""
    for each in Path(os.path.realpath(directory)).parents:
        found = each.stat()
        # A group of their own is what many users have, and a umask that lets it write.
        others = stat.S_IWOTH if found.st_gid == os.getegid() else _WRITE_BY_OTHERS
        if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
            raise TokenFileError(
                f"{directory} is of no use for a token, since others may write in {each}: chmod go-w {each}"
            )


def _read(directory_fd: int, path: Path) -> str:
    """Read the file, unless it is one that somebody else could know or choose."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait for a writer
    with open(os.open(_NAME, flags, dir_fd=directory_fd), "rb") as file:  # noqa: PTH123 - by its folder, which was checked
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TokenFileError(f"{path} is no file: remove it, and a token is made at the next start")
        _check_owner(found, path, _ACCESS_BY_OTHERS, "others may read it: remove it for a new token, or chmod 600")
        text = file.read(_MAX_FILE).decode("ascii", "replace").strip()
    try:
        checked_tokens(text)
    except UsageError:
        raise TokenFileError(f"{path} holds no token: remove it, and one is made at the next start") from None
    return text


def _create(directory_fd: int) -> bool:
    """Put a new token in place, whole or not at all. False: somebody else was first."""
    temporary = f".{_NAME}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=directory_fd), "w") as file:  # noqa: PTH123 - as above
            file.write(secrets.token_urlsafe(32) + "\n")
        os.link(temporary, _NAME, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary, dir_fd=directory_fd)
    return True


def _check_owner(found: os.stat_result, path: Path, forbidden: int, reason: str) -> None:
    if found.st_uid != os.geteuid():
        raise TokenFileError(f"{path} belongs to somebody else, who would know the token: give one by {VARIABLE}")
    if stat.S_IMODE(found.st_mode) & forbidden:
        raise TokenFileError(f"{path} is of no use for a token, since {reason}")


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Say of which file an error is, and what to do."""
    try:
        yield
    except OSError as error:
        reason = "it is a link to elsewhere" if path.is_symlink() else error.strerror or error
        raise TokenFileError(f"no token can be kept in {path}: {reason}. Give one by {VARIABLE}") from error
