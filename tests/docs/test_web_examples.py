"""The examples of the dashboard and the HTTP API work: over sockets, on a real server."""

import asyncio
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn

import duly
from duly.web import create_app
from duly.web.site import PollLimit
from tests.conftest import StartedServer
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN = "a-token-for-the-examples"
CONSUMED = [
    "sent 3",
    "mail to ann: hello (attempt 1)",
    "mail to bob: hello (attempt 2)",
    "mail to cleo: later (attempt 1)",
]


@dataclass(frozen=True)
class Served:
    """A dashboard that listens, and the app that it shows."""

    url: str
    app: duly.Duly
    poll_limit: PollLimit
    """The callers that wait at it."""


@pytest.fixture
def served(server: StartedServer) -> Iterator[Served]:
    """Serve a dashboard as `duly dashboard` does, in a namespace that no other test uses."""
    with duly.Duly(server("valkey").url, namespace=f"examples-{uuid.uuid4().hex}") as app:
        site = create_app(app, tokens=TOKEN)
        web = uvicorn.Server(uvicorn.Config(site, log_level="warning"))
        listener = socket.create_server(("127.0.0.1", 0))

        async def serve() -> None:
            await web.serve([listener])
            await app.aio.aclose()

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            wait_until(lambda: web.started)
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", app, site.state.site.poll_limit)
        finally:
            web.should_exit = True
            thread.join(30)
            listener.close()


def run(command: list[str], served: Served) -> list[str]:
    """Run a consumer against a dashboard, and give the lines that it printed."""
    done = subprocess.run(
        command,
        env={**os.environ, "DULY_DASHBOARD_URL": served.url, "DULY_DASHBOARD_TOKEN": TOKEN, "DULY_URL": "redis://no.example"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def node() -> str:
    """Find Node; without it the test is skipped, in CI it fails."""
    found = shutil.which("node")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("node is missing")
    return found


def test_a_program_of_the_standard_library_consumes(served: Served) -> None:
    printed = run([sys.executable, "-W", "error", str(EXAMPLES / "31_http_consumer.py")], served)

    assert sorted(printed) == sorted(CONSUMED)
    stats = served.app.queue("example-http-mails").stats()
    assert (stats.sent, stats.acked, stats.retried, stats.live, stats.dead) == (3, 3, 1, 0, 0)


def test_a_program_for_node_consumes(served: Served) -> None:
    printed = run([node(), str(EXAMPLES / "32_http_consumer.mjs")], served)

    assert sorted(printed) == sorted(CONSUMED)
    stats = served.app.queue("example-node-mails").stats()
    assert (stats.sent, stats.acked, stats.retried, stats.live, stats.dead) == (3, 3, 1, 0, 0)


def ask(served: Served, path: str, body: object) -> Any:
    """Call the API of a dashboard."""
    answer = httpx.post(
        f"{served.url}/api/v1{path}", json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=40
    )
    assert answer.is_success, answer.text
    return answer.json()


def test_a_message_sent_through_one_interface_is_received_through_the_others(
    served: Served, server: StartedServer
) -> None:
    orders = served.app.queue("orders")
    orders.send("from the library")
    asyncio.run(send_async(served.app, "from asyncio"))
    options = ["--url", server("valkey").url, "--namespace", served.app.namespace]
    shell = [sys.executable, "-m", "duly.cli"]
    subprocess.run([*shell, "send", "orders", "from the shell", *options], check=True, timeout=60, capture_output=True)

    taken = ask(served, "/queues/orders/receive", {"limit": 10, "wait": 5})["messages"]
    assert [message["body"] for message in taken] == ["from the library", "from asyncio", "from the shell"]
    ask(served, "/queues/orders/ack", {"receipts": [message["receipt"] for message in taken]})

    ask(served, "/queues/orders/messages", [{"body": "to the library"}, {"body": "to the shell"}])
    [d] = orders.receive(limit=1, wait=5)
    d.ack()
    received = subprocess.run(
        [*shell, "receive", "orders", "--wait", "5s", *options], check=True, timeout=60, capture_output=True, text=True
    )
    assert (d.body, "to the shell" in received.stdout) == ("to the library", True)
    assert (orders.stats().acked, orders.stats().live) == (5, 0)


async def send_async(app: duly.Duly, body: str) -> None:
    async with duly.AsyncDuly(app, namespace=app.namespace) as other:
        await other.queue("orders").send(body)


def test_a_receive_over_http_waits_for_a_later_message(served: Served) -> None:
    orders = served.app.queue("orders")
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, served, "/queues/orders/receive", {"limit": 1, "wait": 20})
        wait_until(lambda: served.poll_limit.waiting == 1)
        id_ = orders.send({"order": 17})
        [message] = asked.result(30)["messages"]

    assert (message["id"], message["body"]) == (id_, {"order": 17})


def consumer(name: str) -> list[str]:
    """Return the command that runs a consumer of the examples."""
    return [node() if name.endswith(".mjs") else sys.executable, str(EXAMPLES / name)]


def failed(name: str, url: str, token: str) -> str:
    """Run a consumer that cannot work, and return its output."""
    variables = {**os.environ, "DULY_DASHBOARD_URL": url, "DULY_DASHBOARD_TOKEN": token}
    done = subprocess.run(consumer(name), env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.parametrize("name", ["31_http_consumer.py", "32_http_consumer.mjs"])
def test_a_program_with_a_wrong_token_prints_the_error_of_the_dashboard(served: Served, name: str) -> None:
    said = failed(name, served.url, "another-token")

    assert said.endswith("this token is not known to this dashboard\n")
    assert len(said.splitlines()) == 1
    assert served.app.queues() == []


@pytest.mark.parametrize("name", ["31_http_consumer.py", "32_http_consumer.mjs"])
def test_a_program_without_a_dashboard_prints_the_address_that_it_tried(name: str) -> None:
    said = failed(name, "http://127.0.0.1:1", TOKEN)

    assert "http://127.0.0.1:1" in said
    assert len(said.splitlines()) == 1


def test_the_traffic_examples_of_the_pages_change_the_numbers(server: StartedServer) -> None:
    pages = [EXAMPLES.parent / name for name in ("docs/dashboard.md", "docs/zh/dashboard.md")]
    shown = [re.findall(r"^python - <<'END'\n(.*?)^END$", page.read_text(), re.MULTILINE | re.DOTALL) for page in pages]
    program, declared = shown[0][0], "duly.Duly()"
    assert shown == [[program]] * 2
    assert declared in program
    with duly.Duly(server("valkey").url, namespace=f"traffic-{uuid.uuid4().hex}") as app:
        given = f"duly.Duly({server('valkey').url!r}, namespace={app.namespace!r})"
        process = subprocess.Popen([sys.executable, "-c", program.replace(declared, given)])
        try:
            wait_until(lambda: app.queue("orders").stats().acked > 0)
        finally:
            process.kill()
            process.wait()


def test_the_python_consumer_needs_nothing_but_the_standard_library() -> None:
    """Up to the line that starts its own dashboard."""
    text = (EXAMPLES / "31_http_consumer.py").read_text().partition("# From here on")[0]
    imported = {
        line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))
    }

    assert imported
    assert imported <= sys.stdlib_module_names


