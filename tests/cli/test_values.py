"""Parsing of arguments: any text becomes a value or raises UsageError."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.cli import values
from duly.errors import UsageError
from duly.options import MAX_DELAY


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("1w", 604800),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (" 2H ", 7200),
        ("0", 0),
        ("12.5", 12.5),
        ("1e3", 1000),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert values.duration(text, "--delay") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5", "-5s", "5x", "5 minutes", "nan", "inf", "1e999", "9" * 400 + "d"])
def test_an_invalid_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--delay: '.*' is not a duration\. Write 500ms, 30s, 5m, 2h, 1d, 1h30m"):
        values.duration(text, "--delay")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01T09:00+08:00", datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(hours=8)))),
        ("2026-12-01 09:00:00.5Z", datetime(2026, 12, 1, 9, 0, 0, 500000, tzinfo=UTC)),
        ("1796000000", 1796000000.0),
        ("1796000000.25", 1796000000.25),
        ("100000000", 100000000.0),
        ("99999999999", 99999999999.0),
    ],
)
def test_times_are_read(text: str, moment: datetime | float) -> None:
    assert values.moment(text, "--at") == moment


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-12-01T09:00", "has no zone. Add it, like 2026-12-01T09:00+08:00, or Z for UTC"),
        ("2026-12-01", "has no zone. Add it, like 2026-12-01T00:00+08:00, or Z for UTC"),
        ("tomorrow", "is not a time. Write it like 2026-12-01T09:00+08:00"),
        ("", "is not a time"),
        ("2026-13-01T09:00Z", "is not a time"),
    ],
)
def test_an_invalid_time_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        values.moment(text, "--at")
    assert words in str(caught.value)


@pytest.mark.parametrize("read", [values.moment, values.aware_moment], ids=["moment", "aware_moment"])
@pytest.mark.parametrize(
    "text", ["20261201", "2026", "0", "-1796000000", "202612010900", "1796000000000", "nan", "inf", "1e300", "-1e300"]
)
def test_an_unlikely_number_of_seconds_is_refused(read: Callable[[str, str], datetime | float], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, "POSITION")
    hint = "It looks like milliseconds: divide it by 1000. " if len(text) == 13 else ""
    assert str(caught.value) == (
        f"POSITION: {text!r} is not a time: seconds since the epoch have 9 to 11 digits. {hint}"
        "Write a date like 2026-12-01T09:00+08:00"
    )


@pytest.mark.parametrize("text", ["1e10", "600w", "9" * 300])
def test_a_duration_of_more_than_ten_years_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--interval: '.*' is more than ten years$"):
        values.duration(text, "--interval")
    assert values.duration("520w", "--interval") == 520 * 7 * 86400


def test_headers_are_pairs_and_values_may_contain_anything() -> None:
    assert values.headers(None) is None
    assert values.headers(["a=b=c", "empty=", "name=x y"]) == {"a": "b=c", "empty": "", "name": "x y"}


@pytest.mark.parametrize("pair", ["plain", "=value", ""])
def test_an_invalid_header_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match=r"is not a header\. Write NAME=VALUE"):
        values.headers([pair])


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ('{"a":', "looks like JSON but is not"),
        ("[1,", "--text sends it as it is"),
        ('"open', "looks like JSON"),
        ("@missing", "the body cannot be read from 'missing': No such file or directory"),
        ("@.", "Is a directory"),
        ("@a\0b", "the body cannot be read"),
        ("\udcff", "neither JSON nor UTF-8 text. --bytes sends it as it is"),
    ],
)
def test_a_body_that_begins_like_json_but_is_invalid_is_refused(typed: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        values.body(typed)
    assert words in str(caught.value)


def test_a_file_of_bytes_is_sent_unchanged_by_line_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\xff\n\n17\r\nx")

    assert values.body(f"@{file}", as_bytes=True) == b"\xff\n\n17\r\nx"
    assert list(values.bodies_by_line(f"@{file}", 1, as_bytes=True)) == [[(1, b"\xff")], [(3, b"17")], [(4, b"x")]]
    with pytest.raises(UsageError, match=r"^line 1: the body is neither JSON"):
        list(values.bodies_by_line(f"@{file}", 10))


def test_text_and_bytes_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="one or the other"):
        values.body("x", as_text=True, as_bytes=True)
    with pytest.raises(UsageError, match="one or the other"):
        list(values.bodies_by_line("-", 10, as_text=True, as_bytes=True))


def test_a_missing_body_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "empty").open("w+") as empty:
        for stdin in (None, empty):
            monkeypatch.setattr("sys.stdin", stdin)
            with pytest.raises(UsageError, match="there is no body"):
                values.body(None)
        assert values.body(None, as_text=True) == ""


@given(st.text())
def test_any_text_as_a_duration_time_or_header_is_parsed_or_refused(text: str) -> None:
    for read in (values.duration, values.moment, values.aware_moment):
        try:
            value = read(text, "--option")
        except UsageError as error:
            assert str(error).startswith("--option: ")  # noqa: PT017
        else:
            assert isinstance(value, datetime | float)
    try:
        found = values.headers([text])
    except UsageError:
        pass
    else:
        assert found


@given(st.text().filter(lambda text: not text.startswith("@") and text != "-"))
def test_any_text_as_a_body_is_parsed_or_refused(text: str) -> None:
    with suppress(UsageError):
        values.body(text)
    if not any("\ud800" <= one <= "\udfff" for one in text):
        assert values.body(text, as_text=True) == text


@given(st.from_regex(r"\A(\d{1,6}(\.\d{1,3})?(ms|s|m|h|d|w)){1,4}\Z"))
def test_every_sum_of_parts_is_a_duration_or_too_long(text: str) -> None:
    try:
        seconds = values.duration(text, "--delay")
    except UsageError as error:
        assert str(error).endswith("is more than ten years")  # noqa: PT017
    else:
        assert 0 <= seconds <= MAX_DELAY
