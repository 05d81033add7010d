"""The lines that workers log: one each, and readable for any values."""

import asyncio
import contextlib
import io
import json
import logging
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import UsageError
from duly.worker import logs
from duly.worker.retry_summary import RetrySummary

LOGGER = logging.getLogger("duly.worker")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@contextlib.contextmanager
def standard_error() -> Iterator[io.StringIO]:
    """Return the stream of `configure`, and leave logging as it was."""
    # No fixture: pytest sets its own handlers and standard error between a fixture and the test.
    loggers = [logging.getLogger(name) for name in (None, "duly", "duly.worker")]
    before = [(each, each.handlers[:], each.level, each.propagate, each.disabled) for each in loggers]
    loggers[0].handlers[:] = []  # those of pytest: in a worker there are none
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        yield stream
    for each, handlers, level, propagate, disabled in before:
        each.handlers[:] = handlers
        each.setLevel(level)
        each.propagate, each.disabled = propagate, disabled


def shown(**fields: Any) -> str:
    return logs.to_line("happened", fields).removeprefix("happened ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("orders", "orders"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('answer "no"', r'"answer \"no\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nbreak\r\t", r'"line\nbreak\r\t"'),
        ("\x1b[31m", r'"\x1b[31m"'),
        pytest.param("\udc80", r'"\udc80"', id="surrogate"),
        ("\u202e\u2028", r'"\u202e\u2028"'),
        ("订单", "订单"),
        (7, "7"),
        (0.1 + 0.2, "0.3"),
        (float("inf"), "inf"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (["a", "b"], "a,b"),
        ({"a": 3, "b": 1}, "a:3,b:1"),
        ([], '""'),
        (b"raw\xff", r'"raw\\xff"'),
        (ValueError("bad"), '"ValueError: bad"'),
        (ValueError(), "ValueError"),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00+00:00"),
        (Unprintable(), '"<unprintable Unprintable>"'),
        pytest.param(10**5000, '"<unprintable int>"', id="huge"),
    ],
)
def test_a_value_is_readable_and_quoted_when_needed(value: Any, text: str) -> None:
    assert shown(value=value) == f"value={text}"


def test_long_values_are_cut() -> None:
    assert len(shown(value="x" * 10_000)) < 500
    assert shown(value="x" * 10_000).endswith("xxx...")
    assert len(shown(value=list(range(1_000_000)))) < 500


def test_a_value_that_contains_itself_is_logged() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert shown(value=endless)


@given(st.text(st.characters()))
def test_every_text_is_one_line_that_can_be_encoded(value: str) -> None:
    line = shown(value=value)

    assert len(line.splitlines()) == 1
    line.encode()
    if not set(value) & {"'", "\\"} and value.isprintable() and len(value) < 400:
        assert shlex.split(line) == [f"value={value}"] or "#" in value


def test_an_event_carries_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "duly.worker"):
        logs.event(LOGGER, logging.INFO, "queue.paused", queue="orders", name="n", level=3, logger="x")

    record = caplog.records[-1]
    assert record.getMessage() == "queue.paused queue=orders name=n level=3 logger=x"
    assert vars(record)["duly"] == {"event": "queue.paused", "queue": "orders", "name": "n", "level": 3, "logger": "x"}
    assert record.filename == "test_worker_logs.py"


def test_percent_signs_are_only_text(caplog: pytest.LogCaptureFixture) -> None:
    logs.event(LOGGER, logging.ERROR, "failed", error="100% %s %d")

    assert caplog.records[-1].getMessage() == 'failed error="100% %s %d"'


def test_nothing_is_written_out_below_the_level() -> None:
    class Counted:
        times = 0

        def __str__(self) -> str:
            Counted.times += 1
            return "x"

    logger = logging.getLogger("duly.worker.quiet")
    logger.setLevel(logging.ERROR)

    logs.event(logger, logging.INFO, "happened", value=Counted())

    assert Counted.times == 0


