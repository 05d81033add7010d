"""Remind of a payment after 1, 3, 7, 15 minutes ... until it is paid. Hours pass in no time: the clock is virtual."""

import duly
from duly.testing import Handled, clock, work_off

MINUTE, HOUR = 60, 3600
app = duly.Duly("memory://")  # the clock of a real server cannot be moved; a shop uses duly.Duly()
reminders = app.queue("example-reminders")
sent: list[tuple[int, int]] = []

# A reminder repeats after each ack. The delay doubles each time, up to half an hour.
UNTIL_PAID = duly.Repeat(first=MINUTE, factor=2, max=30 * MINUTE)
THREE_TIMES = duly.Repeat(first=MINUTE, factor=2, times=3)


def await_payment(order: int, repeat: duly.Repeat = UNTIL_PAID) -> None:
    reminders.send({"order": order}, repeat=repeat, id=f"remind-{order}")  # one message for all reminders


def paid(order: int) -> None:
    reminders.cancel(f"remind-{order}", running=True)  # no more reminders, even if one is being sent


@reminders.handler
def remind(body: dict[str, int], d: duly.Delivery) -> None:
    sent.append((body["order"], d.cycles + 1))


def minutes(handled: list[Handled], start: float) -> list[tuple[int, int]]:
    """Return the order and the minute of each reminder."""
    return [(each.body["order"], round((each.at.timestamp() - start) / MINUTE)) for each in handled]


def main() -> None:
    clock.freeze()
    start = clock.now_us() / 1_000_000
    for order in (1, 2):
        await_payment(order)
    await_payment(3, THREE_TIMES)

    handled = work_off(app, advance=5 * MINUTE)
    paid(1)
    handled += work_off(app, advance=2 * HOUR)

    found = minutes(handled, start)
    for (order, minute), (_, number) in zip(found, sent, strict=True):
        print(f"after {minute:3} min  order {order}: reminder {number}")
    assert [minute for order, minute in found if order == 1] == [1, 3]
    assert [minute for order, minute in found if order == 2] == [1, 3, 7, 15, 31, 61, 91, 121]
    assert [minute for order, minute in found if order == 3] == [1, 3, 7]
    assert reminders.get("remind-3") is None  # the third was the last
    assert reminders.audit()


if __name__ == "__main__":
    main()
    clock.reset()
    app.close()
