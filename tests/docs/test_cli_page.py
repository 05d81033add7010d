"""The pages list every command and option of the command line, and no others."""

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

import duly
from duly.cli.app import command_line
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
CLI_PAGES: Final = {"en": ROOT / "docs/cli.md", "zh": ROOT / "docs/zh/cli.md"}
SHARED_BY_ALL: Final = {"en": "## Common options\n", "zh": "## 通用说明\n"}
TUTORIAL = ROOT / "docs/tutorial.md"
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.remove(ROOT / "docs/mission.md")  # which also lists future features

SHARED: Final = {"--url", "--namespace", "--json"}
"""Described once, for all commands that have all three."""
OPTION = re.compile(r"`(--[a-z][a-z-]*)")
COMMAND_LINE = re.compile(r"^(?:\$ )?duly (.*)$|`duly ([^`]*)`", re.MULTILINE)
SH_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE_BLOCK = re.compile(r"^```python\n(# (\w+\.py).*?)^```$", re.MULTILINE | re.DOTALL)


PRINTED: Final = {
    "python signup.py": ("mail to ann", "mail to bob"),
    "dead redrive mails": ("mail to cleo",),
    "schedule add": ("mail to boss",),
    "topic publish": ("booked tea", "counted tea"),
}
"""Output of the tutorial's worker after a command. A reader waits for it before the next one."""


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Walk through the commands that do something."""
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command


ROOT_COMMAND: Final[Any] = typer.main.get_command(command_line())
COMMANDS: Final[Mapping[str, Any]] = dict(leaves(ROOT_COMMAND, "duly"))


def options_of(command: Any) -> set[str]:
    names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {name for name in names if name.startswith("--")} - {"--help"}


def sections(page: str) -> dict[str, str]:
    """Cut the page at its headings `### duly ...`."""
    found = re.split(r"^### (duly .*)$", page, flags=re.MULTILINE)
    return {
        title: re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for title, text in zip(found[1::2], found[2::2], strict=True)
    }


@pytest.fixture(params=CLI_PAGES)
def page(request: pytest.FixtureRequest) -> str:
    """Return the page about the command line, in each language."""
    return CLI_PAGES[request.param].read_text()


def test_every_command_has_a_section_and_no_other_has(page: str) -> None:
    assert len(COMMANDS) > 30
    assert set(sections(page)) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_section_of_a_command_lists_its_options_and_no_others(page: str, name: str) -> None:
    has = options_of(COMMANDS[name])
    rows = [line for line in sections(page)[name].splitlines() if line.startswith("| `--")]
    listed = {option for row in rows for option in OPTION.findall(row.split("|")[1])}

    assert listed == (has - SHARED if has >= SHARED else has)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_section_of_a_command_has_an_example(page: str, name: str) -> None:
    assert f"```\n{name}" in sections(page)[name]


@pytest.mark.parametrize("language", CLI_PAGES)
def test_the_options_of_all_commands_are_described_once(language: str) -> None:
    shared = CLI_PAGES[language].read_text().partition(SHARED_BY_ALL[language])[2].partition("\n## ")[0]

    assert SHARED | options_of(ROOT_COMMAND) <= set(OPTION.findall(shared.replace("`duly --", "`--")))


def problem_of(line: str) -> str | None:
    """Describe the mistake in a command line of a page, without placeholders in capitals."""
    words = shlex.split(re.split(r"[|><;]| && | # |\s#", line)[0].replace("'", "").replace('"', ""))
    command, rest = ROOT_COMMAND, list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return None if rest[0].isupper() else f"there is no command {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    known = options_of(command) | {"--help"}
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{unknown[0]} is not an option of it" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_command_lines_of_a_page_name_existing_commands(page: Path) -> None:
    shown = [block or inline for block, inline in COMMAND_LINE.findall(page.read_text())]

    assert [(line, problem) for line in shown if (problem := problem_of(line))] == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("send orders '{\"a\": 1}' --delay 30s", False),
        ("dead redrive payments --rate 50/s | cat --gone", False),
        ("COMMAND --help", False),
        ("sned orders", True),
        ("send orders hello --dely 30s", True),
        ("dead list payments", True),
    ],
)
def test_a_false_command_line_is_found(line: str, is_wrong: bool) -> None:
    assert (problem_of(line) is not None) is is_wrong


ACTIVATION: Final = ". .venv/bin/activate\n"
"""The first line of a new terminal. The environment of the tests is active already."""


def given_shop(folder: Path) -> dict[str, str]:
    """Write the modules of the tutorial, and return the environment of a reader who follows it."""
    for code, name in MODULE_BLOCK.findall(TUTORIAL.read_text()):
        with folder.joinpath(name).open("a") as module:
            module.write(code + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    return {**environment, "PATH": path, "PYTHONPATH": str(folder)}


def run_block(block: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", block],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (block, done.stdout, done.stderr)
    return done.stdout


def has_happened(block: str, log: Path, mails: duly.Queue) -> bool:
    """Whether the worker has printed the output that the tutorial shows for a block."""
    printed = log.read_text()
    is_dead = "touch outage" not in block or mails.stats().dead == 1
    return is_dead and all(text in printed for name, texts in PRINTED.items() if name in block for text in texts)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_shell_of_the_tutorial_prints_the_documented_output(tmp_path: Path) -> None:
    environment = given_shop(tmp_path)
    blocks = [block.removeprefix(ACTIVATION) for block in SH_BLOCK.findall(TUTORIAL.read_text())]
    start = next(index for index, block in enumerate(blocks) if block.startswith("duly worker"))
    log = tmp_path / "worker.log"

    with duly.Duly(f"embedded://{tmp_path}/.duly") as shop, log.open("wb") as output:
        mails = shop.queue("mails")
        assert mails.stats().sent == 0  # and the server is held between two commands
        for block in blocks[:start]:
            run_block(block, tmp_path, environment)
        worker = subprocess.Popen(
            shlex.split(blocks[start]), cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            for block in blocks[start + 1 :]:
                run_block(block, tmp_path, environment)
                wait_until(functools.partial(has_happened, block, log, mails))
        finally:
            worker.terminate()
            status = worker.wait(60)
        assert status == 0
        assert mails.audit().ok
