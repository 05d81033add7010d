"""`duly acl` as a command."""

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


def test_the_printed_line_creates_a_user(
    server: StartedServer, kind: Kind, root: "redis.Redis", tmp_path: Path, queue_name: str
) -> None:
    """Uses a pattern that a shell would expand. Standard output has only the line."""
    done = run_acl("--role", "consumer", "--url", server(kind).url, "--user", queue_name, "--own-keys", "stock:*",
                   directory=tmp_path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"ACL SETUSER {queue_name} on >PASSWORD resetkeys ~duly:{{*}}:* ~stock:* ")
    assert done.stdout.count("\n") == 1
    assert "no password is generated" in done.stderr
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
        (("--role", "producer", "--server", "seven"), "not a version of a server"),
        (("--role", "producer", "--url", "memory://"), "memory:// works within one process"),
    ],
)
def test_misuse_is_explained(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = run_acl(*arguments, directory=tmp_path)

    assert done.returncode == 2
    assert why in done.stderr
    assert done.stdout == ""


def test_every_role_is_offered(tmp_path: Path) -> None:
    help_text = run_acl("--help", directory=tmp_path).stdout

    assert all(role in help_text for role in ROLES)
