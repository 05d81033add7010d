"""The dashboard and the command line show the task of a message of Celery."""

import dataclasses
import uuid

import pytest
from celery import Celery

import duly
import duly.celery
from duly.celery import tasks
from duly.cli import output
from duly.web.pages import text
from tests.conftest import StartedServer


@pytest.fixture
def message(server: StartedServer) -> duly.Message:
    namespace, url = f"celery-{uuid.uuid4().hex[:12]}", server("valkey").url
    app = Celery("shop", broker=f"duly+{url}", broker_transport_options={"namespace": namespace})
    app.send_task("shop.close_order", [7, "<b>"], {"note": "x"}, task_id="t-1")
    app.close()
    with duly.Duly(url, namespace=namespace) as plain:
        (found,) = plain.queue("celery").list("ready")
    return found


def test_the_dashboard_shows_the_name_the_id_and_the_arguments_of_a_task(message: duly.Message) -> None:
    assert text.body(message).startswith(
        "task: shop.close_order\nid: t-1\nargs: [7, &#39;&lt;b&gt;&#39;]\nkwargs: {&#39;note&#39;: &#39;x&#39;}\n\n{"
    )
    assert text.body_line(message) == "shop.close_order args=[7, '<b>'] kwargs={'note': 'x'} id=t-1"


def test_a_damaged_message_of_a_task_keeps_its_name_and_its_id(message: duly.Message) -> None:
    """So it can be redriven, or found in the logs of the program that has sent it."""
    task = tasks._task_of("celery", dataclasses.replace(message, raw=b"{"))

    assert (task.id, task.name, task.args, task.kwargs) == ("t-1", "shop.close_order", "", "")


def test_lists_of_the_command_line_show_a_task_and_json_keeps_the_body(message: duly.Message) -> None:
    assert output.shown_body_of(message) == "shop.close_order args=[7, '<b>'] kwargs={'note': 'x'} id=t-1"
    assert isinstance(output.body_of(message), bytes)


@pytest.mark.parametrize("raw", [None, b"", b"{", b"[1]", b"{}", b'{"headers": 1}', b"[" * 100_000])
def test_a_message_of_another_program_with_such_headers_is_shown_as_it_is(raw: bytes | None) -> None:
    assert duly._port.task_call(raw, {"task": "t", "task_id": "1"}) is None
