"""The picture of the live view shows the view as it is."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_is_not_stale() -> None:
    checked = subprocess.run(
        [sys.executable, "tools/picture.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stderr


def test_the_picture_names_no_other_host() -> None:
    text = (ROOT / "docs/images/live-view.svg").read_text()

    assert text.count("http") == 1  # the name of the format
    assert "url(http" not in text
