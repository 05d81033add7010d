"""Send and consume over HTTP, with nothing but the standard library: every language can do the same.

It talks to the dashboard that `DULY_DASHBOARD_URL` and `DULY_DASHBOARD_TOKEN` name (`duly dashboard` prints both);
without them it starts one of its own. docs/http.md has all that can be asked.
"""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

QUEUE = "example-http-mails"
WAIT = 5  # a receive waits on the server for so long, at most 20
TOKEN = os.environ.get("DULY_DASHBOARD_TOKEN", "a-token-for-this-example")


def call(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request, timeout=WAIT + 10) as answer:
        return json.load(answer)


def settle(queue: str, verb: str, **said: object) -> None:
    try:
        call(f"{queue}/{verb}", said)
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise
        # Somebody else has the message by now, or this call got through before and its answer was lost. Either way
        # there is nothing to do.
        print(json.load(error)["detail"])


def deliver(mail: dict[str, str], attempt: int) -> None:
    if mail["to"] == "bob" and attempt == 1:
        raise ConnectionError("no answer from bob's server")
    print(f"mail to {mail['to']}: {mail['text']} (attempt {attempt})")


def consume(queue: str, count: int) -> None:
    """Handle so many messages. A service would go on for ever."""
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


# From here on only what lets the example run by itself, without a dashboard of yours.


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
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    given = os.environ.get("DULY_DASHBOARD_URL")
    with contextlib.nullcontext(given) if given else own_dashboard() as address:
        main(address.rstrip("/"))
