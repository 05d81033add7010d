"""A server that does not show whether it evicts keys is used, and this is logged once."""

from collections.abc import Mapping

import pytest

import duly
from duly._core.server import read_info
from duly.doctor import examine
from tests.conftest import StartedServer


def without_policy(reply: bytes | Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in read_info(reply).items() if name != "maxmemory_policy"}


def test_it_is_logged_once(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("duly._sync.pool.read_info", without_policy)
    monkeypatch.setattr("duly._sync.pool._hiding", set())
    for _ in range(2):
        with duly.Duly(server("valkey").url) as app:
            app.queue(queue_name).send("x")

    (line,) = [record.getMessage() for record in caplog.records if "maxmemory-policy" in record.getMessage()]
    assert "cannot check whether it evicts keys" in line


def test_it_is_not_logged_if_eviction_is_accepted(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("duly._sync.pool.read_info", without_policy)
    monkeypatch.setattr("duly._sync.pool._hiding", set())
    with duly.Duly(server("valkey").url, allow_eviction=True) as app:
        app.queue(queue_name).send("x")

    assert "maxmemory-policy" not in caplog.text


def test_doctor_does_not_know_the_policy(server: StartedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.doctor.examination.read_info", without_policy)
    monkeypatch.setattr("duly.doctor.examination.SETTINGS", ("timeout",))
    with duly.Duly(server("valkey").url) as app:
        assert examine(app).finding("eviction").verdict == "unknown"