def test_text_lines() -> None:
    with standard_error() as stream:
        logs.configure("text", "info")
        logs.event(LOGGER, logging.INFO, "started", queues={"a": 1})
        logs.event(LOGGER, logging.DEBUG, "not shown")

    date, time, rest = stream.getvalue().split(" ", 2)
    datetime.strptime(f"{date} {time}", "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007
    assert rest == "INFO started queues=a:1\n"


def test_json_lines() -> None:
    fields: dict[str, Any] = {"queues": {"a": 1}, "nan": float("nan"), "big": 10**5000, "odd": "\udc80\n", "n": None}
    with standard_error() as stream:
        logs.configure("json", "info")
        logs.event(LOGGER, logging.INFO, "started", **fields)

    line = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert datetime.fromisoformat(line.pop("time")).utcoffset() == timedelta(0)
    assert line.pop("pid") > 0
    assert line == {
        "level": "info",
        "logger": "duly.worker",
        "event": "started",
        "fields": {"queues": {"a": 1}, "nan": "nan", "big": "<unprintable int>", "odd": "\\udc80\n", "n": None},
    }


def test_json_holds_the_exception() -> None:
    with standard_error() as stream:
        logs.configure("json", "info")
        logs.event(LOGGER, logging.ERROR, "failed", exc_info=ValueError("\udc80"))

    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue())["exception"] == "ValueError: \\udc80"


def test_records_of_other_loggers_are_json() -> None:
    with standard_error() as stream:
        logs.configure("json", "info")
        logging.getLogger("shop").warning("sold %d", 3)

    line = json.loads(stream.getvalue())
    assert (line["logger"], line["message"], "event" in line) == ("shop", "sold 3", False)


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_line_is_written_once_however_often_logging_is_set_up(format_: Any) -> None:
    with standard_error() as stream:
        logs.configure("text", "debug")
        logs.configure(format_, "info")
        logs.event(LOGGER, logging.INFO, "started")
        logs.event(LOGGER, logging.DEBUG, "not shown")

    assert stream.getvalue().count("\n") == 1


def test_logging_that_the_user_has_set_up_stays() -> None:
    own = io.StringIO()
    with standard_error() as stream:
        logging.getLogger().addHandler(logging.StreamHandler(own))
        LOGGER.disabled = True  # as logging.config.dictConfig does
        logs.configure("text", "info")
        logging.getLogger("shop").warning("theirs")
        logs.event(LOGGER, logging.INFO, "ours")

    assert own.getvalue() == "theirs\n"
    assert "theirs" not in stream.getvalue()
    assert "ours" in stream.getvalue()


def test_an_unknown_level_or_format_is_refused() -> None:
    with standard_error():
        with pytest.raises(UsageError, match="log level must be one of debug, info"):
            logs.configure("text", "loud")
        with pytest.raises(UsageError, match="log format must be one of text, json"):
            logs.configure("xml", "info")  # type: ignore[arg-type]


async def test_retries_are_summed_up_once_a_period(caplog: pytest.LogCaptureFixture) -> None:
    summary = RetrySummary(period=0.01)
    for error in ("first", "second"):
        summary.add("payments", error)
    summary.add("mails", "third")

    async with asyncio.timeout(60):
        while len(caplog.records) < 2:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)

    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        ("WARNING", "messages.retried queue=payments count=2 seconds=0.01 last_error=second"),
        ("WARNING", "messages.retried queue=mails count=1 seconds=0.01 last_error=third"),
    ]


async def test_retries_are_summed_up_when_a_worker_stops(caplog: pytest.LogCaptureFixture) -> None:
    summary = RetrySummary(period=3600)
    summary.add("payments", "first")
    summary.add("payments", "second")

    summary.close()
    summary.close()

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert re.fullmatch(
        r"messages.retried queue=payments count=2 seconds=\d\.?\d* last_error=second", record.getMessage()
    )
