"""How many messages per second does one process send, and receive and ack, in batches?"""

from benchmarks.rig import BODY, Result, Rig, alternately, median, seconds

MESSAGES = 40_000


def measure(rig: Rig) -> list[Result]:
    """Take send_many in calls of 1,000, and receive with ack_many in batches of 100, every body decoded."""
    queue = rig.app.queue("rates")
    sends: list[float] = []

    def send() -> float:
        return MESSAGES / seconds(lambda: queue.send_many([BODY] * MESSAGES))

    def drain() -> float:
        def work() -> None:
            done = 0
            while done < MESSAGES:
                deliveries = queue.receive(limit=100, wait=0)
                for delivery in deliveries:
                    _ = delivery.body
                done += len(deliveries)
                queue.ack_many(deliveries)

        return MESSAGES / seconds(work)

    def variadic() -> float:
        """Show what redis-py alone can do: variadic LPUSH of 100."""

        def work() -> None:
            values = [b"x" * 100] * 100
            for _ in range(MESSAGES // 100):
                rig.raw.lpush("raw-list", *values)

        rate = MESSAGES / seconds(work)
        rig.raw.delete("raw-list")
        return rate

    sends, drains, raws = alternately(5, send, drain, variadic)
    queue.delete()
    beside = {"raw variadic LPUSH of 100, /s": round(median(raws))}
    return [
        Result("send_many", median(sends), "messages/s", 100_000, higher_is_better=True, samples=sends, beside=beside),
        Result(
            "receive + ack_many, batches of 100",
            median(drains),
            "messages/s",
            80_000,
            higher_is_better=True,
            samples=drains,
            beside=beside,
        ),
    ]
