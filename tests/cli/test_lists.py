"""Each list of `--json` that the HTTP API has as well: both have the same shape and the same objects."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

import duly
from duly.web import create_app
from tests.cli.conftest import Call
from tests.cli.shell import Shell, given_dead
from tests.web.conftest import beat, client_of

LISTS: Final = {
    "queues": "/queues",
    "list orders ready --limit 2": "/queues/orders/messages?state=ready&limit=2",
    "dead ls orders --limit 2": "/queues/orders/messages?state=dead&limit=2",
    "topic ls": "/topics",
    "schedule ls": "/schedules",
    "workers": "/workers",
}
"""The commands, and the paths of the API that return the same list."""
NOUNS: Final = ("queues", "messages", "topics", "schedules", "workers")


@pytest.fixture
def filled(app: duly.Duly) -> duly.Duly:
    """Return the app with something in each list, and more than a page of messages."""
    for number in range(3):
        given_dead(app.queue("orders"), {"n": number})
    app.queue("orders").send_many(["1", "2", "3"])
    app.topic("events").group("archive").create()
    app.schedule("daily", "orders", "report", cron="0 3 * * *")
    beat(app, "consumer-1", "orders")
    return app


def pages_of(read: Callable[[str | None], dict[str, Any]]) -> list[dict[str, Any]]:
    """Read all pages of a list, each with the `next` of the one before."""
    pages = [read(None)]
    while pages[-1]["next"] is not None and len(pages) < 9:  # a list that repeats a page does not end
        pages.append(read(pages[-1]["next"]))
    return pages


def get(shell: Shell, path: str) -> dict[str, Any]:
    """Call the HTTP API on the server and namespace of the shell."""

    async def answer() -> Any:
        async with duly.AsyncDuly(shell.url, namespace=shell.namespace) as app, client_of(create_app(app)) as client:
            return (await client.get(f"/api/v1{path}")).raise_for_status().json()

    found: dict[str, Any] = asyncio.run(answer())
    return found


@pytest.mark.parametrize(("words", "path"), LISTS.items())
def test_a_list_has_the_shape_of_the_http_api(
    shell: Shell, call: Call, filled: duly.Duly, words: str, path: str
) -> None:
    printed = pages_of(lambda next_: call(*words.split(), "--json", *(("--after", next_) if next_ else ())).json)
    answered = pages_of(lambda next_: get(shell, path + (f"&after={next_}" if next_ else "")))

    (noun,) = [noun for noun in NOUNS if noun in printed[0]]
    name = "id" if noun in ("messages", "workers") else "name"
    shown, expected = ([[each[name] for each in page[noun]] for page in pages] for pages in (printed, answered))
    assert shown == expected
    assert [len(page) for page in shown] == ([2, 1] if "--limit" in words else [1])
    assert {frozenset(page) for page in answered} == {frozenset({noun, "next"})}
    assert {frozenset(page) - {"groups"} for page in printed} == {frozenset({noun, "next"})}
