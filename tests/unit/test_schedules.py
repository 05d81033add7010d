"""The arithmetic of schedules: runs, clocks that are put forward and back, catching up, and bad input."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

import duly
from duly._core import codec, schedules
from duly._core.cron import Calendar
from duly._core.outgoing import Encoder
from duly._core.schedules import (
    NEVER,
    SENT_AT_ONCE,
    STALE,
    Interval,
    Plan,
    Timetable,
    as_send,
    checked_plan,
    choose,
    moment_of,
    us_of,
)
from duly.errors import CodecError, InvalidName, UsageError
from duly.options import QueueOptions, Send

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
NEW_YORK, BERLIN = "America/New_York", "Europe/Berlin"


def us(text: str) -> int:
    """Read a point in time with an offset."""
    return us_of(datetime.fromisoformat(text))


def local(runs: Iterator[int], tz: str, count: int) -> list[str]:
    """Write the next runs as the clocks of the place show them."""
    zone = ZoneInfo(tz)
    return [moment_of(run).astimezone(zone).strftime("%m-%d %H:%M%z") for run in islice(runs, count)]


def calendar(cron: str, tz: str = "UTC") -> Calendar:
    found = checked_plan(cron, None, tz, "one", 0).timetable
    assert isinstance(found, Calendar)
    return found


# Times


def test_the_runs_of_an_interval_are_its_multiples_since_the_epoch() -> None:
    runs = Interval(30 * SECOND)

    assert list(islice(runs.after(100 * SECOND), 3)) == [120 * SECOND, 150 * SECOND, 180 * SECOND]


def test_a_run_at_a_point_in_time_is_not_after_it() -> None:
    assert next(Interval(30).after(60)) == 90
    assert next(Interval(30).after(59)) == 60
    at = us("2026-01-01T03:00:00+00:00")
    assert next(calendar("0 3 * * *").after(at)) == at + DAY
    assert next(calendar("0 3 * * *").after(at - 1)) == at


@pytest.mark.parametrize("runs", [Interval(7 * MINUTE), calendar("*/7 9-17 * * MON-FRI", BERLIN)])
def test_the_newest_run_is_the_last_that_a_walk_finds(runs: Timetable) -> None:
    begin = us("2026-03-27T00:00:00+00:00")
    for until in range(begin, begin + 5 * DAY, 3 * HOUR + 11 * SECOND):
        for after in (begin, until - HOUR, until - SECOND):
            walked = list(takewhile(lambda run: run <= until, runs.after(after)))  # noqa: B023
            assert runs.newest(after, until) == (walked[-1] if walked else None)


def test_the_newest_of_millions_is_found_at_once() -> None:
    began, until = us("2006-01-01T00:00:00+00:00"), us("2026-01-01T00:00:30+00:00")

    assert calendar("* * * * *").newest(began, until) == us("2026-01-01T00:00:00+00:00")
    assert calendar("* * * 1 *", BERLIN).newest(began, us("2025-12-31T00:00:00+01:00")) == us(
        "2025-01-31T23:59:00+01:00"
    )


def test_a_cron_expression_follows_the_clocks_of_its_zone() -> None:
    assert local(calendar("0 3 * * *", "Asia/Shanghai").after(us("2026-05-01T00:00:00+00:00")), "UTC", 2) == [
        "05-01 19:00+0000",
        "05-02 19:00+0000",
    ]


CHANGES = {
    BERLIN: ("2026-03-28", "2026-10-24"),
    NEW_YORK: ("2026-03-07", "2026-10-31"),
    "America/Santiago": ("2026-04-04", "2026-09-05"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),
    "UTC": ("2026-01-01", "2026-02-28"),
}
"""Days before the clocks change: by an hour, at midnight, by half an hour, never."""


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "*/20 * * * *", "0 */3 * * *", "15 1-3 * * *", "*/10 2 * * *", "0 0 * * *"]
)
def test_the_runs_are_the_same_from_any_start(zone: str, cron: str) -> None:
    runs = calendar(cron, zone)
    for day in CHANGES[zone]:
        begin = us(f"{day}T00:00:00+00:00")
        walked = list(takewhile(lambda run: run < begin + 5 * DAY, runs.after(begin)))  # noqa: B023
        assert all(earlier < later for earlier, later in pairwise(walked))
        for before in range(begin, begin + 3 * DAY, 11 * MINUTE):
            assert next(runs.after(before)) == next(run for run in walked if run > before), moment_of(before)


# Clocks that are put forward: what they skip. In New York from 2 to 3 on 8 March 2026, in Berlin on 29 March.


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        pytest.param("30 2 * * *", ["03-07 02:30-0500", "03-08 03:00-0400", "03-09 02:30-0400"], id="when they go on"),
        pytest.param("0 2,3 * * *", ["03-07 03:00-0500", "03-08 03:00-0400", "03-09 02:00-0400"], id="once for both"),
        pytest.param("30 3 * * *", ["03-07 03:30-0500", "03-08 03:30-0400"], id="not concerned"),
        pytest.param("*/30 2 * * *", ["03-07 02:30-0500", "03-09 02:00-0400"], id="left out"),
        pytest.param("30 */2 * * *", ["03-08 00:30-0500", "03-08 04:30-0400"], id="left out of every second hour"),
    ],
)
def test_in_new_york_a_run_that_the_clocks_skip_comes(cron: str, expected: list[str]) -> None:
    runs = local(calendar(cron, NEW_YORK).after(us("2026-03-07T02:00:00-05:00")), NEW_YORK, 30)

    begin = runs.index(expected[0])
    assert runs[begin : begin + len(expected)] == expected


def test_in_berlin_a_run_that_the_clocks_skip_comes_after_the_skipped_hour() -> None:
    after = us("2026-03-28T12:00:00+01:00")

    assert local(calendar("30 2 * * *", BERLIN).after(after), BERLIN, 2) == ["03-29 03:00+0200", "03-30 02:30+0200"]
    assert local(calendar("*/30 2 * * *", BERLIN).after(after), BERLIN, 1) == ["03-30 02:00+0200"]
    hourly = local(calendar("0 * * * *", BERLIN).after(us("2026-03-29T00:30:00+01:00")), BERLIN, 3)
    assert hourly == ["03-29 01:00+0100", "03-29 03:00+0200", "03-29 04:00+0200"]


# Clocks that are put back: what they show twice. In New York from 2 to 1 on 1 November, in Berlin on 25 October.


def test_in_new_york_a_time_of_day_that_comes_twice_is_one_run() -> None:
    runs = calendar("30 1 * * *", NEW_YORK)

    found = local(runs.after(us("2026-10-31T12:00:00-04:00")), NEW_YORK, 2)

    assert found == ["11-01 01:30-0400", "11-02 01:30-0500"]


@pytest.mark.parametrize("minute", range(0, 60, 7))
def test_a_start_in_the_second_of_both_hours_gets_no_run_of_the_first(minute: int) -> None:
    """The clocks show 1:xx for the second time: 1:30 and 1:45 are over."""
    asked = us(f"2026-11-01T01:{minute:02d}:00-05:00")
    runs = calendar("30,45 1 * * *", NEW_YORK)

    assert local(runs.after(asked), NEW_YORK, 1) == ["11-02 01:30-0500"]
    assert runs.newest(asked - 12 * HOUR, asked) == us("2026-11-01T01:45:00-04:00")


def test_in_new_york_an_expression_that_follows_elapsed_time_runs_in_both_hours() -> None:
    after = us("2026-11-01T00:45:00-04:00")

    assert local(calendar("30 * * * *", NEW_YORK).after(after), NEW_YORK, 3) == [
        "11-01 01:30-0400",
        "11-01 01:30-0500",
        "11-01 02:30-0500",
    ]
    assert local(calendar("*/30 1 * * *", NEW_YORK).after(after), NEW_YORK, 5) == [
        "11-01 01:00-0400",
        "11-01 01:30-0400",
        "11-01 01:00-0500",
        "11-01 01:30-0500",
        "11-02 01:00-0500",
    ]


def test_in_berlin_the_hour_that_the_clocks_show_twice() -> None:
    after = us("2026-10-24T12:00:00+02:00")

    assert local(calendar("30 2 * * *", BERLIN).after(after), BERLIN, 2) == ["10-25 02:30+0200", "10-26 02:30+0100"]
    hours = local(calendar("0 * * * *", BERLIN).after(us("2026-10-25T01:30:00+02:00")), BERLIN, 3)
    assert hours == ["10-25 02:00+0200", "10-25 02:00+0100", "10-25 03:00+0100"]


def test_an_interval_knows_no_clocks() -> None:
    after = us("2026-10-25T00:30:00+02:00")

    assert [run - after for run in islice(Interval(HOUR).after(after), 4)] == [
        30 * MINUTE,
        90 * MINUTE,
        150 * MINUTE,
        210 * MINUTE,
    ]


@pytest.mark.parametrize("zone", [NEW_YORK, BERLIN])
@pytest.mark.parametrize("cron", ["30 1 * * *", "30 2 * * *", "*/15 * * * *", "15 */2 * * *", "0 2,3 * * *"])
@pytest.mark.parametrize("days", [(3, 6), (3, 27), (10, 23), (10, 30)], ids=str)
def test_each_run_is_sent_once_at_any_times_of_polling(zone: str, cron: str, days: tuple[int, int]) -> None:
    """Through the nights in which clocks change, polled at odd times: all runs, none twice."""
    runs = calendar(cron, zone)
    begin = us_of(datetime(2026, *days, tzinfo=UTC))
    end = begin + 4 * DAY
    expected = []
    for run in runs.after(begin):
        if run > end:
            break
        expected.append(run)

    sent: list[int] = []
    after, now, step = begin, begin, 0
    while now < end:
        step += 1
        now = min(now + (step * 7919 % 97) * MINUTE, end)
        choice = choose(runs, "all", after, now)
        sent += choice.runs
        after = choice.after

    assert sent == expected


# Catching up


def test_one_sends_the_newest_run_only() -> None:
    assert choose(Interval(30), "one", 0, 100) == ([90], 90, 120)


def test_all_sends_each_run() -> None:
    assert choose(Interval(30), "all", 0, 100) == ([30, 60, 90], 90, 120)


def test_all_sends_a_bounded_number_of_runs_and_checks_again_at_once() -> None:
    now = 30 * (SENT_AT_ONCE + 5)
    first = choose(Interval(30), "all", 0, now)
    second = choose(Interval(30), "all", first.after, now)

    assert (len(first.runs), first.after, first.next_at) == (SENT_AT_ONCE, 30 * SENT_AT_ONCE, now)
    assert second.runs == [30 * (SENT_AT_ONCE + n) for n in (1, 2, 3, 4, 5)]
    assert second.next_at == now + 30


@pytest.mark.parametrize(("age", "is_sent"), [(0, True), (STALE, True), (STALE + 1, False), (DAY - 1, False)])
def test_skip_sends_only_a_recent_run(age: int, is_sent: bool) -> None:
    run = 400 * DAY

    choice = choose(Interval(DAY), "skip", 300 * DAY, run + age)

    assert choice == ([run] if is_sent else [], run, run + DAY)


@pytest.mark.parametrize("catch_up", ["one", "skip", "all"])
def test_without_a_run_nothing_is_sent(catch_up: str) -> None:
    assert choose(Interval(30), catch_up, 60, 89) == ([], 60, 90)


@pytest.mark.parametrize("catch_up", ["one", "skip", "all"])
def test_a_clock_behind_the_last_run_sends_nothing(catch_up: str) -> None:
    assert choose(Interval(30), catch_up, 90, 35) == ([], 90, 120)


def test_a_calendar_that_is_over_is_never_checked_again() -> None:
    class Over:
        def after(self, us: int) -> Iterator[int]:
            return iter(())

        def newest(self, after: int, until: int) -> int | None:
            return None

    assert choose(Over(), "one", 5, 10) == ([], 5, NEVER)
    assert choose(Over(), "all", 5, 10) == ([], 5, NEVER)


# Bad input


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "cron=.* or every="),
        ({"cron": "* * * * *", "every": 5}, "not both"),
        ({"cron": ""}, "five fields"),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "0 * * * * *"}, "five fields"),
        ({"cron": "@daily"}, "five fields"),
        ({"cron": "61 * * * *"}, "cannot be read .minute '61': .* 0 to 59"),
        ({"cron": "* 24 * * *"}, "cannot be read .hour '24': .* 0 to 23"),
        ({"cron": "* * * * MON-"}, "cannot be read .day of week 'MON-'"),
        ({"cron": "a b c d e"}, "cannot be read"),
        ({"cron": "0 0 30 2 *"}, "no date of the calendar"),
        ({"cron": "*/" + "1" * 300 + " * * * *"}, "too long"),
        ({"cron": 5}, "cron must be"),
        ({"cron": b"* * * * *"}, "cron must be"),
        ({"every": 0}, "every must be"),
        ({"every": 0.0009}, "every must be"),
        ({"every": -1}, "every must be"),
        ({"every": float("nan")}, "every must be"),
        ({"every": 11 * 366 * 86400}, "ten years"),
        ({"every": "30"}, "every must be"),
        ({"every": True}, "every must be"),
        ({"every": 5, "tz": BERLIN}, "for cron="),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, "not a time zone"),
        ({"cron": "* * * * *", "tz": "../etc/passwd"}, "not a time zone"),
        ({"cron": "* * * * *", "tz": "America"}, "not a time zone"),
        ({"cron": "* * * * *", "tz": ""}, "tz must be"),
        ({"cron": "* * * * *", "tz": None}, "tz must be"),
        ({"cron": "* * * * *", "tz": UTC}, "tz must be"),
        ({"every": 5, "catch_up": "some"}, "catch_up must be"),
        ({"every": 5, "catch_up": None}, "catch_up must be"),
        ({"every": 5, "catch_up": ["one"]}, "catch_up must be"),
    ],
)
def test_an_invalid_schedule_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        checked_plan(given.get("cron"), given.get("every"), given.get("tz", "UTC"), given.get("catch_up", "one"), 1.7e9)


@pytest.mark.parametrize(
    ("every", "expected"),
    [(30, 30 * SECOND), (0.1, 100_000), (0.001, 1000), (timedelta(hours=1), HOUR), (2.3, 2_300_000), (1 / 3, 333_333)],
)
def test_an_interval_is_kept_in_microseconds(every: Any, expected: int) -> None:
    assert checked_plan(None, every, "UTC", "one", 0).every == expected


def test_a_zone_may_be_given_as_such_and_blanks_do_not_matter() -> None:
    plan = checked_plan("  0  3 * * mon ", None, ZoneInfo(BERLIN), "all", 0)

    assert (plan.cron, plan.tz, plan.catch_up) == ("0 3 * * mon", BERLIN, "all")


def test_utc_needs_no_data_of_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(schedules, "ZoneInfo", type("ZoneInfo", (), {"__new__": lambda cls, name: gone(name)}))

    assert next(checked_plan("0 3 * * *", None, "UTC", "one", 0).timetable.after(0)) == 3 * HOUR


@pytest.mark.parametrize(
    "option",
    [{"delay": 5}, {"at": 5.0}, {"id": "a"}, {"dedup": "a"}, {"dedup_for": 5}, {"replace": True}],
    ids=lambda each: next(iter(each)),
)
def test_options_that_belong_to_one_message_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"cannot keep {next(iter(option))}="):
        as_send(Send("body", **option))


def test_options_of_every_message_are_kept() -> None:
    send = Send("body", key="k", priority=3, ttl=60, headers={"a": "b"}, retry=duly.Retry(attempts=1))

    assert as_send(send) is send
    assert as_send({"a": 1}) == Send({"a": 1})


@pytest.mark.parametrize("name", ["", "a b", "ä", "~x", 5, None, "x" * 129])
def test_a_bad_name_is_refused_before_anything_is_written(name: Any) -> None:
    with duly.Duly("memory://") as app:
        attempts: list[Callable[[], bool]] = [
            lambda: app.schedule(name, "orders", "body", every=30),
            lambda: app.unschedule(name),
            lambda: app.pause_schedule(name),
            lambda: app.resume_schedule(name),
        ]
        for attempt in attempts:
            with pytest.raises(InvalidName, match="is not a schedule name"):
                attempt()
        assert app.queues() == []


# Rows


def row_of(plan: Plan, created: int = 1, after: int = 2, last: int = 0, paused: int = 0) -> bytes:
    return schedules._HEAD.pack(created, after, last, paused) + schedules.written_plan(plan)


def part_of(body: Any, **options: Any) -> bytes:
    return bytes(Encoder("orders", QueueOptions()).outgoing(Send(body, **options), "id", 0).part)


def test_a_row_is_read_as_it_was_written() -> None:
    plan = checked_plan("0 3 * * *", None, BERLIN, "skip", 0).with_part(b"\x00\xff")

    assert schedules.read_row(row_of(plan, 5, 7, 6, 1)) == (5, 7, 6, True, plan)


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\x00" * 24,
        b"\x00" * 25,
        b"\x00" * 25 + b"\x02" + b"\x90",
        b"\x00" * 25 + b"\x01",
        b"\x00" * 25 + b"\x01\xc0",
        b"\xff" * 24 + b"\x00\x01" + schedules._encode_plan(Plan(None, 1, "UTC", "one", b"")),
        row_of(Plan(None, 1, "UTC", "later", b"")),
    ],
    ids=["empty", "short", "no plan", "version", "cut off", "nil", "no number", "policy"],
)
def test_a_row_of_another_program_is_recognised(row: bytes) -> None:
    with pytest.raises(CodecError):
        schedules.read_row(row)
    assert schedules.view("orders", "name", row, 0) is None


@pytest.mark.parametrize(
    "plan",
    [
        Plan("0 3 * *", 0, "UTC", "one", b""),
        Plan("0 3 * * *", 0, "Mars/Olympus", "one", b""),
        Plan("61 3 * * *", 0, "UTC", "one", b""),
        Plan(None, 0, "UTC", "one", b""),
    ],
    ids=["fields", "zone", "minute", "interval"],
)
def test_a_plan_that_this_process_cannot_follow_is_recognised(plan: Plan) -> None:
    with pytest.raises(CodecError):
        plan.timetable  # noqa: B018


def test_the_message_of_a_run_has_the_body_its_options_and_the_run() -> None:
    part = part_of({"a": 1}, key="k", priority=3, ttl=60, headers={"x": "y"}, retry=duly.Retry(attempts=2))
    plan = Plan(None, 30 * SECOND, "UTC", "all", part)

    first, second = schedules.messages("report", plan, [30 * SECOND, 60 * SECOND + 5], iter("ab").__next__)

    assert (first.id, first.when, first.priority, first.flags) == ("a", "=30000000", 3, codec.FLAG_TTL | codec.FLAG_KEY)
    assert (second.id, second.when) == ("b", "=60000005")
    stored, sent = (codec.read_record(codec.stamped(0, 0, each)) for each in (part, first.part))
    assert sent.envelope.headers == {
        "x": "y",
        "duly-schedule": "report",
        "duly-slot": "1970-01-01T00:00:30+00:00",
    }
    sent.envelope.headers = stored.envelope.headers
    assert sent == stored
    later = codec.read_record(codec.stamped(0, 0, second.part)).envelope.headers
    assert later is not None
    assert datetime.fromisoformat(later["duly-slot"]) == moment_of(60 * SECOND + 5)


def test_a_view_has_all_fields() -> None:
    plan = checked_plan("0 3 * * *", None, BERLIN, "skip", 0).with_part(part_of({"a": 1}))
    now = us("2026-07-01T00:00:00+00:00")

    assert schedules.view("orders", "report", row_of(plan, 5, now - 1, now - 7), now) == duly.Schedule(
        name="report",
        queue="orders",
        cron="0 3 * * *",
        every=None,
        tz=BERLIN,
        catch_up="skip",
        paused=False,
        next_at=datetime(2026, 7, 1, 1, tzinfo=UTC),
        last_slot=moment_of(now - 7),
        body={"a": 1},
    )
    paused = schedules.view("orders", "report", row_of(plan, paused=1), now)
    assert paused is not None
    assert (paused.paused, paused.next_at, paused.last_slot) == (True, None, None)


def test_a_view_of_a_zone_that_is_unknown_here_has_no_next_run() -> None:
    found = schedules.view("orders", "report", row_of(Plan("0 3 * * *", 0, "Mars/X", "one", part_of("a"))), 0)

    assert found is not None
    assert found.next_at is None


def test_a_body_that_does_not_decode_is_shown_raw() -> None:
    part = bytes(codec.written_part(codec.Envelope(codec.CONTENT_JSON, b"{")))
    found = schedules.view("orders", "report", row_of(Plan(None, 1, "UTC", "one", part)), 0)

    assert found is not None
    assert found.body == b"{"


def test_an_entry_of_the_registry_of_another_program_is_recognised() -> None:
    assert schedules.read_entry(b"short") is None
    assert schedules.read_entry(b"\x00" * 8 + b"\xff") is None
    assert schedules.read_entry(schedules._ENTRY.pack(7) + b"orders") == (7, "orders")
