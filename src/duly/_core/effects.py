"""Effects of a commit on the user's keys: the allowed commands, and checks of their arguments.

Checks that need no server are here. The script checks the rest against the keys.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from duly._core.keys import head_of
from duly.errors import UsageError
from duly.options import MAX_BATCH

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*")
"""Integers as servers read them: no -0, 01 or +1."""
_FLOAT: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_INTEGER: Final = 2**63 - 1
_FLOATS: Final = (1e-300, 1e300)
"""Other numbers but 0 are read differently by different servers."""
_LONGEST_EXPIRY: Final = {"EX": 10**10, "PX": 10**13}
_LONGEST_NUMBER: Final = 400


class Effect(NamedTuple):
    """One command on one key."""

    name: str
    key: bytes
    args: tuple[bytes, ...]


class _Misuse(Exception):
    """Why an effect is invalid."""


_Check = Callable[[Sequence[bytes]], None]


def _integer(text: bytes, what: str, *, least: int = -_MAX_INTEGER, most: int = _MAX_INTEGER) -> None:
    if len(text) > 20 or not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
        raise _Misuse(f"{what} must be a whole number from {least} to {most}, not {_shown(text)}")


def _float(text: bytes, what: str) -> None:
    if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
        raise _Misuse(f"{what} must be a number, not {_shown(text)}")
    is_zero = not text.lower().partition(b"e")[0].strip(b"-0.")  # not by the value: 1e-400 is 0 for a double
    if not (is_zero or _FLOATS[0] <= abs(float(text)) <= _FLOATS[1]):
        raise _Misuse(f"{what}={_shown(text)} is too large or too small")


def _expiry(text: bytes, unit: str) -> None:
    what = "seconds" if unit == "EX" else "milliseconds"
    _integer(text, what, least=1, most=_LONGEST_EXPIRY[unit])


def _set(args: Sequence[bytes]) -> None:
    words, seen = list(args[1:]), set()
    while words:
        word = words.pop(0).upper()
        group = {b"EX": "expiry", b"PX": "expiry", b"NX": "condition", b"XX": "condition"}.get(word)
        if group is None or group in seen:
            raise _Misuse("SET takes a value, then EX seconds or PX milliseconds, and NX or XX")
        seen.add(group)
        if group == "expiry":
            if not words:
                raise _Misuse(f"{word.decode()} needs a time")
            _expiry(words.pop(0), word.decode())


def _setex(unit: str) -> _Check:
    return lambda args: _expiry(args[0], unit)


def _pairs(args: Sequence[bytes]) -> None:
    if len(args) % 2:
        raise _Misuse("fields and values come in pairs")


def _scored(args: Sequence[bytes]) -> None:
    if len(args) % 2:
        raise _Misuse("scores and members come in pairs")
    for score in args[0::2]:
        _float(score, "the score")


def _xadd(args: Sequence[bytes]) -> None:
    rest = list(args)
    if rest[0].upper() == b"MAXLEN":
        rest.pop(0)
        if rest and rest[0] in (b"~", b"="):
            rest.pop(0)
        if rest:
            _integer(rest.pop(0), "MAXLEN", least=0)
    if len(rest) < 3 or rest[0] != b"*" or not len(rest) % 2:
        raise _Misuse("XADD takes an optional MAXLEN and a length, then * as the id, then pairs of field and value")


def _no_check(_args: Sequence[bytes]) -> None:
    """Accept any arguments."""


def _range(args: Sequence[bytes]) -> None:
    _integer(args[0], "the start")
    _integer(args[1], "the stop")


_MANY: Final = MAX_BATCH
_COMMANDS: Final[dict[str, tuple[int, int, _Check]]] = {
    "SET": (1, 4, _set),
    "SETEX": (2, 2, _setex("EX")),
    "PSETEX": (2, 2, _setex("PX")),
    "DEL": (0, 0, _no_check),
    "UNLINK": (0, 0, _no_check),
    "INCR": (0, 0, _no_check),
    "DECR": (0, 0, _no_check),
    "INCRBY": (1, 1, lambda args: _integer(args[0], "the increment")),
    "DECRBY": (1, 1, lambda args: _integer(args[0], "the decrement")),
    "INCRBYFLOAT": (1, 1, lambda args: _float(args[0], "the increment")),
    "APPEND": (1, 1, _no_check),
    "EXPIRE": (1, 1, lambda args: _expiry(args[0], "EX")),
    "PEXPIRE": (1, 1, lambda args: _expiry(args[0], "PX")),
    "PERSIST": (0, 0, _no_check),
    "HSET": (2, _MANY, _pairs),
    "HDEL": (1, _MANY, _no_check),
    "HINCRBY": (2, 2, lambda args: _integer(args[1], "the increment")),
    "HINCRBYFLOAT": (2, 2, lambda args: _float(args[1], "the increment")),
    "SADD": (1, _MANY, _no_check),
    "SREM": (1, _MANY, _no_check),
    "ZADD": (2, _MANY, _scored),
    "ZREM": (1, _MANY, _no_check),
    "ZINCRBY": (2, 2, lambda args: _float(args[0], "the increment")),
    "LPUSH": (1, _MANY, _no_check),
    "RPUSH": (1, _MANY, _no_check),
    "LREM": (2, 2, lambda args: _integer(args[0], "the count")),
    "LTRIM": (2, 2, _range),
    "XADD": (3, _MANY, _xadd),
    "PFADD": (1, _MANY, _no_check),
}
"""The commands of a commit: the least and the largest number of arguments after the key, and their check."""

COMMANDS: Final = tuple(_COMMANDS)


def checked_effects(effects: Iterable[Any] | None, namespaces: Iterable[str]) -> list[Effect]:
    """Check the effects of a commit: tuples of a command, a key and arguments. None: there are none."""
    effects = () if effects is None else effects
    if isinstance(effects, str | bytes | bytearray) or not isinstance(effects, Iterable):
        raise UsageError(f'redis= takes a list of commands like ("INCR", "orders:done"), not {shown(effects)}')
    own = tuple(map(head_of, set(namespaces)))
    found = [_checked(position, effect, own) for position, effect in enumerate(effects, 1)]
    if len(found) > MAX_BATCH:
        raise UsageError(f"a commit takes at most {MAX_BATCH} effects, not {len(found)}")
    return found


def described(position: int, effect: Effect) -> str:
    """Describe an effect, for errors."""
    return f"effect {position}, {effect.name} {_shown(effect.key)}"


def shown(value: Any) -> str:
    """Show a wrong value, for errors. Python refuses to format very long integers."""
    try:
        return repr(value)
    except ValueError:
        return f"a {type(value).__name__} with an integer of too many digits"


def _checked(position: int, effect: Any, own: tuple[bytes, ...]) -> Effect:
    if not isinstance(effect, tuple | list) or len(effect) < 2 or not isinstance(effect[0], str):
        raise UsageError(f'effect {position} must be a tuple like ("DECRBY", "stock:1", 5), not {shown(effect)}')
    name = effect[0].upper()
    try:
        return _read(name, effect, own)
    except _Misuse as misuse:
        raise UsageError(f"effect {position}, {name} {_shown(effect[1])}: {misuse}") from None


def _read(name: str, effect: Sequence[Any], own: tuple[bytes, ...]) -> Effect:
    if name not in _COMMANDS:
        raise _Misuse(f"a commit cannot use this command, only {', '.join(COMMANDS)}")
    if not isinstance(effect[1], str | bytes) or not effect[1]:
        raise _Misuse("a key is a str or bytes, and not empty")
    key, *args = map(_encoded, effect[1:])
    if key.startswith(own):
        raise _Misuse("this key belongs to Duly: use send=, or another key")
    least, most, check = _COMMANDS[name]
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise _Misuse(f"{wanted} arguments follow the key, not {len(args)}")
    check(args)
    return Effect(name, key, tuple(args))


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise _Misuse(f"{value!r} is not valid Unicode text") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Misuse(f"an argument is a str, bytes, int or float, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Misuse(f"{value!r} is not a finite number")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise _Misuse("an int must be a number of 64 bits")
    plain = float if isinstance(value, float) else int
    return plain.__repr__(value).encode()  # subclasses, like enums, may have another repr


def _shown(value: Any) -> str:
    """Show a key or an argument, shortened, for errors."""
    if not isinstance(value, str | bytes):
        return shown(value)
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
