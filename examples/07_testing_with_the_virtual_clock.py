"""A test with the virtual clock: three days of reminders, a crash and a late ack, in no time and without a server."""

import duly
from duly.testing import clock

HOUR, DAY = 3600, 24 * 3600


def remind_until_paid(reminders: duly.Queue, paid: set[str]) -> list[str]:
    """Handle due messages: remind users who have not paid, and send the reminder again for tomorrow."""
    reminded = []
    for d in reminders.receive(wait=0):
        if d.body["user"] in paid:
            d.ack()
        else:
            reminded.append(d.body["user"])
            d.recycle(delay=DAY)
    return reminded


def test_users_are_reminded_daily_until_they_have_paid() -> None:
    reminders = duly.Duly("memory://").queue("reminders")
    reminders.send_many([duly.Send({"user": user}, delay=DAY) for user in ("ann", "bob")])

    assert remind_until_paid(reminders, paid=set()) == []
    clock.advance(DAY)
    assert remind_until_paid(reminders, paid=set()) == ["ann", "bob"]
    clock.advance(DAY)
    assert remind_until_paid(reminders, paid={"ann"}) == ["bob"]
    clock.advance(DAY)
    assert remind_until_paid(reminders, paid={"ann", "bob"}) == []
    assert reminders.stats().live == 0


def test_a_message_of_a_dead_consumer_is_redelivered_and_its_late_ack_is_refused() -> None:
    exports = duly.Duly("memory://").queue("exports", lease=HOUR)
    exports.send("export")
    [first] = exports.receive(wait=0)

    clock.advance(HOUR)  # the lease expires
    [second] = exports.receive(wait=0)

    assert (second.id, second.crashes) == (first.id, 1)
    assert second.fence > first.fence
    try:
        first.ack()
    except duly.LeaseLost as error:
        print(error)
    second.ack()


if __name__ == "__main__":
    test_users_are_reminded_daily_until_they_have_paid()
    test_a_message_of_a_dead_consumer_is_redelivered_and_its_late_ack_is_refused()
    clock.reset()
    print("three days in no time")
