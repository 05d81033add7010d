"""The files of the deployment page are consistent: they parse, start commands that exist, and leave time for a stop."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml  # type: ignore[import-untyped]

from duly.cli.app import command_line
from duly.cli.values import duration
from tests.docs.test_compose import first_refused, settings_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/deployment.md").read_text()
METRICS = (ROOT / "docs/metrics.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def documents() -> list[dict[str, Any]]:
    return [document for block in blocks("yaml") for document in yaml.safe_load_all(block)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document.get("kind") == kind]


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = next(each["services"] for each in documents() if "services" in each)
    return found


def pods() -> Iterator[dict[str, Any]]:
    for deployment in of_kind("Deployment"):
        yield deployment["spec"]["template"]["spec"]


def commands() -> list[list[str]]:
    found = [list(service["command"]) for service in services().values()]
    found += [list(container["command"]) for pod in pods() for container in pod["containers"]]
    found += [yaml.safe_load(line) for line in re.findall(r"^CMD (.*)$", "".join(blocks("dockerfile")), re.MULTILINE)]
    found += [shlex.split(line) for line in re.findall(r"^ExecStart=\S*/(.*)$", "".join(blocks("ini")), re.MULTILINE)]
    return [command for command in found if command[0] == "duly"]


def parsed(command: list[str]) -> dict[str, Any]:
    """Parse a command line without running it."""
    _, name, *arguments = command
    return typer.main.get_command(command_line()).commands[name].make_context(name, arguments).params  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_is_accepted(command: list[str]) -> None:
    assert parsed(command)


def test_commands_of_all_process_managers_are_found() -> None:
    assert [command[1] for command in commands()].count("worker") == 4
    assert [command[1] for command in commands()].count("dashboard") == 2


def seconds_of_grace(command: list[str]) -> float:
    return duration(parsed(command)["grace"], "--grace")


def test_every_stop_timeout_is_longer_than_the_grace_by_ten_seconds() -> None:
    worker = services()["worker"]
    [pod] = [pod for pod in pods() if pod["containers"][0]["command"][1] == "worker"]
    [unit] = blocks("ini")
    timeouts = {
        "compose": (worker["stop_grace_period"].removesuffix("s"), worker["command"]),
        "kubernetes": (pod["terminationGracePeriodSeconds"], pod["containers"][0]["command"]),
        "systemd": (re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0], commands()[-1]),
    }

    too_short = [name for name, (given, command) in timeouts.items() if int(given) < seconds_of_grace(command) + 10]
    assert too_short == []


def test_probes_use_a_port_that_the_container_opens() -> None:
    for pod in pods():
        [container] = pod["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        probes = [probe for name, probe in container.items() if name.endswith("Probe")]
        options = parsed(container["command"])

        assert probes
        assert {probe["httpGet"]["path"] for probe in probes} == {"/healthz"}
        assert {ports[probe["httpGet"]["port"]] for probe in probes} == {int(options.get("health") or options["port"])}


def test_the_dashboard_answers_under_the_names_that_the_files_use() -> None:
    [service] = of_kind("Service")
    [pod] = [pod for pod in pods() if pod["containers"][0]["command"][1] == "dashboard"]
    [container] = pod["containers"]
    allowed = parsed(container["command"])["allow_host"]

    assert service["metadata"]["name"] in allowed
    assert container["readinessProbe"]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": allowed[0]}]


def test_selectors_and_targets_name_the_workers() -> None:
    [budget], [scaled], [autoscaler] = (
        of_kind(kind) for kind in ("PodDisruptionBudget", "ScaledObject", "HorizontalPodAutoscaler")
    )
    worker = of_kind("Deployment")[0]

    assert budget["spec"]["selector"] == worker["spec"]["selector"]
    assert worker["spec"]["selector"]["matchLabels"] == worker["spec"]["template"]["metadata"]["labels"]
    assert {scaled["spec"]["scaleTargetRef"]["name"], autoscaler["spec"]["scaleTargetRef"]["name"]} == {
        worker["metadata"]["name"]
    }


def test_autoscaling_uses_a_metric_that_is_exported() -> None:
    [scaled], [autoscaler] = of_kind("ScaledObject"), of_kind("HorizontalPodAutoscaler")
    names = re.findall(r"duly_\w+", scaled["spec"]["triggers"][0]["metadata"]["query"])
    names.append(autoscaler["spec"]["metrics"][0]["external"]["metric"]["name"])

    assert {name for name in names if f"| `{name}` | gauge | `queue` |" not in METRICS} == set()


def test_the_server_accepts_every_setting(tmp_path: Path) -> None:
    assert first_refused(settings_of(services()["valkey"]), tmp_path) == "unknown"
