"""Remind of a payment after 60, 120, 240 s ... until it is paid. An hour passes in no time: the clock is virtual."""

import duly
from duly.testing import clock

app = duly.Duly("memory://")  # the clock of a real server cannot be moved
reminders = app.queue("example-reminders")


def handle_what_is_due() -> list[str]:
    """Do as a handler does: what it finishes comes back by itself."""
    sent = []
    for d in reminders.receive(wait=0):
        with d:  # leaves: ack, and the next reminder is due after twice as long
            sent.append(f"order {d.body['order']}: reminder {d.cycles + 1}")
    return sent


# One message for each order; its id is the handle to stop it.
twice_as_long = duly.Repeat(first=60, factor=2, max=1800)
ids = {order: reminders.send({"order": order}, repeat=twice_as_long) for order in (1, 2)}
gives_up = reminders.send({"order": 3}, repeat=duly.Repeat(first=60, factor=2, times=3))

log: list[tuple[int, str]] = []
for second in range(10, 3601, 10):
    clock.advance(10)
    log += [(second, text) for text in handle_what_is_due()]
    if second == 300:
        assert reminders.cancel(ids[1])  # order 1 is paid: no more reminders, whatever the message is doing

for moment, text in log:
    print(f"after {moment:4} s  {text}")
assert [moment for moment, text in log if text.startswith("order 1")] == [60, 180]
assert [moment for moment, text in log if text.startswith("order 2")] == [60, 180, 420, 900, 1860]
assert [moment for moment, text in log if text.startswith("order 3")] == [60, 180, 420]
assert reminders.get(gives_up) is None  # the third was the last
assert reminders.audit()

reminders.cancel(ids[2])
clock.reset()
app.close()
