"""Tasks: the arguments of a send are those of the function."""

from datetime import UTC, datetime
from typing import Any, assert_type

import duly

app = duly.Duly("memory://")
mail = app.queue("mail", done=duly.Keep(count=10))


@app.task(queue=mail, retry=duly.Retry(attempts=3))
async def welcome(user_id: int, lang: str = "en") -> bool:
    return True


@app.task
def goodbye(user_id: int) -> str:
    return "bye"


@app.task(queue="mail")
def with_delivery(user_id: int, d: duly.Delivery) -> int:
    return d.attempt


@app.task
async def with_delivery_first(d: duly.AsyncDelivery, user_id: int) -> None: ...


async def call() -> None:
    assert_type(await welcome(42), bool)


when = datetime(2030, 1, 1, tzinfo=UTC)
assert_type(welcome.send(42, lang="zh"), duly.MessageId)
assert_type(welcome.later(30, 42), duly.MessageId)
assert_type(welcome.at(when, 42), duly.MessageId)
assert_type(goodbye(42), str)
assert_type(goodbye.body(42), dict[str, Any])
welcome.using(key="user-42", priority=5).send(42)
sending = welcome.aio.send(user_id=42)
with_delivery.send(42)
with_delivery_first.send(user_id=42)
annotated: duly.Task[[int], str] = goodbye
anything: duly.Task = goodbye

welcome.send("42")  # E
welcome.send()  # E
welcome.send(42, language="zh")  # E
welcome.later(42)  # E
welcome.later("soon", 42)  # E
welcome.at(30, "42")  # E
goodbye("42")  # E
goodbye.body(user=42)  # E
welcome.using(prio=5)  # E
app.task(queue=5)  # E
