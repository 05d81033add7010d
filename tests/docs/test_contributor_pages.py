"""The pages for contributors name files that exist, and all packages. test_code_blocks.py checks their links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/duly"
BASES = [ROOT, SOURCE, SOURCE / "_lua", ROOT / "tests"]
PAGES = ["CONTRIBUTING.md", "docs/internals.md", "tests/README.md"]
CODE_BLOCK_OR_LINK = re.compile(r"^```.*?^```$|\[[^]]*\]\([^)]*\)", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?|(?:[\w-]+/)*[\w-]+\.(?:py|lua|md|toml|yml))`")


def missing_paths(text: str) -> list[str]:
    named = set(NAMED.findall(CODE_BLOCK_OR_LINK.sub("", text)))
    return sorted(path for path in named if not any((base / path).exists() for base in BASES))


@pytest.mark.parametrize("page", PAGES)
def test_every_path_on_a_page_exists(page: str) -> None:
    assert missing_paths((ROOT / page).read_text()) == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`_core/verbs.py` and `_core/gone.py`, `tests/unit/`, `gone/`, `gone.lua`"

    assert missing_paths(text) == ["_core/gone.py", "gone.lua", "gone/"]


def test_internals_names_every_package() -> None:
    page = (ROOT / "docs/internals.md").read_text()
    layers, packages = (page.split(f"\n## {title}\n")[1].split("\n## ")[0] for title in ("Layers", "Packages"))
    names = {path.parent.name for path in SOURCE.glob("*/__init__.py")}

    assert {name for name in names if not re.search(rf"\b{name}\b", layers)} == set()
    assert {name for name in names if f"`{name}/`" not in packages} == set()
