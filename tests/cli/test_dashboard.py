"""`duly dashboard` as a command: its output, access, shutdown and errors."""

import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import redis

import duly
from duly.web.token_file import stored_token
from tests.cli.conftest import Call
from tests.cli.shell import DEADLINE, Shell
from tests.cli.terminal import Terminal
from tests.waiting import wait_until

WITHOUT_ITS_EXTRA = """
import sys
sys.modules.update(starlette=None, uvicorn=None, jinja2=None, prometheus_client=None)
sys.argv = ["duly", "--help"]
from duly.cli import main
main()
"""


class Dashboard:
    """A running dashboard on a free port, with its token in a directory of the test."""

    def __init__(self, shell: Shell, *options: str, **variables: str) -> None:
        self.state = shell.place / "state"
        self.process = shell.start(
            "dashboard", "--port", "0", *options,
            stdout=subprocess.PIPE, **{"XDG_STATE_HOME": str(self.state), **variables},
        )  # fmt: skip
        first = self.next_line()
        assert first, self.process.communicate()
        self.printed = json.loads(first) if "--json" in options else {"url": first}
        self.url = self.printed["url"]

    @property
    def token_file(self) -> Path:
        return self.state / "duly" / "dashboard-token"

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().removesuffix("\n")

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=DEADLINE, trust_env=False, **options)

    def stop(self, how: signal.Signals) -> tuple[int, str, str]:
        """Stop it, and return status, further output and errors."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_first_start_prints_a_valid_token(shell: Shell) -> None:
    with Dashboard(shell) as dashboard:
        word, token, *place = dashboard.next_line().split()
        token = token.removesuffix(",")
        with dashboard.client() as anybody, dashboard.client(token) as known:
            answer = known.get("/api/v1/openapi.json")
            statuses = [anybody.get(path).status_code for path in ("/healthz", "/metrics", "/api/v1/openapi.json")]
            rebound = anybody.get("/healthz", headers={"Host": "rebound.example"})

        assert dashboard.stop(signal.SIGTERM) == (0, "", "")
        assert (word, place) == ("token", ["kept", "in", str(dashboard.token_file)])
        assert dashboard.token_file.read_text() == f"{token}\n"
        assert stat.S_IMODE(dashboard.token_file.stat().st_mode) == 0o600
        assert dashboard.url.startswith("http://127.0.0.1:")
        assert dashboard.url.endswith("/")
        assert statuses == [200, 401, 401]
        assert rebound.status_code == 421
        assert answer.json()["info"]["title"] == "Duly"
        assert "server" not in answer.headers


def test_a_stop_is_graceful_while_a_client_waits_for_messages(shell: Shell, app: duly.Duly) -> None:
    """The token exists already, so only its file is printed."""
    token = stored_token(shell.place / "state" / "duly").text
    queue = app.queue("orders")
    queue.send("first")
    answers: list[httpx.Response] = []
    url = f"{shell.url}?client_name={shell.namespace}"
    with Dashboard(shell, "--json", "--url", url) as dashboard, redis.Redis.from_url(shell.url) as admin:

        def receive() -> None:
            with dashboard.client(token) as client:
                answers.append(client.post("/api/v1/queues/orders/receive", json={"wait": 0}))
                answers.append(client.post("/api/v1/queues/orders/receive", json={"wait": 20}))

        def is_waiting() -> bool:
            found = [each for each in admin.client_list() if each["name"] == shell.namespace]
            return any("b" in each["flags"] for each in found)

        caller = threading.Thread(target=receive)
        caller.start()
        wait_until(is_waiting)
        ended = dashboard.stop(signal.SIGTERM)
        caller.join(DEADLINE)
    queue.send("second")

    assert ended == (0, "", "")
    assert dashboard.printed == {"url": dashboard.url, "token": None, "token_file": str(dashboard.token_file)}
    assert [each["body"] for each in answers[0].json()["messages"]] == ["first"]
    assert answers[1].status_code == 503 or answers[1].json() == {"messages": []}
    stats = queue.stats()
    assert (stats.ready, stats.leased) == (1, 1)


def test_each_change_is_logged_on_standard_error(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send("x", id="a\u202eb", delay=60)
    with Dashboard(shell, DULY_DASHBOARD_TOKEN="of-the-environment") as dashboard:
        with dashboard.client("of-the-environment") as known:
            statuses = [
                known.post("/api/v1/queues/orders/pause").status_code,
                known.get("/api/v1/queues/orders").status_code,
                known.delete("/api/v1/queues/orders/messages/a%E2%80%AEb").status_code,
                known.post("/api/v1/queues/none/pause").status_code,
            ]
        status, out, err = dashboard.stop(signal.SIGTERM)

    assert (statuses, status, out) == ([200, 200, 204, 404], 0, "")
    moments, said = zip(*((line[:19], line[20:]) for line in err.splitlines()), strict=True)
    assert [datetime.fromisoformat(each) for each in moments]
    assert said == (
        "pause of '/api/v1/queues/orders/pause' by admin at '127.0.0.1'",
        "cancel of '/api/v1/queues/orders/messages/a\\u202eb' by admin at '127.0.0.1'",
    )


def test_messages_carry_the_trace_context_of_their_request(shell: Shell, app: duly.Duly) -> None:
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Dashboard(shell, DULY_DASHBOARD_TOKEN="of-the-environment") as dashboard:
        with dashboard.client("of-the-environment") as known:
            known.post("/api/v1/queues/orders/messages", json={"body": 1}, headers={"traceparent": context})
        dashboard.stop(signal.SIGTERM)

    (message,) = app.queue("orders").list("ready")
    assert message.headers == {"traceparent": context}


def test_tls_read_only_open_metrics_and_host_names_with_a_token_of_the_environment(shell: Shell) -> None:
    if shutil.which("openssl") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("openssl makes the certificate of this test")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        check=True, capture_output=True, cwd=shell.place,
    )  # fmt: skip
    trusted = ssl.create_default_context(cafile=shell.place / "cert.pem")
    options = "--host localhost --tls-cert cert.pem --tls-key key.pem --read-only --open-metrics --allow-host q.example"
    with Dashboard(shell, *options.split(), DULY_DASHBOARD_TOKEN="of-the-environment") as dashboard:
        with dashboard.client("of-the-environment", verify=trusted) as known:
            described = known.get("/api/v1/openapi.json")
            sent = known.post("/api/v1/queues/q/messages", json={"body": 1})
        with dashboard.client(verify=trusted) as anybody:
            statuses = [anybody.get("/metrics").status_code]
            statuses += [anybody.get("/healthz", headers={"Host": each}).status_code for each in ("q.example", "other")]

        assert dashboard.stop(signal.SIGINT) == (0, "", "")
    assert dashboard.url.startswith("https://localhost:")
    assert described.status_code == 200
    assert (sent.status_code, "read-only" in sent.json()["detail"]) == (403, True)
    assert statuses == [200, 200, 421]
    assert not dashboard.state.exists()


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (
            "--host 0.0.0.0",
            2,
            "--host 0.0.0.0 is reachable from other machines, and the token would be sent in clear text",
        ),
        (
            "--host 0.0.0.0 --behind-proxy",
            2,
            "--host 0.0.0.0 stands for all addresses: give the name that clients use with --allow-host",
        ),
        ("--host 192.0.2.1 --behind-proxy", 1, "cannot listen on port 8787 of 192.0.2.1: "),
        ("--port 70000", 2, "--port: 70000 is not a port"),
        ("--tls-cert cert.pem", 2, "--tls-cert and --tls-key belong together"),
        ("--tls-cert none --tls-key none", 2, "--tls-cert: cannot read none: No such file or directory"),
        ("--allow-host https://x", 2, "'https://x' is not a host"),
        ("--url memory://", 2, "memory:// works within one process"),
        ("--url redis://127.0.0.1:1", 1, "redis://127.0.0.1:1/0 did not answer within"),
        ("--url redis://127.0.0.1:1 --token=", 2, "a token of the role 'admin' cannot be used: 8 to 512"),
    ],
)
def test_impossible_options_are_refused_with_an_explanation(
    call: Call, shell: Shell, monkeypatch: pytest.MonkeyPatch, options: str, status: int, said: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.place / "state"))
    monkeypatch.setattr("duly.cli.session.PATIENCE", 0.1)

    done = call("dashboard", *options.split())

    assert (done.status, done.out) == (status, "")
    assert done.err.splitlines()[-1].startswith(f"duly: {said}")
    assert list(shell.place.iterdir()) == []


def test_it_starts_the_embedded_server_of_a_new_directory(shell: Shell) -> None:
    with Dashboard(shell, DULY_URL="") as dashboard:
        token = dashboard.next_line().split()[1].removesuffix(",")
        with dashboard.client(token) as known:
            sent = known.post("/api/v1/queues/orders/messages", json={"body": "hello"})
        status, _, err = dashboard.stop(signal.SIGTERM)

    home = shell.place / ".duly"
    assert (status, sent.status_code) == (0, 201)
    assert err.splitlines()[0] == f"duly: new embedded server in {home} (no --url, no DULY_URL)"
    assert shell.run("stats", "orders", "--json", DULY_URL="").json["queues"][0]["ready"] == 1


def test_a_port_in_use_is_reported_and_no_token_is_generated(
    call: Call, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.place / "state"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        done = call("dashboard", "--port", str(port))

    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"duly: port {port} of 127.0.0.1 is in use: choose another with --port")
    assert list(shell.place.iterdir()) == []


def test_a_token_on_the_command_line_gets_a_warning_and_a_short_one_is_refused(call: Call) -> None:
    done = call("dashboard", "--port", "0", "--token", "short", "--url", "redis://127.0.0.1:1")

    warning, refusal = done.err.splitlines()
    assert (done.status, done.out) == (2, "")
    assert warning == (
        "duly: other users of this machine can see --token in the list of processes: prefer DULY_DASHBOARD_TOKEN"
    )
    assert refusal.startswith("duly: a token of the role 'admin' cannot be used: 8 to 512 printable")
    assert "short" not in refusal


@pytest.mark.parametrize(
    ("missing", "needed_by"),
    [("uvicorn", ["duly.web.service"]), ("starlette", ["duly.web.service", "duly.web"])],
    ids=["uvicorn", "starlette"],
)
def test_without_its_extra_it_names_the_package(
    call: Call, monkeypatch: pytest.MonkeyPatch, missing: str, needed_by: list[str]
) -> None:
    for name in needed_by:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)

    done = call("dashboard")

    assert (done.status, done.out) == (1, "")
    assert done.err == f"duly: {missing} is missing: the dashboard needs pip install 'duly[web]'\n"


def test_other_commands_work_without_its_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ITS_EXTRA], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "dashboard" in done.stdout


def test_a_terminal_gets_a_link_that_signs_in_once(shell: Shell) -> None:
    state = str(shell.place / "state")
    with Terminal(shell, "dashboard", "--port", "0", columns=200, XDG_STATE_HOME=state) as terminal:
        terminal.wait_for("/login#once-")
        [line] = [each for each in terminal.lines if "/login#once-" in each]
        assert line.startswith("sign in once, within 5 minutes: http://127.0.0.1:")
        address, _, code = line.rpartition(" ")[2].partition("#")
        for status in (303, 401):
            assert httpx.post(address, data={"token": code}, timeout=DEADLINE, trust_env=False).status_code == status
        terminal.process.sendintr()
        assert terminal.wait_end() == 0
