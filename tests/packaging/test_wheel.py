"""The content of the wheel and of the source distribution, and the effect of an installation."""

import email
import email.message
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.place import ROOT, Place

pytestmark = pytest.mark.slow

SOURCES = ROOT / "src/duly"

# The first releases of Python 3.11 have no filters for archives.
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}

IMPORTED = """
import json, sys
import duly
found = {name.partition(".")[0] for name, module in sys.modules.items()
         if "site-packages" in (getattr(module, "__file__", None) or "")}
print(json.dumps(sorted(found)))
"""

FIRST_MESSAGE = """
import duly

with duly.Duly({url}) as app:
    orders = app.queue("orders")
    orders.send({{"order": 1}}, delay=0.1)
    [d] = orders.receive(wait=20)
    d.ack()
    print(d.body, orders.stats().acked)
"""

USER = """
import duly

app = duly.Duly("memory://")
orders = app.queue("orders", lease=10)
reveal_type(orders.send({"order": 1}, delay=30))
reveal_type(orders.receive())

@orders.handler
def on_order(order: dict[str, int], d: duly.Delivery) -> None:
    d.retry(delay=5)

orders.send("body", delay="30 s")
"""


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def sources() -> set[str]:
    """Name all files of the package: code, scripts, py.typed, and the entry point for kombu."""
    files = (path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {"duly_kombu_alias.py", *(path.relative_to(SOURCES.parent).as_posix() for path in files)}


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    names = names_in(wheel)

    packaged = {name for name in names if not re.match(r"duly-[^/]+\.dist-info/", name)}
    assert packaged == sources()
    assert {"duly/py.typed", "duly/web/templates/base.html", "duly/web/static/duly.js"} <= packaged
    assert sum(name.endswith(".lua") for name in packaged) == len(list(SOURCES.rglob("*.lua"))) > 40


def test_the_wheel_names_its_license_command_and_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [entry_points] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        text = archive.read(entry_points).decode()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())

    assert "[console_scripts]\nduly = duly.cli:main" in text
    assert "[pytest11]\nduly = duly.testing.plugin" in text


def metadata_in(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_names_where_the_project_is(wheel: Path) -> None:
    addresses = dict(entry.split(", ", 1) for entry in metadata_in(wheel).get_all("Project-URL", []))

    assert set(addresses) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert [address for address in addresses.values() if not address.startswith(addresses["Source"])] == []


def test_on_a_package_index_every_link_of_the_readme_is_an_address_of_a_file_that_exists(wheel: Path) -> None:
    metadata = metadata_in(wheel)
    shown = metadata.get_payload(decode=True).decode()  # type: ignore[union-attr]
    source = dict(entry.split(", ", 1) for entry in metadata.get_all("Project-URL", []))["Source"]

    links = re.findall(r"\]\(([^)\s]+)\)", shown)
    ours = [re.fullmatch(rf"{source}/(raw|blob)/HEAD/([^#]+)(?:#.*)?", link) for link in links]

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(links) > 30
    assert [link for link in links if not link.startswith("https://")] == []
    assert [path[2] for path in ours if path and not (ROOT / path[2]).is_file()] == []
    pictures = ["docs/images/system.svg", "docs/images/demo.svg", "docs/images/dashboard.png"]
    assert [path[2] for path in ours if path and path[1] == "raw"] == pictures


def test_the_source_distribution_has_everything_to_work_on_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tests/conftest.py", "tools/unasync.py"}
    assert wanted <= names
    assert {f"src/{name}" for name in sources()} <= names
    assert [name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/"))] == []


@pytest.mark.long
def test_the_source_distribution_builds_the_same_wheel_again(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, **SAFELY)
    [source] = tmp_path.iterdir()

    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "again"), str(source)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert built.returncode == 0, built.stdout + built.stderr
    [again] = (tmp_path / "again").glob("*.whl")
    assert names_in(again) == names_in(wheel)


def test_an_import_without_extras_imports_hiredis_and_msgspec_and_nothing_else(plain: Place) -> None:
    done = plain.run("python", "-W", "error", "-c", IMPORTED)

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) <= {"duly", "hiredis", "msgspec"}


def test_an_import_imports_neither_the_worker_nor_the_commands(plain: Place) -> None:
    code = "import duly, sys; print([name for name in ('duly.worker', 'duly.cli') if name in sys.modules])"

    assert plain.run("python", "-c", code).stdout == "[]\n"


def test_messages_are_sent_and_received_in_memory(plain: Place) -> None:
    done = plain.run("python", "-W", "error", "-c", FIRST_MESSAGE.format(url='"memory://"'))

    assert (done.stdout, done.stderr) == ("{'order': 1} 1\n", "")


def test_a_cron_schedule_needs_no_extra(plain: Place) -> None:
    code = """
import duly
from duly.testing import clock, work_off

app = duly.Duly("memory://")
reports = app.queue("reports")
reports.handler(lambda body: print(body))
app.schedule("report", reports, "report", cron="0 3 * * *")
assert len(work_off(app, advance=24 * 3600)) == 1
"""

    done = plain.run("python", "-W", "error", "-c", code)

    assert (done.stdout, done.stderr) == ("report\n", "")


def test_the_error_for_a_missing_cli_extra_shows_what_to_install(plain: Place) -> None:
    done = plain.run("duly", "demo")

    assert done.returncode == 1
    assert done.stderr == 'duly: the command line needs its extra: pip install "duly[cli]"\n'


def test_the_error_for_a_missing_web_extra_shows_what_to_install(plain: Place) -> None:
    done = plain.run("python", "-c", "import duly.web")

    assert done.returncode == 1
    assert "the dashboard needs pip install 'duly[web]'" in done.stderr


def test_the_error_for_a_missing_server_shows_what_to_install(plain: Place) -> None:
    done = plain.run("python", "-c", "import duly; duly.Duly().queue('orders').send(1)")

    assert done.returncode == 1
    assert 'pip install "duly[embedded]"' in done.stderr
    assert "DULY_URL=redis://" in done.stderr


def test_the_error_for_missing_opentelemetry_shows_what_to_install(plain: Place) -> None:
    done = plain.run("python", "-c", "import duly.otel")

    assert done.returncode == 1
    assert "pip install 'duly[otel]'" in done.stderr


@pytest.mark.long
def test_a_type_checker_sees_the_types(plain: Place, tmp_path: Path) -> None:
    user = tmp_path / "shop.py"
    user.write_text(USER)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--python-executable", plain.python, user.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert 'shop.py:6: note: Revealed type is "duly.message.MessageId"' in done.stdout, done.stdout
    assert "duly._sync.delivery.Delivery" in done.stdout
    assert re.findall(r"shop\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout) == [("13", "arg-type")]


@pytest.mark.long
def test_the_first_delayed_message_needs_nothing_but_the_extras(full: Place, tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(FIRST_MESSAGE.format(url=""))

    done = full.run("python", "-W", "error", str(script), DULY_HOME=str(tmp_path / "home"))

    assert (done.stdout, done.stderr) == ("{'order': 1} 1\n", "")


@pytest.mark.long
def test_the_command_runs_with_its_extra(full: Place) -> None:
    done = full.run("duly", "--help")

    assert done.returncode == 0, done.stderr
    assert "worker" in done.stdout


@pytest.mark.long
def test_nothing_is_left_running_after_the_first_message(full: Place, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    full.run("python", "-c", FIRST_MESSAGE.format(url=""), DULY_HOME=home)

    code = f"from duly.embedded import control; control.stop({home!r}); print(control.status({home!r}).is_running)"

    assert full.run("python", "-c", code).stdout == "False\n"
