"""Close an order that is not paid within 30 minutes. Half an hour passes in no time: the clock is virtual."""

import duly
from duly.testing import clock, work_off

MINUTE = 60
app = duly.Duly("memory://")  # the clock of a real server cannot be moved; a shop uses duly.Duly()
closing = app.queue("example-closing")
orders: dict[int, str] = {}  # represents your database


def place(order: int) -> None:
    orders[order] = "open"
    closing.send(order, delay=30 * MINUTE, id=f"close-{order}")  # our own id, to cancel it


def pay(order: int) -> bool:
    """Take the money, unless the order is closed."""
    if orders[order] != "open":
        return False
    orders[order] = "paid"
    closing.cancel(f"close-{order}")  # True: close() will never run. False: it is running
    return True


@closing.handler
def close(order: int) -> None:
    # A payment at this moment cannot cancel the message any more: the database decides. With a real one:
    # UPDATE orders SET state = 'closed' WHERE id = ? AND state = 'open'
    if orders[order] == "open":
        orders[order] = "closed"


def main() -> None:
    for order in (1, 2, 3):
        place(order)
    print("00:00  three orders:", orders)

    assert work_off(app, advance=10 * MINUTE) == []
    assert pay(1)
    print("10:00  order 1 is paid:", orders)

    assert work_off(app, advance=19 * MINUTE) == []
    assert pay(2)
    print("29:00  order 2 is paid:", orders)

    closed = work_off(app, advance=2 * MINUTE)
    print("30:00  order", closed[0].body, "was not paid in time:", orders)
    assert [(each.body, each.outcome) for each in closed] == [(3, "ack")]
    assert not pay(3)  # too late
    assert orders == {1: "paid", 2: "paid", 3: "closed"}
    assert (closing.stats().cancelled, closing.stats().live) == (2, 0)


if __name__ == "__main__":
    main()
    clock.reset()
    app.close()
