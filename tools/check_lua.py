"""Run luacheck on the scripts as the server will see them, includes expanded.

A script alone lacks the names of what it includes, and a library alone has no user. So each script is
checked whole, and problems are reported at their original file and line.
"""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from duly import _lua
from duly._lua import header_writer
from duly._lua.header_writer import keys_function, prologue

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "src/duly/_lua"
_KEYS_OF = re.compile(r" *-- @keys (\w+) of (\w+)$")
_INCLUDE = re.compile(r" *-- @(?:include|lazy|alone) (\S+)\s*$")
"""For luacheck, parts that are made when they are used are included like others."""
_ONLY = re.compile(r" *-- @only (\w+)$")
_ONLY_GROUP = re.compile(r"^ *-- @only group\n.*?^ *-- @end\n", re.MULTILINE | re.DOTALL)
_END = re.compile(r" *-- @end$")
_FINDING = re.compile(r".*?:(\d+):(\d+): (.*)")

Line = tuple[str, Path, int]


def numbered(path: Path) -> list[Line]:
    """Return the lines of a file, each with where it stands."""
    return [(text, path, number) for number, text in enumerate(path.read_text().splitlines(), 1)]


def written(text: str, path: Path, number: int = 1) -> list[Line]:
    """Return lines that the loader writes. No script uses all of their names, and some are wide."""
    marks = ("-- luacheck: push ignore 211 221 231 431 631", "-- luacheck: pop")
    return [(line, path, number) for line in (marks[0], *text.splitlines(), marks[1])]


def expand(lines_of_file: list[Line], seen: set[Path], kind: _lua.Kind = "queue") -> list[Line]:
    """Return lines with what they include, each with where it stands; each file once."""
    lines: list[Line] = []
    forms, only = (_lua.form_of(kind), kind), ""
    for text, path, number in lines_of_file:
        include = _INCLUDE.match(text)
        if mark := _ONLY.match(text):
            only = mark[1]
        elif _END.match(text):
            only = ""
        elif only and only not in forms:
            continue
        elif include:
            library = SCRIPTS / _lua.REPLACED[kind].get(include[1], include[1])
            if library in seen:
                continue
            seen.add(library)
            # No script uses all that it includes, and one that includes it in a block has its own names.
            lines.append(("-- luacheck: push ignore 211 231 431", path, number))
            lines += expand(numbered(library), seen, kind)
            lines.append(("-- luacheck: pop", path, number))
        elif keys := _KEYS_OF.match(text):
            lines += written(keys_function(keys[1], _lua.header_of(keys[2])), path, number)
        else:
            lines.append((text, path, number))
    return lines


def named(path: Path, kind: _lua.Kind) -> list[Line]:
    """Return the lines of a script as the server will see them, helpers included that this script does not call."""
    header, of_group = _lua.header_of(path.stem, kind), _lua.form_of(kind) == "group"
    script = [*written(prologue(header), path), *numbered(path)]
    text = "\n".join(line for line, _, _ in expand(script, {path}, kind))
    code = re.sub(r"--(?:\[\[(?s:.*?)\]\]|.*)", "", text)
    names = header_writer.declarations(
        header, header_writer.with_rows(code, header, of_group=of_group), of_group=of_group
    )
    lines = expand([*written(names, path), *script], {path}, kind)
    return [(header_writer.with_rows(text, header, of_group=of_group), path, number) for text, path, number in lines]


@cache
def rows_of_all() -> list[str]:
    """Name the rows of all scripts: a library may have functions for scripts that have them."""
    headers = [_lua.header_of(path.stem, kind) for path in SCRIPTS.glob("*.lua") for kind in kinds_of(path)]
    return sorted({argument.name for header in headers for argument in header.arguments if argument.is_row})


def findings(path: Path, kind: _lua.Kind = "queue") -> set[str]:
    """Return the warnings of luacheck for one script, in the form of a kind."""
    lines = named(path, kind)
    config = ["--config", str(ROOT / ".luacheckrc"), "--read-globals", *rows_of_all()]
    command = ["luacheck", "-", "--formatter", "plain", "--codes", *config]
    source = "\n".join(text for text, _, _ in lines) + "\n"
    run = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    found = set()
    for match in map(_FINDING.match, run.stdout.splitlines()):
        if match:
            _, origin, number = lines[int(match[1]) - 1]
            found.add(f"{origin.relative_to(ROOT)}:{number}:{match[2]}: {match[3]}")
    if run.returncode and not found:
        raise SystemExit(f"luacheck failed on {path.name}: {run.stdout}{run.stderr}")
    return found


def kinds_of(path: Path) -> tuple[_lua.Kind, ...]:
    """Name the forms in which a script is used."""
    if path.stem == "wake":  # groups have no token to hand on
        return ("queue",)
    text = path.read_text()
    if "lib/group.lua" in _ONLY_GROUP.sub("", text):
        return ("group", "freeing")
    return ("queue", "topic", "group", "freeing") if "@only topic" in text else ("queue", "group", "freeing")


def main() -> int:
    """Check every script; return the exit status."""
    if not shutil.which("luacheck"):
        print("!!! check_lua: SKIPPED, luacheck is not installed (`make servers`)", file=sys.stderr)
        return 0
    found = {finding for path in SCRIPTS.glob("*.lua") for kind in kinds_of(path) for finding in findings(path, kind)}
    for finding in sorted(found):
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