def test_the_list_of_examples_names_those_for_other_languages() -> None:
    list_messages = re.findall(r"^\| \[\w+\]\((\w+\.mjs)\) \| \S", (EXAMPLES / "README.md").read_text(), re.MULTILINE)

    assert list_messages == sorted(path.name for path in EXAMPLES.glob("*.mjs"))


@pytest.mark.parametrize("name", ["dashboard", "dashboard-queue", "dashboard-dead", "dashboard-message"])
def test_a_picture_of_the_dashboard_is_small_and_shown_on_both_pages(name: str) -> None:
    docs = EXAMPLES.parent / "docs"
    picture = (docs / f"images/{name}.png").read_bytes()

    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000
    assert f"](images/{name}.png)" in (docs / "dashboard.md").read_text()
    assert f"](../images/{name}.png)" in (docs / "zh/dashboard.md").read_text()


def load_dashboard_in_fastapi(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("DULY_URL", "memory://")
    spec = importlib.util.spec_from_file_location("example_30", EXAMPLES / "30_dashboard_in_fastapi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_fastapi_serves_the_dashboard_below_its_path_by_role(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load_dashboard_in_fastapi(monkeypatch)
    async with (
        example.app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=example.web), base_url="http://localhost") as browser,
    ):
        order = (await browser.post("/orders/17")).json()
        path = f"/ops/api/v1/queues/{example.orders.name}/messages/{order['id']}"
        viewer, operator = ({"Authorization": f"Bearer {token}"} for token in (example.VIEWER, example.OPERATOR))

        assert (await browser.get(path)).status_code == 401
        assert "body" not in (await browser.get(path, headers=viewer)).json()
        assert (await browser.delete(path, headers=viewer)).status_code == 403
        assert (await browser.get(path, headers=operator)).json()["body"] == {"close": 17}
        assert (await browser.delete(path, headers=operator)).status_code == 204
        assert (await browser.get("/ops/healthz")).json() == {"ok": True}
