"""Keys of the user in `memory://`: the part of Redis that a commit may use."""

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any, Final, Literal

from duly._core.effects import Effect

Kind = Literal["string", "hash", "set", "zset", "list", "stream"]

Reply = int | bytes | None

_OK: Final = b"OK"
_DIGITS: Final = 700
"""Enough for the sum of the largest and the smallest number that an effect may add."""
_DECIMALS: Final = Decimal(1).scaleb(-17)
_EMPTY: Final[dict[str, Any]] = {"hash": dict, "set": set, "zset": dict, "list": list, "stream": list}


class HyperLogLog(set[bytes]):
    """The value that PFADD makes. In memory it counts exactly."""


@dataclass
class Value:
    """The value of a key. Times are milliseconds of the server's clock."""

    kind: Kind
    content: Any
    ends: int | None = None
    """When it expires."""
    last_id: tuple[int, int] = field(default=(0, 0))
    """Of a stream."""


class UserKeys:
    """A store of keys. It does not validate commands: the caller checks beforehand whether they can be executed."""

    def __init__(self) -> None:
        self._values: dict[bytes, Value] = {}

    def find(self, key: bytes, now: int) -> Value | None:
        """Return the value of a key, unless it has expired."""
        value = self._values.get(key)
        if value is not None and value.ends is not None and value.ends <= now:
            del self._values[key]
            return None
        return value

    def clear(self) -> None:
        """Remove all keys."""
        self._values.clear()

    def run(self, effect: Effect, now: int) -> Reply:
        """Execute one command, and answer as a server does."""
        value = self.find(effect.key, now)
        reply: Reply = getattr(self, f"_{_GROUPS.get(effect.name, effect.name.lower())}")(effect, value, now)
        value = self._values.get(effect.key)
        if value is not None and value.kind not in ("string", "stream") and not value.content:
            del self._values[effect.key]
        return reply

    def _made(self, key: bytes, value: Value | None, kind: Kind, content: Any = None) -> Value:
        if value is None:
            value = self._values[key] = Value(kind, _EMPTY[kind]() if content is None else content)
        return value

    # Any kind

    def _set(self, effect: Effect, value: Value | None, now: int) -> Reply:
        text, *words = effect.args
        options = [word.upper() for word in words]
        if (b"NX" in options and value is not None) or (b"XX" in options and value is None):
            return None
        ends = None
        for unit, factor in ((b"EX", 1000), (b"PX", 1)):
            if unit in options:
                ends = now + int(options[options.index(unit) + 1]) * factor
        self._values[effect.key] = Value("string", text, ends)
        return _OK

    def _setex(self, effect: Effect, _value: Value | None, now: int) -> Reply:
        factor = 1000 if effect.name == "SETEX" else 1
        self._values[effect.key] = Value("string", effect.args[1], now + int(effect.args[0]) * factor)
        return _OK

    def _del(self, effect: Effect, _value: Value | None, _now: int) -> Reply:
        return int(self._values.pop(effect.key, None) is not None)

    def _expire(self, effect: Effect, value: Value | None, now: int) -> Reply:
        if value is not None:
            value.ends = now + int(effect.args[0]) * (1000 if effect.name == "EXPIRE" else 1)
        return int(value is not None)

    def _persist(self, _effect: Effect, value: Value | None, _now: int) -> Reply:
        if value is None or value.ends is None:
            return 0
        value.ends = None
        return 1

    # Strings

    def _incrby(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        number = int(effect.args[0]) if effect.args else 1
        made = self._made(effect.key, value, "string", b"0")
        total = int(made.content) + (-number if effect.name.startswith("DECR") else number)
        made.content = b"%d" % total
        return total

    def _incrbyfloat(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        made = self._made(effect.key, value, "string", b"0")
        made.content = _summed(made.content, effect.args[0])
        return bytes(made.content)

    def _append(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        made = self._made(effect.key, value, "string", b"")
        if effect.args[0]:
            made.content = (b"HYLL" if isinstance(made.content, HyperLogLog) else made.content) + effect.args[0]
        return len(made.content)

    def _pfadd(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        seen = self._made(effect.key, value, "string", HyperLogLog()).content
        is_new = value is None or not seen.issuperset(effect.args)
        seen.update(effect.args)
        return int(is_new)

    # Hashes, sets, sorted sets, lists, streams

    def _hset(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        fields = self._made(effect.key, value, "hash").content
        before = len(fields)
        fields.update(zip(effect.args[0::2], effect.args[1::2], strict=True))
        return len(fields) - before

    def _hincrby(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        fields = self._made(effect.key, value, "hash").content
        field_, number = effect.args
        total = int(fields.get(field_, b"0")) + int(number)
        fields[field_] = b"%d" % total
        return total

    def _hincrbyfloat(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        fields = self._made(effect.key, value, "hash").content
        field_, number = effect.args
        fields[field_] = _summed(fields.get(field_, b"0"), number)
        return bytes(fields[field_])

    def _sadd(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        members = self._made(effect.key, value, "set").content
        before = len(members)
        members.update(effect.args)
        return len(members) - before

    def _remove(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        """Do HDEL, SREM and ZREM."""
        if value is None:
            return 0
        before = len(value.content)
        for member in effect.args:
            if value.kind == "set":
                value.content.discard(member)
            else:
                value.content.pop(member, None)
        return before - len(value.content)

    def _zadd(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        scores = self._made(effect.key, value, "zset").content
        before = len(scores)
        for score, member in zip(effect.args[0::2], effect.args[1::2], strict=True):
            scores[member] = float(score)
        return len(scores) - before

    def _zincrby(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        scores = self._made(effect.key, value, "zset").content
        added, member = effect.args
        scores[member] = scores.get(member, 0.0) + float(added)
        return format(scores[member], ".17g").encode()

    def _lpush(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        elements = self._made(effect.key, value, "list").content
        elements[:0] = reversed(effect.args)
        return len(elements)

    def _rpush(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        elements = self._made(effect.key, value, "list").content
        elements.extend(effect.args)
        return len(elements)

    def _lrem(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        if value is None:
            return 0
        count, element = int(effect.args[0]), effect.args[1]
        found = [at for at, each in enumerate(value.content) if each == element]
        gone = set(found[count:] if count < 0 else found[: count or None])
        value.content = [each for at, each in enumerate(value.content) if at not in gone]
        return len(gone)

    def _ltrim(self, effect: Effect, value: Value | None, _now: int) -> Reply:
        if value is None:
            return _OK
        length = len(value.content)
        start, stop = (max(number + length, 0) if number < 0 else number for number in map(int, effect.args))
        if int(effect.args[1]) < -length:
            stop = -1
        value.content = value.content[start : stop + 1]
        return _OK

    def _xadd(self, effect: Effect, value: Value | None, now: int) -> Reply:
        stream = self._made(effect.key, value, "stream")
        last_ms, last_sequence = stream.last_id
        stream.last_id = (now, 0) if now > last_ms else (last_ms, last_sequence + 1)
        begin = effect.args.index(b"*") + 1
        fields = dict(zip(effect.args[begin::2], effect.args[begin + 1 :: 2], strict=True))
        stream.content.append((b"%d-%d" % stream.last_id, fields))
        if begin > 1:  # MAXLEN [~ | =] length; here always exact
            length = int(effect.args[begin - 2])
            stream.content = stream.content[-length:] if length else []
        return b"%d-%d" % stream.last_id


_GROUPS: Final = {
    "PSETEX": "setex", "UNLINK": "del", "PEXPIRE": "expire", "INCR": "incrby", "DECR": "incrby", "DECRBY": "incrby",
    "HDEL": "remove", "SREM": "remove", "ZREM": "remove",
}  # fmt: skip
"""Commands that the method of another command executes."""


def _decimal(text: bytes) -> Decimal:
    """Read a number. A 0 may have an exponent beyond all decimal numbers."""
    return Decimal(text.decode()) if float(text) else Decimal(0)


def _summed(text: bytes, added: bytes) -> bytes:
    """Add decimal numbers and write the sum as a server does: at most 17 decimals, no trailing zeros."""
    with localcontext() as context:
        context.prec = _DIGITS
        total = (_decimal(text) + _decimal(added)).quantize(_DECIMALS)
        written = format(total, "f").rstrip("0").rstrip(".")
    return b"0" if written == "-0" else written.encode()
