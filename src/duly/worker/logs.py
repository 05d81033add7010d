"""The log of workers: one line for each change of state, for people and for programs.

`event` writes a line, and the logging that the user has set up shows it. `configure` sets logging up for the processes
of `duly worker`.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Final, Literal

from duly.errors import UsageError

LogFormat = Literal["text", "json"]

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")

LONGEST_TEXT: Final = 400
"""Characters of one value in a line of text."""
LONGEST_JSON: Final = 4000
"""Characters of one value in a line of JSON. Log collectors cut lines at 16 KiB, and the rest is not valid JSON."""
_MOST_ITEMS: Final = 100
_DEEPEST: Final = 4
_LARGEST_INTEGER: Final = 1 << 63

_NEEDS_QUOTES: Final = frozenset(' "=\\')


def event(
    logger: logging.Logger,
    level: int,
    name: str,
    /,
    *,
    exc_info: BaseException | bool | None = None,
    **fields: Any,
) -> None:
    """Log a change of state: `name key=value key="quoted value"`. `record.duly` has the fields as well."""
    if logger.isEnabledFor(level):
        extra = {"duly": {"event": name, **fields}}
        logger.log(level, to_line(name, fields), extra=extra, exc_info=exc_info, stacklevel=2)


def configure(format: LogFormat = "text", level: str = "info") -> None:  # noqa: A002 - as the option is called
    """Write the lines to standard error. Call it after the import of the user's module, whose own setup stays."""
    chosen = _read_level(level)
    if format not in FORMATS:
        raise UsageError(f"the log format must be one of {', '.join(FORMATS)}, not {format!r}")
    handler = _Handler(sys.stderr)
    handler.setFormatter(_JsonLines() if format == "json" else _TextLines())
    _install(logging.getLogger("duly"), handler, chosen)
    _install(logging.getLogger(), handler, chosen)
    logging.getLogger("duly").propagate = False
    for name in ("duly", "duly.worker"):
        logging.getLogger(name).disabled = False  # logging.config.dictConfig disables all that it does not name


class _Handler(logging.StreamHandler[Any]):
    """The handler that `configure` installs: its type differs from those of the user."""


def _read_level(level: str) -> int:
    if str(level).lower() not in LEVELS:
        raise UsageError(f"the log level must be one of {', '.join(LEVELS)}, not {level!r}")
    return logging.getLevelNamesMapping()[level.upper()]


def _install(logger: logging.Logger, handler: logging.Handler, level: int) -> None:
    for old in [each for each in logger.handlers if isinstance(each, _Handler)]:
        logger.removeHandler(old)
    if not logger.handlers:
        logger.addHandler(handler)
        logger.setLevel(level)


class _TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Write one line: unprintable characters must neither begin another nor move the cursor."""
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
        }
        fields = getattr(record, "duly", None)
        if isinstance(fields, Mapping) and "event" in fields:
            line["event"] = _to_json(fields["event"])
            line["fields"] = _to_json({key: value for key, value in fields.items() if key != "event"})
        else:
            line["message"] = _cut(_encodable(record.getMessage()), LONGEST_JSON)
        if record.exc_info:
            line["exception"] = _encodable(self.formatException(record.exc_info))
        return json.dumps(line)  # ASCII: the stream's encoding cannot break it


def to_line(name: str, fields: Mapping[str, Any]) -> str:
    """Write an event as one line of text."""
    return " ".join([name, *(f"{key}={_quote(_to_text(value))}" for key, value in fields.items())])


def _quote(text: str) -> str:
    text = _cut(text, LONGEST_TEXT)
    if text and text.isprintable() and _NEEDS_QUOTES.isdisjoint(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else _escape(each) for each in escaped) + '"'


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _to_text(value: Any, depth: int = 0) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(round(value, 6))
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return ",".join(f"{_to_text(k, depth + 1)}:{_to_text(v, depth + 1)}" for k, v in _some(value.items()))
    if isinstance(value, list | tuple | AbstractSet) and depth < _DEEPEST:
        return ",".join(_to_text(each, depth + 1) for each in _some(value))
    return _to_word(value)


def _to_json(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < _LARGEST_INTEGER):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)  # JSON has no infinity
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return {_encodable(_to_word(k)): _to_json(v, depth + 1) for k, v in _some(value.items())}
    if isinstance(value, list | tuple | AbstractSet) and depth < _DEEPEST:
        return [_to_json(each, depth + 1) for each in _some(value)]
    return _cut(_encodable(_to_word(value)), LONGEST_JSON)


def _to_word(value: Any) -> str:
    """Write one value. A `__str__` that raises must not break the log line."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat()
    try:
        text = str(value)
    except Exception:  # noqa: BLE001
        return f"<unprintable {type(value).__name__}>"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text


def _some(items: Any) -> list[Any]:
    return [each for each, _ in zip(items, range(_MOST_ITEMS), strict=False)]


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
