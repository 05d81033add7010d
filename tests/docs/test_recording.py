"""The recording of `duly demo` shows the kill and the verdict, and repeats the output with its times."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools.recording import LARGEST, LONGEST, PICTURE, Line, Screen, lines_of, recorded, svg, without_waits


def test_the_picture_shows_a_kill_and_that_nothing_is_lost() -> None:
    text = PICTURE.read_text("utf-8")
    ET.fromstring(text)
    shown = "\n".join(re.findall(r"<text[^>]*>(.*?)</text>", text))

    assert len(text) < LARGEST < 1_000_000
    assert "was killed with -9 while it held" in shown
    assert "verdict: OK. No message lost" in shown
    assert text.count("http") == 1  # the name of the format
    assert "<script" not in text


def test_a_line_lasts_until_its_row_changes() -> None:
    screens = [Screen(0.0, ("a", "")), Screen(1.0, ("a", "b")), Screen(2.0, ("c", "b"))]

    assert lines_of(screens, 5.0) == [Line(0, "a", 0.0, 2.0), Line(0, "c", 2.0, 5.0), Line(1, "b", 1.0, 5.0)]


def test_repeated_screens_go_and_long_waits_are_shortened() -> None:
    screens = [Screen(0.0, ("a",)), Screen(1.0, ("a",)), Screen(9.0, ("b",)), Screen(9.5, ("c",))]

    assert without_waits(screens) == [Screen(0.0, ("a",)), Screen(LONGEST, ("b",)), Screen(LONGEST + 0.5, ("c",))]


def test_readers_who_prefer_less_motion_see_the_last_screen() -> None:
    drawn = svg([Screen(0.0, ("first",)), Screen(2.0, ("last",))])

    assert re.search(r'class="part last a\d"[^>]*>last<', drawn)
    assert re.search(r'class="part a\d"[^>]*>first<', drawn)
    assert drawn.index("prefers-reduced-motion") < drawn.index("@keyframes")


@pytest.mark.slow
def test_the_output_of_a_program_is_recorded(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import time; print('one', flush=True); time.sleep(0.6); print('two')")

    screens = list(recorded(["python", str(program)]))

    assert [line for line in screens[-1].lines if line.strip()][1:] == [
        line.ljust(len(screens[-1].lines[0])) for line in ("one", "two")
    ]
    assert screens[-1].at - screens[0].at > 0.6
