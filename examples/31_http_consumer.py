"""Send and consume over HTTP, with nothing but the standard library: every language can do the same.

It starts its own dashboard, unless `DULY_DASHBOARD_URL` and `DULY_DASHBOARD_TOKEN` name one that runs:

    export DULY_DASHBOARD_URL=http://127.0.0.1:8787
    export DULY_DASHBOARD_TOKEN=$(cat ~/.local/state/duly/dashboard-token)

docs/http.md describes all calls.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

QUEUE = "example-http-mails"
WAIT = 5  # seconds that a receive waits on the server, at most 20
TOKEN = os.environ.get("DULY_DASHBOARD_TOKEN", "a-token-for-this-example")


class Refused(Exception):
    """The dashboard answered with an error."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def call(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    try:
        with urllib.request.urlopen(request, timeout=WAIT + 10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:  # the detail names the problem, and what to do
        raise Refused(error.code, json.load(error)["detail"]) from None


def settle(queue: str, verb: str, **said: object) -> None:
    try:
        call(f"{queue}/{verb}", said)
    except Refused as refused:
        if refused.status != 409:
            raise
        # Another consumer has the message by now, or an earlier call succeeded and its answer was lost. Either way
        # there is nothing to do.
        print(refused)


def deliver(mail: dict[str, str], attempt: int) -> None:
    if mail["to"] == "bob" and attempt == 1:
        raise ConnectionError("no answer from bob's server")
    print(f"mail to {mail['to']}: {mail['text']} (attempt {attempt})")


def consume(queue: str, count: int) -> None:
    """Handle `count` messages. A service would continue forever."""
    while count:
        batch = call(f"{queue}/receive", {"limit": 10, "wait": WAIT, "lease": 30})["messages"]
        done = []
        for message in batch:
            try:
                deliver(message["body"], message["attempt"])
                done.append(message["receipt"])
            except ConnectionError as error:
                settle(queue, "retry", receipt=message["receipt"], delay=0.1, error=f"ConnectionError: {error}")
        if done:
            settle(queue, "ack", receipts=done)  # one call for all
        count -= len(done)


def main(url: str) -> None:
    queue = f"{url}/api/v1/queues/{QUEUE}"
    sent = call(
        f"{queue}/messages",
        [
            {"body": {"to": "ann", "text": "hello"}},
            {"body": {"to": "bob", "text": "hello"}},
            {"body": {"to": "cleo", "text": "later"}, "delay": 0.3},
        ],
    )
    print("sent", len(sent["ids"]))
    consume(queue, 3)


# The rest only makes the example run without your dashboard.


@contextlib.contextmanager
def own_dashboard() -> Iterator[str]:
    import uvicorn

    import duly
    from duly.web import create_app

    app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
    server = uvicorn.Server(uvicorn.Config(create_app(app, tokens=TOKEN), log_level="warning"))
    listener = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        async with app:
            await server.serve([listener])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    given = os.environ.get("DULY_DASHBOARD_URL")
    with contextlib.nullcontext(given) if given else own_dashboard() as address:
        try:
            main(address.rstrip("/"))
        except (Refused, urllib.error.URLError) as error:
            sys.exit(f"{address}: {error}")
