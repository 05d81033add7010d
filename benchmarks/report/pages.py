"""Writes marked figures into pages, and plots into files."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.report.figures import FIGURES
from benchmarks.report.plots import CHINESE, PLOTS
from benchmarks.report.results import NotMeasured, Results
from benchmarks.report.tables import NOT_YET, TABLES

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs/images"

MARK: Final = re.compile(r"(?<!`)<!--= (?P<name>[\w.-]+) -->(?P<text>.*?)<!--/-->", re.DOTALL)
"""Not in a code span, where a page explains it."""


class UnknownFigure(Exception):
    """A page marks a figure that has no source."""


def pages() -> list[Path]:
    """List all pages that may have figures."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]


def written(results: Results) -> Iterator[tuple[Path, str]]:
    """Return each page and each plot as it should be. A figure whose suite was not measured stays as it is."""
    for page in pages():
        text = page.read_text()
        if MARK.search(text):
            yield page, MARK.sub(lambda mark, page=page: _replaced(results, page, mark), text)  # type: ignore[misc]
    for name, (_, draw) in PLOTS.items():
        try:
            yield IMAGES / f"{name}.svg", draw(results)
        except NotMeasured:
            continue


def stale(results: Results) -> list[Path]:
    """List the files that differ from the results."""
    return [path for path, text in written(results) if not path.exists() or path.read_text() != text]


def _replaced(results: Results, page: Path, mark: re.Match[str]) -> str:
    name, old = mark["name"], mark["text"]
    try:
        new = _text(results, page, name)
    except NotMeasured:
        new = old if name in FIGURES else f"\n\n{NOT_YET}\n\n" if name in TABLES else ""
    return f"<!--= {name} -->{new}<!--/-->"


def _text(results: Results, page: Path, name: str) -> str:
    if name in FIGURES:
        return FIGURES[name](results)
    if name in TABLES:
        return f"\n\n{TABLES[name](results)}\n\n"
    plot = name.removeprefix("plot.")
    if plot in PLOTS:
        description, draw = PLOTS[plot]
        draw(results)  # it has results
        images = os.path.relpath(IMAGES, page.parent)
        text = CHINESE[plot] if _is_chinese(page) else description
        return f"\n\n![{text}]({images}/{plot}.svg)\n\n"
    raise UnknownFigure(f"{page.relative_to(ROOT)} marks {name}, which benchmarks/report does not know")


def _is_chinese(page: Path) -> bool:
    return "zh" in page.relative_to(ROOT).parts or page.stem.endswith("zh-CN")
