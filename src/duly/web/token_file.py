"""The generated token of a dashboard: created at the first start, in a file that only its owner can read."""

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
    """A token cannot be stored, or the stored one cannot be trusted."""


@dataclass(frozen=True)
class Token:
    """A token and its origin."""

    text: str
    path: Path | None = None
    """The file that it is stored in. None: it was configured."""
    is_new: bool = False
    """Whether it was created just now."""


def resolve_token(option: str | None, environ: Mapping[str, str]) -> Token:
    """Return the configured token, or else the stored one."""
    text = configured_token(option, environ)
    return stored_token(state_directory(environ)) if text is None else Token(text)


def configured_token(option: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the token of the option, or else of the environment, after a check. None: there is none."""
    text = option if option is not None else environ.get(VARIABLE) or None
    checked_tokens(text)
    return text


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory for the state of this user."""
    state_home = Path(environ.get("XDG_STATE_HOME", ""))
    if state_home.is_absolute():  # the XDG specification: ignore relative paths
        return state_home / "duly"
    try:
        return Path.home() / ".local" / "state" / "duly"
    except RuntimeError:
        raise TokenFileError(f"this user has no home directory to store a token in: give one with {VARIABLE}") from None


def stored_token(directory: Path) -> Token:
    """Read the token in a directory, or create it. If two processes start at once, both get the same token."""
    path = directory / _NAME
    with _open_directory(directory) as directory_fd, _errors_of(path):
        try:
            return Token(_read(directory_fd, path), path)
        except FileNotFoundError:
            is_new = _create(directory_fd)
            return Token(_read(directory_fd, path), path, is_new)


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    """Open the directory, and create it if needed. It must not be writable by others, who could replace the token."""
    with _errors_of(directory):
        _create_directory(directory)
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_parents(directory)
        _check_owner(os.fstat(directory_fd), directory, _WRITE_BY_OTHERS, "others can write to it: chmod 700")
        yield directory_fd
    finally:
        os.close(directory_fd)


def _create_directory(directory: Path) -> None:
    """Create a directory and its missing parents. `Path.mkdir` would create the parents with the mode of the umask."""
    for each in [*reversed(directory.parents), directory]:
        if not each.exists():
            with suppress(FileExistsError):  # another process created it just now
                each.mkdir(mode=0o700)


def _check_parents(directory: Path) -> None:
    """Reject a directory that others can replace, because they can write to one of its parents."""
    for each in Path(os.path.realpath(directory)).parents:
        found = each.stat()
        # Many users have a private group, and a umask that lets it write.
        others = stat.S_IWOTH if found.st_gid == os.getegid() else _WRITE_BY_OTHERS
        if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
            raise TokenFileError(
                f"{directory} cannot be used for a token, because others can write to {each}: chmod go-w {each}"
            )


def _read(directory_fd: int, path: Path) -> str:
    """Read the file, unless others could have read or replaced it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block until a writer opens it
    with open(os.open(_NAME, flags, dir_fd=directory_fd), "rb") as file:  # noqa: PTH123 - relative to its checked directory
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TokenFileError(f"{path} is not a file: remove it, and a token is created at the next start")
        _check_owner(found, path, _ACCESS_BY_OTHERS, "others can read it: remove it for a new token, or chmod 600")
        text = file.read(_MAX_FILE).decode("ascii", "replace").strip()
    try:
        checked_tokens(text)
    except UsageError:
        raise TokenFileError(f"{path} holds no valid token: remove it, and one is created at the next start") from None
    return text


def _create(directory_fd: int) -> bool:
    """Create the file with a new token atomically. False: another process was faster."""
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
        raise TokenFileError(f"{path} belongs to another user, who would know the token: give one with {VARIABLE}")
    if stat.S_IMODE(found.st_mode) & forbidden:
        raise TokenFileError(f"{path} cannot be used for a token, because {reason}")


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise errors with the path, and with advice."""
    try:
        yield
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror or error
        raise TokenFileError(f"no token can be stored in {path}: {reason}. Give one with {VARIABLE}") from error
