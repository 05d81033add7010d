"""A worker and a web app in one process: FastAPI's lifespan starts the worker and shuts it down gracefully.

Serve such a file with `uvicorn module:web`. Uvicorn handles signals; the worker then has its grace period.
"""

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
mails = app.queue("example-web-mails")
is_sent = asyncio.Event()


class Mail(BaseModel):
    to: str
    text: str


@mails.handler
async def on_mail(mail: Mail) -> None:
    print("mail to", mail.to)
    is_sent.set()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app, duly.Worker(app, grace=10):
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/mails", status_code=202)
async def post_mail(mail: Mail) -> dict[str, str]:
    return {"id": await mails.send(mail, delay=0.1)}


@web.get("/health")
async def health() -> dict[str, float]:
    stats = await mails.stats()
    return {"workers": len(await app.workers()), "oldest_age": stats.oldest_age}


# The rest only makes the example run and end.


def ask(url: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    print(await asyncio.to_thread(ask, f"{url}/mails", {"to": "ann", "text": "hello"}))
    print(await asyncio.to_thread(ask, f"{url}/health"))
    await is_sent.wait()
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
