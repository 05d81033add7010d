"""Run luacheck on the scripts as the server will see them, includes expanded.

A script alone lacks the names of what it includes, and a library alone has no user. So each script is
checked whole, and what is found is reported at the file and line it came from.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from duly import _lua

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "src/duly/_lua"
_INCLUDE = re.compile(r"-- @include (\S+)\s*$")
_ONLY = re.compile(r" *-- @only (\w+)$")
_END = re.compile(r" *-- @end$")
_FINDING = re.compile(r".*?:(\d+):(\d+): (.*)")

Line = tuple[str, Path, int]


def expand(path: Path, seen: set[Path], kind: _lua.Kind = "queue") -> list[Line]:
    """Return the lines of a script with its includes, each with where it stands; each file once."""
    lines: list[Line] = []
    form, only = _lua.form_of(kind), ""
    for number, text in enumerate(path.read_text().splitlines(), 1):
        include = _INCLUDE.match(text)
        if mark := _ONLY.match(text):
            only = mark[1]
        elif _END.match(text):
            only = ""
        elif only and only != form:
            continue
        elif include:
            library = SCRIPTS / _lua.REPLACED[kind].get(include[1], include[1])
            if library in seen:
                continue
            seen.add(library)
            # No script uses all that it includes, and one that includes it in a function has names of its own.
            lines.append(("-- luacheck: push ignore 211 431", path, number))
            lines += expand(library, seen, kind)
            lines.append(("-- luacheck: pop", path, number))
        else:
            lines.append((text, path, number))
    return lines


def findings(path: Path, kind: _lua.Kind = "queue") -> set[str]:
    """Return what luacheck says of one script, in the form of a kind."""
    lines = expand(path, {path}, kind)
    command = ["luacheck", "--formatter", "plain", "--codes", "--config", str(ROOT / ".luacheckrc"), "-"]
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
    if "lib/group.lua" in text:
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
