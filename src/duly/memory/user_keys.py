"""Keys of the user in `memory://`: as much of Redis as a commit may use, and no more."""

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any, Final, Literal

from duly._core.effects import Effect

Kind = Literal["string", "hash", "set", "zset", "list", "stream"]

_DIGITS: Final = 700
"""Enough for the sum of the largest and the smallest number that an effect may add."""
_DECIMALS: Final = Decimal(1).scaleb(-17)
_EMPTY: Final[dict[str, Any]] = {"hash": dict, "set": set, "zset": dict, "list": list, "stream": list}


class HyperLogLog(set[bytes]):
    """What PFADD makes: here it counts exactly."""


@dataclass
class Value:
    """What a key holds. Times are milliseconds of the server's clock."""

    kind: Kind
    content: Any
    ends: int | None = None
    """When it expires."""
    last_id: tuple[int, int] = field(default=(0, 0))
    """Of a stream."""


class UserKeys:
    """A store of keys. It believes what it is told: whether a command can be carried out is asked before."""

    def __init__(self) -> None:
        self._values: dict[bytes, Value] = {}

    def find(self, key: bytes, now: int) -> Value | None:
        """Give what a key holds, unless it has expired."""
        value = self._values.get(key)
        if value is not None and value.ends is not None and value.ends <= now:
            del self._values[key]
            return None
        return value

    def clear(self) -> None:
        """Remove all."""
        self._values.clear()

    def run(self, effect: Effect, now: int) -> None:
        """Carry one command out."""
        value = self.find(effect.key, now)
        getattr(self, f"_{_GROUPS.get(effect.name, effect.name.lower())}")(effect, value, now)
        value = self._values.get(effect.key)
        if value is not None and value.kind not in ("string", "stream") and not value.content:
            del self._values[effect.key]

    def _made(self, key: bytes, value: Value | None, kind: Kind, content: Any = None) -> Value:
        if value is None:
            value = self._values[key] = Value(kind, _EMPTY[kind]() if content is None else content)
        return value

    # Any kind

    def _set(self, effect: Effect, value: Value | None, now: int) -> None:
        text, *words = effect.args
        options = [word.upper() for word in words]
        if (b"NX" in options and value is not None) or (b"XX" in options and value is None):
            return
        ends = None
        for unit, factor in ((b"EX", 1000), (b"PX", 1)):
            if unit in options:
                ends = now + int(options[options.index(unit) + 1]) * factor
        self._values[effect.key] = Value("string", text, ends)

    def _setex(self, effect: Effect, _value: Value | None, now: int) -> None:
        factor = 1000 if effect.name == "SETEX" else 1
        self._values[effect.key] = Value("string", effect.args[1], now + int(effect.args[0]) * factor)

    def _del(self, effect: Effect, _value: Value | None, _now: int) -> None:
        self._values.pop(effect.key, None)

    def _expire(self, effect: Effect, value: Value | None, now: int) -> None:
        if value is not None:
            value.ends = now + int(effect.args[0]) * (1000 if effect.name == "EXPIRE" else 1)

    def _persist(self, _effect: Effect, value: Value | None, _now: int) -> None:
        if value is not None:
            value.ends = None

    # Strings

    def _incrby(self, effect: Effect, value: Value | None, _now: int) -> None:
        number = int(effect.args[0]) if effect.args else 1
        made = self._made(effect.key, value, "string", b"0")
        made.content = b"%d" % (int(made.content) + (-number if effect.name.startswith("DECR") else number))

    def _incrbyfloat(self, effect: Effect, value: Value | None, _now: int) -> None:
        made = self._made(effect.key, value, "string", b"0")
        made.content = _summed(made.content, effect.args[0])

    def _append(self, effect: Effect, value: Value | None, _now: int) -> None:
        made = self._made(effect.key, value, "string", b"")
        if effect.args[0]:
            made.content = (b"HYLL" if isinstance(made.content, HyperLogLog) else made.content) + effect.args[0]

    def _pfadd(self, effect: Effect, value: Value | None, _now: int) -> None:
        self._made(effect.key, value, "string", HyperLogLog()).content.update(effect.args)

    # Hashes, sets, sorted sets, lists, streams

    def _hset(self, effect: Effect, value: Value | None, _now: int) -> None:
        fields = self._made(effect.key, value, "hash").content
        fields.update(zip(effect.args[0::2], effect.args[1::2], strict=True))

    def _hincrby(self, effect: Effect, value: Value | None, _now: int) -> None:
        fields = self._made(effect.key, value, "hash").content
        field_, number = effect.args
        fields[field_] = b"%d" % (int(fields.get(field_, b"0")) + int(number))

    def _hincrbyfloat(self, effect: Effect, value: Value | None, _now: int) -> None:
        fields = self._made(effect.key, value, "hash").content
        field_, number = effect.args
        fields[field_] = _summed(fields.get(field_, b"0"), number)

    def _sadd(self, effect: Effect, value: Value | None, _now: int) -> None:
        self._made(effect.key, value, "set").content.update(effect.args)

    def _remove(self, effect: Effect, value: Value | None, _now: int) -> None:
        """Do HDEL, SREM and ZREM."""
        for member in effect.args if value is not None else ():
            if value is not None and value.kind == "set":
                value.content.discard(member)
            elif value is not None:
                value.content.pop(member, None)

    def _zadd(self, effect: Effect, value: Value | None, _now: int) -> None:
        scores = self._made(effect.key, value, "zset").content
        for score, member in zip(effect.args[0::2], effect.args[1::2], strict=True):
            scores[member] = float(score)

    def _zincrby(self, effect: Effect, value: Value | None, _now: int) -> None:
        scores = self._made(effect.key, value, "zset").content
        added, member = effect.args
        scores[member] = scores.get(member, 0.0) + float(added)

    def _lpush(self, effect: Effect, value: Value | None, _now: int) -> None:
        self._made(effect.key, value, "list").content[:0] = reversed(effect.args)

    def _rpush(self, effect: Effect, value: Value | None, _now: int) -> None:
        self._made(effect.key, value, "list").content.extend(effect.args)

    def _lrem(self, effect: Effect, value: Value | None, _now: int) -> None:
        if value is None:
            return
        count, element = int(effect.args[0]), effect.args[1]
        found = [at for at, each in enumerate(value.content) if each == element]
        gone = set(found[count:] if count < 0 else found[: count or None])
        value.content = [each for at, each in enumerate(value.content) if at not in gone]

    def _ltrim(self, effect: Effect, value: Value | None, _now: int) -> None:
        if value is None:
            return
        length = len(value.content)
        start, stop = (max(number + length, 0) if number < 0 else number for number in map(int, effect.args))
        if int(effect.args[1]) < -length:
            stop = -1
        value.content = value.content[start : stop + 1]

    def _xadd(self, effect: Effect, value: Value | None, now: int) -> None:
        stream = self._made(effect.key, value, "stream")
        last_ms, last_sequence = stream.last_id
        stream.last_id = (now, 0) if now > last_ms else (last_ms, last_sequence + 1)
        begin = effect.args.index(b"*") + 1
        fields = dict(zip(effect.args[begin::2], effect.args[begin + 1 :: 2], strict=True))
        stream.content.append((b"%d-%d" % stream.last_id, fields))
        if begin > 1:  # MAXLEN [~ | =] length; here always exact
            length = int(effect.args[begin - 2])
            stream.content = stream.content[-length:] if length else []


_GROUPS: Final = {
    "PSETEX": "setex", "UNLINK": "del", "PEXPIRE": "expire", "INCR": "incrby", "DECR": "incrby", "DECRBY": "incrby",
    "HDEL": "remove", "SREM": "remove", "ZREM": "remove",
}  # fmt: skip
"""Commands that are carried out by the method of another."""


def _decimal(text: bytes) -> Decimal:
    """Read a number. That of a 0 may have an exponent beyond all decimal numbers."""
    return Decimal(text.decode()) if float(text) else Decimal(0)


def _summed(text: bytes, added: bytes) -> bytes:
    """Add decimal numbers and write the sum as a server does: at most 17 decimals, no zeros behind them."""
    with localcontext() as context:
        context.prec = _DIGITS
        total = (_decimal(text) + _decimal(added)).quantize(_DECIMALS)
        written = format(total, "f").rstrip("0").rstrip(".")
    return b"0" if written == "-0" else written.encode()
