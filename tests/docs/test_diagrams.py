"""The diagrams are what the tools draw, follow the reader's colours, and have no text that overlaps another."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import Browser, sync_playwright

from tools.diagrams import DIAGRAMS, drawn
from tools.drawing import Drawing, palettes

ROOT = Path(__file__).parents[2]
CHROMIUM: Final = os.environ.get("CHROMIUM", "/usr/bin/chromium")

PLACES: Final = """() => {
    const place = (each) => {
        const box = each.getBBox();
        return {name: each.textContent || each.getAttribute("class"),
                x1: box.x, y1: box.y, x2: box.x + box.width, y2: box.y + box.height};
    };
    const all = (selector) => [...document.querySelectorAll(selector)].map(place);
    return {texts: all("text"), boxes: all("rect:not(.ground)"), ground: all("rect.ground")};
}"""
LEADING: Final = 4
"""Pixels above and below the letters that belong to a line of text. Lines may share them."""

Place = dict[str, Any]


def test_no_diagram_is_stale() -> None:
    files = drawn()

    assert len(files) == 2 * len(DIAGRAMS) >= 14
    assert [path.name for path, text in files.items() if path.read_text("utf-8") != text] == [], "run `make gen`"


def test_a_diagram_is_well_formed_has_both_colour_modes_and_loads_nothing() -> None:
    for text in drawn().values():
        ET.fromstring(text)
        assert "prefers-color-scheme: dark" in text
        assert text.count("http") == 1  # the name of the format
        assert "url(" not in text


def test_the_states_have_the_colours_of_the_dashboard() -> None:
    sheet = (ROOT / "src/duly/web/static/duly.css").read_text()

    for palette in palettes():
        assert [name for name in ("ink", "accent", "bad", "warn") if f"--{name}: {palette[name]}" not in sheet] == []


def test_every_diagram_is_on_a_page_of_its_language() -> None:
    used = {
        language: set(re.findall(r"images/(?:zh/)?([\w-]+)\.svg", "".join(page.read_text() for page in pages)))
        for language, pages in (
            ("en", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]),
            ("zh", [ROOT / "README.zh-CN.md", *(ROOT / "docs/zh").glob("*.md")]),
        )
    }

    assert {language: set(DIAGRAMS) - names for language, names in used.items()} == {"en": set(), "zh": set()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def collisions(browser: Browser, svg: str) -> list[str]:
    """Find texts that overlap a text, cross the edge of a box, or leave the picture."""
    page = browser.new_page()
    page.set_content(svg)
    places = page.evaluate(PLACES)
    page.close()
    texts = [{**each, "y1": each["y1"] + LEADING, "y2": each["y2"] - LEADING} for each in places["texts"]]
    return [
        *(
            f"{first['name']!r} overlaps {other['name']!r}"
            for place, first in enumerate(texts)
            for other in texts[place + 1 :]
            if meets(first, other)
        ),
        *(
            f"{text['name']!r} crosses a box"
            for text in texts
            for box in places["boxes"]
            if meets(text, box) and not within(text, box)
        ),
        *(f"{text['name']!r} leaves the picture" for text in texts if not within(text, places["ground"][0])),
    ]


def meets(one: Place, other: Place) -> bool:
    return bool(
        one["x1"] < other["x2"] and other["x1"] < one["x2"] and one["y1"] < other["y2"] and other["y1"] < one["y2"]
    )


def within(one: Place, other: Place) -> bool:
    return bool(
        one["x1"] >= other["x1"] and one["x2"] <= other["x2"] and one["y1"] >= other["y1"] and one["y2"] <= other["y2"]
    )


@pytest.mark.slow
def test_no_text_of_a_diagram_overlaps_another_or_leaves_its_box(browser: Browser) -> None:
    found = {f"{path.parent.name}/{path.name}": collisions(browser, path.read_text("utf-8")) for path in drawn()}

    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.slow
def test_a_collision_is_found(browser: Browser) -> None:
    bad = Drawing("bad", 300, 100)
    bad.box(20, 20, 60, 40, "far too long for it")
    bad.text(25, 45, "on top", "small")
    bad.text(280, 90, "leaves it")

    found = collisions(browser, bad.svg())

    assert any("overlaps" in each for each in found)
    assert any("crosses a box" in each for each in found)
    assert any("leaves the picture" in each for each in found)
