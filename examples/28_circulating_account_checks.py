"""Check all accounts of a chat service again and again, for eight hours, with consumers that are killed now and then.

The ack of a check and the next message are one atomic step. So there is exactly one copy of each account at every
moment: a killed consumer loses none, and a slow consumer cannot add a second one.
"""

import logging
import random
from collections import defaultdict
from itertools import pairwise

import duly
from duly.testing import clock

ACCOUNTS = [f"wechat-{n}" for n in range(8)]
PAUSE, LEASE, HOUR = 60, 30, 3600
app = duly.Duly("memory://")  # the clock of a real server cannot be moved; a service uses duly.Duly()
checks: dict[str, list[float]] = defaultdict(list)  # when each account was checked


def circle_of(consumer: duly.Duly) -> duly.Queue:
    # A kill is not the fault of an account: none becomes a dead letter, regardless of the number of crashes.
    return consumer.queue("example-accounts", lease=LEASE, crash_limit=1_000)


def check_what_is_due(circle: duly.Queue, *, is_killed: bool = False) -> None:
    """Check up to three accounts. A killed consumer stops at the worst moment: between check and recycle."""
    for d in circle.receive(limit=3, wait=0):
        checks[d.body["account"]].append(clock.now_us() / 1_000_000)
        if is_killed:
            return
        d.recycle(delay=PAUSE)  # acked, and sent again


def main() -> None:
    clock.freeze()
    circle = circle_of(app)
    circle.send_many([{"account": account} for account in ACCOUNTS])
    [slow] = circle.receive(limit=1, wait=0)  # by a consumer that hangs, and continues much later

    kills, consumers, dice = 0, [duly.Duly(app) for _ in range(3)], random.Random(7)
    for _ in range(0, 8 * HOUR, 10):
        clock.advance(10)
        who, is_killed = dice.randrange(3), dice.random() < 0.1
        check_what_is_due(circle_of(consumers[who]), is_killed=is_killed)
        if is_killed:
            kills += 1
            consumers[who] = duly.Duly(app)  # started again, another process
        assert circle.stats().live == len(ACCOUNTS)

    try:
        slow.recycle(delay=PAUSE)
    except duly.LeaseLost as error:
        print("hours late:", error)
    gaps = [late - early for times in checks.values() for early, late in pairwise(times)]
    print(f"{len(gaps)} checks, {kills} kills; from {min(gaps):.0f} to {max(gaps):.0f} s between two of an account")
    in_the_circle = [message for state in ("ready", "delayed", "leased") for message in circle.list(state)]
    assert sorted(message.body["account"] for message in in_the_circle) == ACCOUNTS
    assert kills > 100
    assert min(gaps) > LEASE - 1  # never two at a time
    assert max(gaps) < 10 * PAUSE  # and none was forgotten
    assert circle.audit()


if __name__ == "__main__":
    logging.getLogger("duly").setLevel(logging.ERROR)  # expired leases are expected here
    main()
    clock.reset()
    app.close()
