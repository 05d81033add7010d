"""How many entries per second does one process publish in batches?"""

from benchmarks.rig import BODY, Result, Rig, alternately, median, seconds

ENTRIES = 40_000


def measure(rig: Rig) -> list[Result]:
    """Measure publish_many in calls of 1,000, and pipelined XADD of redis-py."""
    topic = rig.app.topic("rates")

    def publish() -> float:
        rate = ENTRIES / seconds(lambda: topic.publish_many([BODY] * ENTRIES))
        topic.delete()
        return rate

    def bare() -> float:
        """Show what redis-py does without Duly: XADD in pipelines of 1,000, bodies as they are."""

        def work() -> None:
            for _ in range(ENTRIES // 1000):
                pipeline = rig.raw.pipeline(transaction=False)
                for _ in range(1000):
                    pipeline.xadd("raw-stream", {"body": b"x" * 100})
                pipeline.execute()

        rate = ENTRIES / seconds(work)
        rig.raw.delete("raw-stream")
        return rate

    published, bares = alternately(5, publish, bare)
    beside = {"raw pipelined XADD/s": round(median(bares))}
    return [
        Result(
            "publish_many", median(published), "entries/s", 100_000, higher_is_better=True, samples=published,
            beside=beside,
        )
    ]  # fmt: skip
