"""Check that this version can be released: `make release-check`. It prints a line per step, and ends at a problem.

The steps: version and changelog agree, links of the pages for a package index lead to files, licences of all
dependencies are known, the site builds, wheel and source distribution build from each other, and the wheel works in
an empty environment without extras. It changes nothing and publishes nothing.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    "README.md",
    "README.zh-CN.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "examples/README.md",
    "benchmarks/README.md",
    "tests/README.md",
)
"""Pages outside docs/. The build of the site checks the links of the others."""
PERMISSIVE: Final = re.compile(r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation)\b", re.IGNORECASE)
REVIEWED: Final = {
    "dramatiq": "LGPL-3.0: an optional extra, imported and not copied",
    "taskiq-dependencies": "MIT in its LICENSE file; its metadata has none",
}
"""Dependencies with another licence, or with none in their metadata, and why they are fine."""
EXTRAS: Final = ("embedded", "cli", "web", "fast", "otel", "celery", "dramatiq", "taskiq")
LINK: Final = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)")
FIRST_MESSAGE: Final = """
import duly

with duly.Duly("memory://") as app:
    orders = app.queue("orders")
    orders.send({"order": 1})
    [d] = orders.receive(wait=5)
    d.ack()
    assert orders.stats().acked == 1
print(duly.__version__)
"""


def main() -> None:
    """Run all steps."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        steps: dict[str, Callable[[], Iterator[str]]] = {
            "version and changelog": lambda: changelog_problems(version, (ROOT / "CHANGELOG.md").read_text("utf-8")),
            "links": lambda: link_problems(ROOT, PAGES),
            "licences": lambda: licence_problems(dependencies("duly", EXTRAS)),
            "site": lambda: command_problems(
                "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place / "site")
            ),
            "wheel and source distribution": lambda: build_problems(place / "dist", version),
            "install without extras": lambda: install_problems(place, version),
        }
        for name, step in steps.items():
            problems = list(step())
            print(f"{'FAILED' if problems else 'ok':<7} {name}", flush=True)
            if problems:
                sys.exit("\n".join(problems))
    print(f"duly {version} can be released")


def changelog_problems(version: str, changelog: str) -> Iterator[str]:
    """Find a version without a section, or with an empty one, and entries that belong to no version."""
    section = changelog_section(version, changelog)
    if section is None:
        yield f"CHANGELOG.md has no section {version}"
    elif not section:
        yield f"the section {version} of CHANGELOG.md is empty"
    if changelog_section("Unreleased", changelog):
        yield f"CHANGELOG.md has entries under Unreleased: move them to the section {version}"


def changelog_section(title: str, changelog: str) -> str | None:
    """Return the text of a section. None: there is no such section."""
    found = re.search(rf"^## {re.escape(title)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found and found[1].strip()


def link_problems(root: Path, pages: Sequence[str]) -> Iterator[str]:
    """Find relative links to files that do not exist, and pages that are missing."""
    for page in pages:
        if not (root / page).exists():
            yield f"{page} is missing"
            continue
        text = re.sub(r"^ *(```+).*?^ *\1 *$", "", (root / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in LINK.findall(text):
            if not ((root / page).parent / target).exists():
                yield f"{page}: no file {target}"


def dependencies(name: str, extras: Sequence[str]) -> dict[str, Distribution]:
    """Return the installed packages that `name` needs with the extras, by their names, without itself."""
    found: dict[str, Distribution] = {}
    todo = [(name, extra) for extra in ("", *extras)]
    done = set()
    while todo:
        each = todo.pop()
        if each in done:
            continue
        done.add(each)
        installed = distribution(each[0])
        found[re.sub(r"[-_.]+", "-", each[0]).lower()] = installed
        for text in installed.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": each[1]}):
                todo += [(needed.name, extra) for extra in ("", *needed.extras)]
    del found[name]
    return found


def licence_problems(packages: Mapping[str, Distribution]) -> Iterator[str]:
    """Find packages whose licence is neither permissive nor reviewed."""
    for name, package in sorted(packages.items()):
        if name not in REVIEWED and not PERMISSIVE.search(licence_of(package)):
            yield f"{name}: licence {licence_of(package) or 'unknown'!r} is not reviewed"


def licence_of(package: Distribution) -> str:
    """Return what the metadata of a package names as its licence, in any of the three places."""
    metadata = package.metadata
    classifiers = [each for each in metadata.get_all("Classifier") or () if each.startswith("License")]
    named = [
        (metadata[field] or "").partition("\n")[0] for field in ("License-Expression", "License") if field in metadata
    ]
    texts = [*named, *classifiers]
    return "; ".join(text for text in texts if text)


def build_problems(directory: Path, version: str) -> Iterator[str]:
    """Build the source distribution, and the wheel from it."""
    yield from command_problems(sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT))
    if not directory.exists():
        return
    wheel, sdist = directory / f"duly-{version}-py3-none-any.whl", directory / f"duly-{version}.tar.gz"
    if not (wheel.exists() and sdist.exists()):
        yield f"expected {wheel.name} and {sdist.name}, found {sorted(each.name for each in directory.iterdir())}"
        return
    with tarfile.open(sdist) as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    yield from (f"{sdist.name} lacks {path}" for path in (*PAGES, "LICENSE") if path not in names)
    with zipfile.ZipFile(wheel) as package:
        shipped = package.namelist()
    yield from (f"{wheel.name} lacks {path}" for path in ("duly/py.typed", "duly/__init__.py") if path not in shipped)


def install_problems(place: Path, version: str) -> Iterator[str]:
    """Install the wheel alone, and send and receive a message."""
    environment = place / "environment"
    yield from command_problems(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin/python")
    wheel = place / f"dist/duly-{version}-py3-none-any.whl"
    yield from command_problems(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    yield from command_problems(python, "-m", "pip", "check")
    done = subprocess.run([python, "-c", FIRST_MESSAGE], capture_output=True, text=True, check=False, cwd=place)
    if done.stdout.strip() != version:
        yield f"the first message did not arrive: {done.stdout}{done.stderr}"


def command_problems(*command: str) -> Iterator[str]:
    """Run a command, and return its output if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


if __name__ == "__main__":
    main()
