"""The dashboard mounted in a web app, with tokens: FastAPI serves the shop at / and the dashboard at /ops.

Serve such a file with `uvicorn module:web`. In a real one the tokens come from the environment, not from the source.
"""

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

import duly
from duly.web import create_app

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
orders = app.queue("example-ops-orders")

VIEWER = os.environ.get("SHOP_VIEWER_TOKEN", "a-token-for-viewers")
OPERATOR = os.environ.get("SHOP_OPERATOR_TOKEN", "a-token-for-operators")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        yield


web = FastAPI(lifespan=lifespan)
web.mount("/ops", create_app(app, tokens={VIEWER: "viewer", OPERATOR: "operator"}))


@web.post("/orders/{number}", status_code=202)
async def place_order(number: int) -> dict[str, str]:
    return {"id": await orders.send({"close": number}, delay=1800)}


# The rest only makes the example run and end.


def ask(url: str, token: str = "", *, method: str = "GET") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def inspect_and_cancel(url: str) -> None:
    _, order = ask(f"{url}/orders/17", method="POST")
    message = f"{url}/ops/api/v1/queues/{orders.name}/messages/{json.loads(order)['id']}"
    print("without a token:", ask(message)[0])
    seen = json.loads(ask(message, VIEWER)[1])
    print("a viewer reads the state:", seen["state"], "and a body:", "body" in seen)
    print("a viewer cancels:", ask(message, VIEWER, method="DELETE")[0])
    print("an operator reads the body:", json.loads(ask(message, OPERATOR)[1])["body"])
    print("an operator cancels:", ask(message, OPERATOR, method="DELETE")[0])
    print("health:", ask(f"{url}/ops/healthz"))


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        await asyncio.to_thread(inspect_and_cancel, url)
    finally:
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
