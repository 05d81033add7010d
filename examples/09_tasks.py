"""Tasks: functions that workers call by name. `welcome(...)` runs here, `welcome.send(...)` in a worker.

Seconds here stand for minutes: a text message goes out two minutes after the order.
"""

import os
import signal
from datetime import UTC, datetime, timedelta

import duly

app = duly.Duly(os.environ.get("DULY_URL", "memory://"))


@app.task(queue="example-mail", retry=duly.Retry(attempts=3, first=0.1))
async def welcome(user: int, lang: str = "en") -> str:
    print(f"welcome, user {user}, in {lang}")
    return "sent"


@app.task(queue="example-mail")
def text_message(number: str, text: str, d: duly.Delivery) -> None:  # `def` runs in a thread; the worker gives `d`
    print(f"to {number}: {text} (attempt {d.attempt})")


@app.task(queue="example-mail")
def close_shop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # the example is over


if __name__ == "__main__":
    welcome.send(42, lang="zh")
    welcome.at(datetime.now(UTC) + timedelta(seconds=0.1), 43)
    text_message.later(0.2, "+1 555 0100", "your order is on its way")
    text_message.using(priority=9, headers={"trace": "4bf92f"}).send("+1 555 0100", text="your order is here")
    close_shop.later(0.6)

    try:
        welcome.send("not a number")
    except duly.UsageError as error:  # arguments are checked before anything is sent
        print("refused:", error)

    app.run()

    print("finished", welcome.queue.stats().acked)
    welcome.queue.delete()
