"""The compose files of the examples: they parse, name images by version, and set only options that the server has."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from duly.embedded.binary import find_binary

FOLDER = Path(__file__).parents[2] / "examples/compose"
FILES = sorted(FOLDER.glob("*.yml"))
HEREDOC = re.compile(r"<<END\n(.*?)^END$", re.MULTILINE | re.DOTALL)

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def services_of(file: Path) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    return services


def settings_of(service: dict[str, Any]) -> Iterator[str]:
    """Return the settings of a server or sentinel as lines of a configuration file, without directories."""
    program, *arguments = service["command"]
    if program == "valkey-server":
        for name, value in zip(arguments[::2], arguments[1::2], strict=True):
            yield f'{name.removeprefix("--")} "{value}"'
    else:
        text = "\n".join(HEREDOC.findall(arguments[-1]))
        yield from (line for line in text.splitlines() if line and not line.startswith(("#", "dir ")))


def test_sentinels_and_clusters_have_a_file() -> None:
    assert [file.name for file in FILES] == ["cluster.yml", "sentinel.yml"]


def test_the_nodes_of_the_cluster_are_those_that_are_started() -> None:
    create = services_of(FOLDER / "cluster.yml").pop("create")
    nodes = {name: service for name, service in services_of(FOLDER / "cluster.yml").items() if name != "create"}
    addresses = [service["networks"]["cluster"]["ipv4_address"] for service in nodes.values()]

    assert re.findall(r"([\d.]+):6379", create["command"][-1]) == addresses
    assert list(create["depends_on"]) == list(nodes)
    assert create["command"][-1].count("--cluster-replicas 1 ") == 1
    assert len(nodes) == 6


@each_file
def test_images_are_named_with_a_version_and_without_a_host(file: Path) -> None:
    images = {service["image"] for service in services_of(file).values()}

    assert images == {"valkey/valkey:9.1"}


def first_refused(settings: Iterable[str], folder: Path) -> str:
    """Return the first setting that the server refuses. The last line is unknown, so the server never starts."""
    lines = [f"dir {folder}", *settings]
    is_sentinel = any(line.startswith("sentinel ") for line in lines)
    config = folder / "server.conf"
    config.write_text("\n".join([*lines, "sentinel unknown" if is_sentinel else "unknown", ""]))
    command = [find_binary(), str(config), *(["--sentinel"] if is_sentinel else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    refused: list[str] = re.findall(r"^>>> '(.*)'$", done.stdout + done.stderr, re.MULTILINE)
    return refused[0]


@each_file
def test_the_server_accepts_every_setting(file: Path, tmp_path: Path) -> None:
    configurations = {tuple(settings_of(service)) for service in services_of(file).values()} - {()}

    assert configurations
    assert {first_refused(each, tmp_path) for each in configurations} <= {"unknown", "sentinel unknown"}


@pytest.mark.parametrize("line", ["maxmemory-policy none", "min-replicas 1", "sentinel quorum mymaster 2"])
def test_a_setting_that_the_server_refuses_is_found(line: str, tmp_path: Path) -> None:
    assert first_refused([line], tmp_path) == line
