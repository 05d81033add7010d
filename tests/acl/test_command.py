"""`duly acl`, as people run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from duly.acl import ROLES
from tests import warm
from tests.acl.users import SECRET
from tests.binaries import Kind
from tests.conftest import StartedServer


def run_acl(*arguments: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    return warm.run([sys.executable, "-m", "duly", "acl", *arguments], cwd=directory, timeout=60)


def test_the_line_that_is_printed_makes_a_user(
    server: StartedServer, kind: Kind, root: "redis.Redis", tmp_path: Path, queue_name: str
) -> None:
    """With a pattern that a shell would open, and nothing on standard output but the line."""
    done = run_acl("--role", "consumer", "--url", server(kind).url, "--user", queue_name, "--own-keys", "stock:*",
                   directory=tmp_path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"ACL SETUSER {queue_name} on >PASSWORD resetkeys ~duly:{{*}}:* ~stock:* ")
    assert done.stdout.count("\n") == 1
    assert "no password is made up" in done.stderr
    root.execute_command(*done.stdout.replace(">PASSWORD", f">{SECRET}").split())  # type: ignore[no-untyped-call]
    root.acl_deluser(queue_name)


def test_json_has_the_parts(tmp_path: Path) -> None:
    done = run_acl("--role", "observer", "--server", "7.0", "--namespace", "shop", "--json", directory=tmp_path)

    found = json.loads(done.stdout)
    assert set(found) == {"role", "server", "user", "rules", "command"}
    assert (found["role"], found["server"], found["user"]) == ("observer", "Redis 7.0", "duly-observer")
    assert found["rules"][1] == "~shop:{*}:*"
    assert found["command"].endswith(" ".join(found["rules"]))
    assert list(tmp_path.iterdir()) == []  # no server was started


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--role", "owner"), "owner"),
        ((), "--role"),
        (("--role", "producer", "--user", ""), "a user needs a name"),
        (("--role", "producer", "--own-keys", "a", "--server", "7.0"), "only a commit"),
        (("--role", "producer", "--server", "seven"), "no version of a server"),
        (("--role", "producer", "--url", "memory://"), "memory:// lives inside of one process"),
    ],
)
def test_misuse_says_what_is_wrong(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = run_acl(*arguments, directory=tmp_path)

    assert done.returncode == 2
    assert why in done.stderr
    assert done.stdout == ""


def test_every_role_is_offered(tmp_path: Path) -> None:
    help_text = run_acl("--help", directory=tmp_path).stdout

    assert all(role in help_text for role in ROLES)
