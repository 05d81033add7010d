"""Finding the app of a target, and the error if it does not exist."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duly import AsyncDuly, Duly
from duly.errors import UsageError
from duly.worker.app_loader import load_app

Write = Callable[[str, str], None]

APPS = """
import duly
app = duly.Duly("memory://")
other = duly.AsyncDuly("memory://")
number = 7
class Holder:
    app = app
    class inner:
        app = other
def make(): return app
def make_with(name="x", *more, **options): return other
def make_for(name): return app
def make_nothing(): return None
def fail(): raise KeyError("in the factory")
async def make_async(): return app
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return a way to write modules, in a current directory that is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    before = set(sys.modules)

    def write_module(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    yield write_module
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("store.jobs:app", Duly),
        ("store.jobs", Duly),
        ("store.jobs:other", AsyncDuly),
        ("store.jobs:Holder.app", Duly),
        ("store.jobs:Holder.inner.app", AsyncDuly),
        ("store.jobs:make", Duly),
        ("store.jobs:make_with", AsyncDuly),
    ],
)
def test_an_app_is_found(write: Write, target: str, kind: type) -> None:
    write("store/__init__.py", "")
    write("store/jobs.py", APPS)

    assert type(load_app(target)) is kind


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("store.jobs:nothing", "has no 'nothing'. Apps found there: store.jobs:app, store.jobs:other"),
        ("store.jobs:Holder.nothing", "has no 'Holder.nothing'"),
        ("store.jobs:number", "store.jobs:number is of type int, not a Duly or AsyncDuly. Apps found there"),
        ("store.jobs:Holder", "is the class Holder"),
        ("store.jobs:make_for", "needs arguments"),
        ("store.jobs:make_nothing", "is of type NoneType"),
        ("store.jobs:make_async", "is an async function"),
        ("store.missing:app", "no module named 'store.missing'"),
        ("missing.jobs:app", "no module named 'missing'"),
        ("store.jobs.app", "Did you mean store.jobs:app?"),
        ("store/jobs.py:app", "write the module with dots: store.jobs:app"),
        ("store/jobs.py", "write the module with dots: store.jobs:app"),
        ("", "is not a target: a target is written package.module:name"),
        (":app", "is not a target"),
        ("store.jobs:", "is not a target"),
        ("store.jobs:a:b", "is not a target"),
        (".jobs:app", "is not a target"),
        ("store jobs:app", "is not a target"),
    ],
)
def test_the_error_names_the_problem_of_a_target(write: Write, target: str, words: str) -> None:
    write("store/__init__.py", "")
    write("store/jobs.py", APPS)

    with pytest.raises(UsageError) as caught:
        load_app(target)

    assert words in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_the_error_for_a_module_without_an_app_shows_how_to_make_one(write: Write) -> None:
    write("plain.py", "x = 1")

    with pytest.raises(UsageError, match=r"No app was found there: it is made like app = duly.Duly\(\)"):
        load_app("plain")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import json\n1 / 0\n", "ZeroDivisionError: division by zero"),
        ("import surely_missing\n", "No module named 'surely_missing'"),
        ("import broken.part\n", "No module named 'broken.part'"),
        ("from json import surely_missing\n", "ImportError: cannot import name 'surely_missing'"),
        ("def broken(:\n", "SyntaxError"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
        ("import duly\nduly.Duly('memory://').queue('-')\n", "InvalidName: '-' is not a queue name"),
    ],
)
def test_an_error_of_the_module_is_shown_with_its_own_traceback(write: Write, text: str, words: str) -> None:
    write("broken.py", text)

    with pytest.raises(UsageError, match="the module broken could not be imported") as caught:
        load_app("broken:app")

    shown = str(caught.value)
    assert words in shown
    assert "broken.py" in shown
    assert text.splitlines()[-1] in shown
    assert "importlib" not in shown
    assert "loading.py" not in shown


def test_an_error_of_a_factory_is_shown_with_its_own_traceback(write: Write) -> None:
    write("store/__init__.py", "")
    write("store/jobs.py", APPS)

    with pytest.raises(UsageError, match=r"store.jobs:fail\(\) failed") as caught:
        load_app("store.jobs:fail")

    assert "KeyError: 'in the factory'" in str(caught.value)
    assert "jobs.py" in str(caught.value)
