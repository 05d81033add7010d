"""Cron expressions: parse them, and find the minutes that they match in a time zone.

Section 16 of the protocol has the rules. Public times are microseconds since the epoch; internal ones mostly minutes.
"""

from calendar import monthrange
from collections.abc import Iterator
from datetime import MAXYEAR, UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = _EPOCH.toordinal()
_MINUTE: Final = 60_000_000
_DAY: Final = 24 * 60
_MAX_YEARS_WITHOUT_A_MATCH: Final = 50
"""An expression that matches no day for this long never does. 29 February on a Monday may take 40 years."""

_LAST: Final = 0
"""The occurrence of a weekday that is the last in its month; the others count from 1."""


class _Field(NamedTuple):
    title: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def read(self, text: str) -> set[int]:
        """Read a list of numbers, names, ranges and steps."""
        return {number for term in text.split(",") for number in self._term(term)}

    def _term(self, term: str) -> range:
        """Read `*`, `a` or `a-b`, each with a step or without. `a/n` goes on to the end of the field."""
        numbers, slash, step = term.partition("/")
        if numbers == "*":
            first, last = self.least, self.most
        else:
            begin, dash, end = numbers.partition("-")
            first = self.number(begin, term)
            last = self.number(end, term) if dash else self.most if slash else first
        if last < first:
            raise ValueError(f"{self.title} {term!r}: {last} is before {first}")
        return range(first, last + 1, self.step(step, term) if slash else 1)

    def number(self, text: str, term: str) -> int:
        """Read a number of this field, or a name for it."""
        if text in self.names:
            return self.least + self.names.index(text)
        wanted = f"a number from {self.least} to {self.most}"
        if self.names:
            wanted += f", or a name from {self.names[0]} to {self.names[-1]}"
        return self._checked(text, range(self.least, self.most + 1), term, wanted)

    def step(self, text: str, term: str) -> int:
        """Read the number behind a slash."""
        return self._checked(text, range(1, 10**9), term, "a step of 1 or more")

    def occurrence(self, text: str, term: str) -> int:
        """Read the number behind a `#`."""
        return self._checked(text, range(1, 6), term, "an occurrence from 1 to 5")

    def _checked(self, text: str, allowed: range, term: str, wanted: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() else None
        if number is None or number not in allowed:
            raise ValueError(f"{self.title} {term!r}: {text!r} is not {wanted}")
        return number


_MINUTES: Final = _Field("minute", 0, 59)
_HOURS: Final = _Field("hour", 0, 23)
_DAYS: Final = _Field("day of month", 1, 31)
_MONTHS: Final = _Field(
    "month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
)
_WEEKDAYS: Final = _Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
"""0 and 7 are both Sunday."""


class Expression:
    """A cron expression of five fields. Raises ValueError if it is invalid."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = text.upper().split()
        self.minutes = sorted(_MINUTES.read(minute))
        self.hours = sorted(_HOURS.read(hour))
        self.months = sorted(_MONTHS.read(month))
        self.is_time_of_day = not minute.startswith("*") and not hour.startswith("*")
        self._read_days(day)
        self._read_weekdays(weekday)
        self._needs_both = day.startswith("*") or weekday.startswith("*")

    def _read_days(self, text: str) -> None:
        terms = text.split(",")
        numbers = [term for term in terms if term not in {"L", "LW"}]
        self._days = _DAYS.read(",".join(numbers)) if numbers else set[int]()
        self._has_last_day = "L" in terms
        self._has_last_workday = "LW" in terms

    def _read_weekdays(self, text: str) -> None:
        self._weekdays = set[int]()
        self._occurrences = set[tuple[int, int]]()
        for term in text.split(","):
            name, hash_sign, occurrence = term.partition("#")
            if hash_sign:
                self._occurrences.add((_WEEKDAYS.number(name, term) % 7, _WEEKDAYS.occurrence(occurrence, term)))
            elif term.endswith("L") and term[:-1].isdigit():
                self._occurrences.add((_WEEKDAYS.number(term[:-1], term) % 7, _LAST))
            else:
                self._weekdays |= {number % 7 for number in _WEEKDAYS.read(term)}

    def has_date(self, day: date) -> bool:
        """Whether the day of month, the month and the day of week match."""
        if day.month not in self.months:
            return False
        if self._needs_both:
            return self._has_day(day) and self._has_weekday(day)
        return self._has_day(day) or self._has_weekday(day)

    def _has_day(self, day: date) -> bool:
        if day.day in self._days:
            return True
        if not (self._has_last_day or self._has_last_workday):
            return False
        first_weekday, last = monthrange(day.year, day.month)
        weekend = max(0, (first_weekday + last - 1) % 7 - 4)  # 1: the month ends on a Saturday, 2: on a Sunday
        return (self._has_last_day and day.day == last) or (self._has_last_workday and day.day == last - weekend)

    def _has_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if weekday in self._weekdays:
            return True
        if not self._occurrences:
            return False
        is_last = day.day + 7 > monthrange(day.year, day.month)[1]
        return (weekday, (day.day + 6) // 7) in self._occurrences or (is_last and (weekday, _LAST) in self._occurrences)

    def dates_from(self, first: date) -> Iterator[date]:
        """Yield the dates that match. The work is bounded: months that do not match are skipped as a whole."""
        last_found = first.year
        for year in range(first.year, MAXYEAR + 1):
            if year > last_found + _MAX_YEARS_WITHOUT_A_MATCH:
                return
            for month in self.months:
                if (year, month) < (first.year, first.month):
                    continue
                for number in range(1, monthrange(year, month)[1] + 1):
                    day = date(year, month, number)
                    if day >= first and self.has_date(day):
                        last_found = year
                        yield day


class Calendar:
    """The minutes that a cron expression matches in a time zone."""

    def __init__(self, expression: Expression, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone

    def after(self, us: int) -> Iterator[int]:
        """Yield the runs after a point in time."""
        first = us // _MINUTE + 1
        for day in self._days_from(first // _DAY):
            for minute in self._in_day(day, max(first, day * _DAY)):
                yield minute * _MINUTE

    def newest(self, after: int, until: int) -> int | None:
        """Find the last run in (after, until], by halving: there may be millions of them."""
        low, high = after, until
        if (found := self._next_until(low, until)) is None:
            return None
        while high - low > _MINUTE:
            middle = (low + high) // 2
            later = self._next_until(middle, until)
            if later is None:
                high = middle
            else:
                low, found = later, later
        later = self._next_until(low, until)
        return found if later is None else later

    def _next_until(self, after: int, until: int) -> int | None:
        run = next(self.after(after), None)
        return run if run is not None and run <= until else None

    def _days_from(self, first: int) -> Iterator[int]:
        """Yield the days of UTC, counted from the epoch, that a matching date may overlap."""
        done = first - 1
        for found in self._expression.dates_from(date.fromordinal(_FIRST_DAY + first - 1)):
            middle = found.toordinal() - _FIRST_DAY
            for day in range(max(middle - 1, done + 1), middle + 2):
                done = day
                yield day

    def _in_day(self, day: int, begin: int) -> Iterator[int]:
        """Yield the matching minutes of a day of UTC, from `begin` on.

        A change of the offset on the day before matters as well: local times may still repeat. A second change within
        the two days would go unnoticed, but no zone has had two within a week since 1972.
        """
        end = (day + 1) * _DAY
        old, new = self._offset((day - 1) * _DAY), self._offset(end)
        if old == new:
            yield from self._steady(begin, end, old)
            return
        change = self._change((day - 1) * _DAY, end, old)
        yield from self._steady(begin, min(end, change), old)
        begin = max(begin, change)
        if self._expression.is_time_of_day:
            skipped = self._steady(change, change + new - old, old)
            if begin == change < end and any(True for _ in skipped):
                yield change
                begin += 1
            begin = max(begin, change + old - new)  # until then, local times repeat
        yield from self._steady(begin, end, new)

    def _steady(self, begin: int, end: int, offset: int) -> Iterator[int]:
        """Yield the matching minutes in [begin, end), with local time `offset` minutes ahead of UTC."""
        expression = self._expression
        for day in range((begin + offset) // _DAY, (end - 1 + offset) // _DAY + 1):
            if not expression.has_date(date.fromordinal(_FIRST_DAY + day)):
                continue
            for hour in expression.hours:
                start = day * _DAY + hour * 60 - offset
                if start + 59 >= begin and start < end:
                    yield from (start + minute for minute in expression.minutes if begin <= start + minute < end)

    def _change(self, low: int, high: int, old: int) -> int:
        """Find the first minute in (low, high] with another offset, by halving."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == old else (low, middle)
        return high

    def _offset(self, minute: int) -> int:
        """Return the minutes that local time is ahead of UTC. No offset has had seconds since 1972."""
        moment = _EPOCH + timedelta(minutes=minute)
        return (moment.astimezone(self._zone).utcoffset() or timedelta()) // timedelta(minutes=1)
