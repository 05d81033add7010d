"""The stored token: created once, readable by its owner only, and rejected if others could read or replace it."""

import os
import stat
import threading
from pathlib import Path

import pytest

from duly.errors import UsageError
from duly.web.token_file import Token, TokenFileError, resolve_token, state_directory, stored_token


def names_in(directory: Path) -> list[str]:
    return [each.name for each in directory.iterdir()]


def test_the_first_start_creates_a_token_for_later_ones(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "duly"

    first, second = stored_token(directory), stored_token(directory)

    assert first.is_new
    assert len(first.text) >= 43  # 256 bits
    assert second == Token(first.text, directory / "dashboard-token", is_new=False)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "dashboard-token").stat().st_mode) == 0o600
    assert names_in(directory) == ["dashboard-token"]


def test_concurrent_first_starts_share_one_token(tmp_path: Path) -> None:
    found: list[Token] = []
    begin = threading.Barrier(8)

    def start() -> None:
        begin.wait()
        found.append(stored_token(tmp_path / "duly"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len({each.text for each in found}) == 1
    assert [each.is_new for each in found].count(True) == 1
    assert names_in(tmp_path / "duly") == ["dashboard-token"]


@pytest.mark.parametrize(
    ("given", "variables", "text"),
    [
        ("given-by-option", {"DULY_DASHBOARD_TOKEN": "of-the-environment"}, "given-by-option"),
        (None, {"DULY_DASHBOARD_TOKEN": "of-the-environment"}, "of-the-environment"),
    ],
    ids=["option", "variable"],
)
def test_a_configured_token_is_not_stored(
    tmp_path: Path, given: str | None, variables: dict[str, str], text: str
) -> None:
    assert resolve_token(given, {**variables, "XDG_STATE_HOME": str(tmp_path)}) == Token(text)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_is_ignored(tmp_path: Path) -> None:
    chosen = resolve_token(None, {"DULY_DASHBOARD_TOKEN": "", "XDG_STATE_HOME": str(tmp_path)})

    assert chosen.path == tmp_path / "duly" / "dashboard-token"


@pytest.mark.parametrize("given", ["", "short", "with a space in it", "naïve-token"])
def test_an_invalid_token_is_rejected(given: str) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        resolve_token(given, {})


def test_the_directory_belongs_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")

    assert state_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/duly")
    assert state_directory({"XDG_STATE_HOME": "here"}) == Path("/home/ann/.local/state/duly")
    assert state_directory({}) == Path("/home/ann/.local/state/duly")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_is_rejected(tmp_path: Path, mode: int) -> None:
    place = stored_token(tmp_path / "duly").path
    assert place is not None
    place.chmod(mode)

    with pytest.raises(TokenFileError, match=r"dashboard-token cannot be used for a token, because others can read it"):
        stored_token(tmp_path / "duly")


def test_a_directory_that_others_can_write_to_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "duly").mkdir()
    (tmp_path / "duly").chmod(0o777)

    with pytest.raises(TokenFileError, match="others can write to it: chmod 700"):
        stored_token(tmp_path / "duly")

    assert names_in(tmp_path / "duly") == []


def test_a_file_of_another_user_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_token(tmp_path / "duly")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(TokenFileError, match=r"belongs to another user, .*DULY_DASHBOARD_TOKEN"):
        stored_token(tmp_path / "duly")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    token = stored_token(tmp_path / "elsewhere").path
    assert token is not None
    (tmp_path / "duly").mkdir(mode=0o700)
    (tmp_path / "duly" / "dashboard-token").symlink_to(token)

    with pytest.raises(
        TokenFileError, match=r"duly/dashboard-token: it is a symbolic link\. Give one with DULY_DASHBOARD"
    ):
        stored_token(tmp_path / "duly")


@pytest.mark.parametrize(
    "content", ["", "\n", "a b c d e f g h", "\xff" * 20], ids=["empty", "blank", "words", "bytes"]
)
def test_a_file_without_a_valid_token_is_rejected(tmp_path: Path, content: str) -> None:
    place = stored_token(tmp_path / "duly").path
    assert place is not None
    place.write_text(content, "latin-1")

    with pytest.raises(TokenFileError, match="holds no valid token: remove it"):
        stored_token(tmp_path / "duly")


def test_a_pipe_is_rejected_at_once(tmp_path: Path) -> None:
    (tmp_path / "duly").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "duly" / "dashboard-token", 0o600)

    with pytest.raises(TokenFileError, match="is not a file: remove it"):
        stored_token(tmp_path / "duly")


def test_an_unusable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        TokenFileError, match=r"no token can be stored in .*file/duly: Not a directory\. Give one with DULY_DASH"
    ):
        stored_token(tmp_path / "file" / "duly")


def test_created_directories_are_private_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        stored_token(tmp_path / "home" / "state" / "duly")
    finally:
        os.umask(before)

    made = [tmp_path / "home", tmp_path / "home" / "state", tmp_path / "home" / "state" / "duly"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3


def test_a_directory_that_is_a_link_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "duly").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(
        TokenFileError, match=r"no token can be stored in .*duly: it is a symbolic link\. Give one with DULY_DASH"
    ):
        stored_token(tmp_path / "duly")
    assert names_in(tmp_path / "elsewhere") == []


def test_a_directory_below_a_writable_one_is_rejected(tmp_path: Path) -> None:
    """Others could replace the directory. In a sticky directory like /tmp they cannot."""
    above = tmp_path / "open"
    directory = above / "state" / "duly"
    directory.mkdir(parents=True, mode=0o700)

    above.chmod(0o777)
    with pytest.raises(TokenFileError, match=rf"because others can write to {above}: chmod go-w {above}"):
        stored_token(directory)
    assert names_in(directory) == []
    above.chmod(0o1777)
    assert stored_token(directory).is_new


def test_a_private_group_may_write_to_parents_and_another_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "state" / "duly"
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o770)

    assert stored_token(directory).is_new
    monkeypatch.setattr(os, "getegid", lambda: directory.parent.stat().st_gid + 1)
    with pytest.raises(TokenFileError, match="others can write to"):
        stored_token(directory)
