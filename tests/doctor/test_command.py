"""`duly doctor`: its output and its exit status."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import typer
from typer.testing import CliRunner, Result

import duly
from duly.cli.command import command
from duly.cli.doctor import doctor
from duly.errors import UsageError
from tests.servers import Server

pytestmark = pytest.mark.fault

app = typer.Typer()
command(app)(doctor)


@pytest.fixture
def careless() -> Iterator[Server]:
    with Server("valkey", {"appendonly": "no", "timeout": "5"}) as server:
        yield server


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, list(arguments), catch_exceptions=False)


def test_trouble_is_printed_with_its_reason_and_its_fix(careless: Server) -> None:
    result = run("--url", careless.url)

    assert result.exit_code == 1
    lines = [re.sub(r" +", " ", line).strip() for line in result.stdout.splitlines()]
    assert lines[0] == careless.url
    assert "bad persistence none: a restart of the server empties it" in lines
    assert "warn idle-timeout after 5 s" in lines
    at = lines.index("bad persistence")
    assert lines[at + 1].startswith("A message is as safe as the data of the server")
    assert "CONFIG SET appendonly yes" in lines[at:]
    assert lines[-1].endswith("fix this before you rely on this server")


def test_json_has_the_same_findings(careless: Server) -> None:
    result = run("--url", careless.url, "--json")

    printed = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (printed["ok"], printed["server"]) == (False, careless.url)
    (finding,) = [each for each in printed["findings"] if each["name"] == "idle-timeout"]
    assert finding == {
        "name": "idle-timeout",
        "verdict": "warn",
        "found": "after 5 s",
        "why": finding["why"],
        "fix": finding["fix"],
    }
    assert finding["why"]
    assert finding["fix"].startswith("CONFIG SET timeout 0\n")


def test_warnings_fail_only_when_that_is_asked_for() -> None:
    with Server("valkey", {"appendonly": "yes", "timeout": "5"}) as server:
        plain, strict = run("--url", server.url), run("--url", server.url, "--strict")

    assert (plain.exit_code, strict.exit_code) == (0, 1)
    assert "no check found a risk for messages" in plain.stdout


def test_unknown_safety_is_printed_as_unknown() -> None:
    with Server("valkey", {"appendonly": "no"}) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">sesame", "~*", "+@all", "-info", "-config")
        result = run("--url", server.url.replace("redis://", "redis://app:sesame@"))

    assert "no check found a risk" not in result.stdout
    assert "cannot determine whether messages are safe: see eviction, persistence" in result.stdout


def test_an_embedded_server_is_started_and_examined(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}/d"
    with duly.Duly(url) as used:
        used.queue("orders").send(1)

    result = run("--url", url, "--json")

    assert result.exit_code == 0, result.stdout
    assert {each["verdict"] for each in json.loads(result.stdout)["findings"]} <= {"ok", "warn"}


def test_an_unreachable_server_prints_no_traceback() -> None:
    with Server("valkey") as server:
        url = server.url

    result = run("--url", url)

    assert result.exit_code == 1
    assert "cannot be reached" in result.stdout


def test_memory_url_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="memory:// works within one process"):
        run("--url", "memory://")


def test_missing_permissions_are_printed() -> None:
    with Server("valkey", {"appendonly": "yes", "rename-command": 'CONFIG ""'}) as server:
        result = run("--url", server.url)

    assert result.exit_code == 0
    assert "unknown; to find out:" in result.stdout
    assert "the server does not offer it" in result.stdout
