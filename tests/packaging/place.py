"""An environment with nothing in it but the wheel."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Place:
    """An environment that the wheel is installed in."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin/python"

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; it finds no other programs, and nothing of this project."""
        return subprocess.run(
            [str(self.directory / "bin" / command[0]), *command[1:]],
            cwd=self.directory,
            env={"PATH": str(self.directory / "bin"), "HOME": str(self.directory), **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
