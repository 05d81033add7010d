"""A handler: a function that a worker calls with each message of a queue.

In your own module, for example shop.py, leave out the last part and run `duly worker shop:app`.
"""

import os
import signal
from dataclasses import dataclass

import duly

app = duly.Duly(os.environ.get("DULY_URL", "memory://"))
orders = app.queue("example-handled")


@dataclass
class Order:
    number: int
    item: str


@orders.handler
async def on_order(order: Order) -> None:  # acked if it returns, retried if it raises
    print("handling order", order.number, "of", order.item)
    if order.item == "the last":
        os.kill(os.getpid(), signal.SIGTERM)  # as a service manager stops a worker


if __name__ == "__main__":
    orders.send(Order(1, "tea"))
    orders.send({"number": 2, "item": "cups"})  # the worker makes it an Order
    orders.send(Order(3, "the last"), delay=0.2)

    app.run()  # until SIGTERM or Ctrl-C

    print("finished", orders.stats().acked, "left", orders.stats().live)
    orders.delete()
