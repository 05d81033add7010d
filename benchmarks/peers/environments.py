"""A virtual environment for each peer, made when it is first needed.

They are in `.venvs` next to this file, or in $DULY_PEERS_HOME: <home>/<adapter>/bin/python.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers.catalog import PEERS, adapter_of

_LIST: Final = (
    "import importlib.metadata as m, json, platform; "
    "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}; "
    "print(json.dumps({**found, 'python': platform.python_version()}))"
)
_TOLD: Final = ("redis", "hiredis", "coredis", "uvloop", "taskiq-redis", "python")
"""Packages whose versions are reported with that of the peer."""


class NotInstalled(Exception):
    """A peer could not be installed, for the reason that pip gave."""


def home() -> Path:
    """Return the directory of the environments."""
    given = os.environ.get("DULY_PEERS_HOME")
    return Path(given).absolute() if given else Path(__file__).parent / ".venvs"


def python_of(peer: str) -> str:
    """Return the interpreter of a peer."""
    return str(home() / adapter_of(peer) / "bin" / "python")


def prepare(peer: str) -> dict[str, str]:
    """Install a peer unless it is installed, and return the relevant versions."""
    requirements = PEERS[peer].requirements
    found = _versions(peer)
    if any(_name(requirement) not in found for requirement in requirements):
        _install(peer, requirements)
        found = _versions(peer)
    return {name: found[name] for name in (_name(requirements[0]), *_TOLD) if name in found}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement)[0].lower()


def _versions(peer: str) -> dict[str, str]:
    python = python_of(peer)
    if not Path(python).exists():
        return {}
    listed = subprocess.run([python, "-c", _LIST], capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(listed.stdout)
    # A distribution may be written with a dash where its requirement has an underscore, and the other way round.
    return {**versions, **{name.replace("-", "_"): version for name, version in versions.items()}}


def _install(peer: str, requirements: tuple[str, ...]) -> None:
    place = home() / adapter_of(peer)
    print(f"installing {peer} in {place}", flush=True)
    if not Path(python_of(peer)).exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    command = [python_of(peer), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{peer}: {done.stderr.strip()[-500:]}")
