"""Schedules: a daily report in Shanghai and a check every minute, a day of both in no time and without a server."""

from datetime import UTC, datetime

import duly
from duly.testing import clock


def run(jobs: duly.Queue) -> list[str]:
    """Handle due messages, and return their jobs."""
    done = []
    for d in jobs.receive(wait=0):
        done.append(f"{d.body['job']} of {d.headers['duly-slot']}")
        d.ack()
    return done


def main() -> None:
    clock.freeze()
    clock.set_us(int(datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC).timestamp()) * 1_000_000)
    app = duly.Duly("memory://")
    jobs = app.queue("jobs")
    for _ in range(3):  # every process may declare them when it starts: a repetition changes nothing
        app.schedule("report", jobs, {"job": "report"}, cron="0 3 * * *", tz="Asia/Shanghai")
        app.schedule("check", jobs, {"job": "check"}, every=60, catch_up="skip")
    assert run(jobs) == []

    clock.advance(60)
    assert run(jobs) == ["check of 2026-05-01T12:01:00+00:00"]

    clock.advance(24 * 3600 - 3600)  # no consumer for most of a day
    assert sorted(run(jobs)) == ["check of 2026-05-02T11:01:00+00:00", "report of 2026-05-01T19:00:00+00:00"]

    app.pause_schedule("check")
    clock.advance(3600)
    assert run(jobs) == []

    for schedule in app.schedules():
        print(schedule.name, schedule.cron or f"every {schedule.every:g} s", "next:", schedule.next_at)
    app.unschedule("check")
    print([schedule.name for schedule in app.schedules()])


if __name__ == "__main__":
    main()
    clock.reset()
