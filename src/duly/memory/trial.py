"""Tries the effects of a commit before the first one is applied, as lib/effects.lua does, with the same answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from duly._core.effects import Effect
from duly.memory.user_keys import HyperLogLog, UserKeys

_SAFE_INTEGER: Final = float(2**63 - 2**32)
_SAFE_FLOAT: Final = 1e300
_LONGEST_NUMBER: Final = 400
_LONGEST_STRING: Final = 512 << 20
_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*")
_FLOAT: Final = re.compile(rb"-?([0-9]+(?:\.[0-9]+)?)(?:[eE][+-]?[0-9]+)?")
_MAY_EMPTY: Final = frozenset({"HDEL", "SREM", "ZREM", "LREM", "LTRIM"})
_KINDS: Final = {
    **dict.fromkeys(("INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "APPEND", "PFADD"), "string"),
    **dict.fromkeys(("HSET", "HDEL", "HINCRBY", "HINCRBYFLOAT"), "hash"),
    **dict.fromkeys(("SADD", "SREM"), "set"),
    **dict.fromkeys(("ZADD", "ZREM", "ZINCRBY"), "zset"),
    **dict.fromkeys(("LPUSH", "RPUSH", "LREM", "LTRIM"), "list"),
    "XADD": "stream",
}


def _float_of(text: bytes) -> float | None:
    found = _FLOAT.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if found is None:
        return None
    number = float(text)
    return number if number or not found[1].strip(b"0.") else None  # 0 only because it is too small: an error


@dataclass
class _Cell:
    """A value that may be a number. With `made_by` and without a number, only the server knows it."""

    text: bytes = b"0"
    number: float | None = None
    made_by: str = ""
    is_log: bool = False

    def add_integer(self, added: int) -> str | None:
        if self.made_by:
            return f"what it holds after {self.made_by} is not known beforehand"
        number = self.number
        if number is None and len(self.text) <= _LONGEST_NUMBER and _INTEGER.fullmatch(self.text):
            number = float(self.text)
        if number is None or abs(number) > _SAFE_INTEGER:
            return "it does not hold an integer that surely stays within 64 bits"
        if abs(number + added) > _SAFE_INTEGER:
            return "the sum might leave 64 bits"
        self.number = number + added
        return None

    def add_float(self, added: float, name: str) -> str | None:
        number = self.number
        if self.made_by and number is None:
            return f"what it holds after {self.made_by} is not known beforehand"
        if number is None:
            number = _float_of(self.text)
        if number is None or abs(number) > _SAFE_FLOAT:
            return "it does not hold a number"
        if abs(number + added) > _SAFE_FLOAT:
            return "the sum might be too large for a number"
        self.number, self.made_by = number + added, name
        return None


@dataclass
class _View:
    """The expected state of a key at the time of an effect."""

    kind: str = "none"
    cell: _Cell = field(default_factory=_Cell)
    cells: dict[bytes, _Cell] = field(default_factory=dict)
    length: int = 0
    may_be_gone: bool = False

    def renew(self, kind: str, text: bytes = b"0") -> None:
        self.kind, self.cell, self.cells, self.may_be_gone = kind, _Cell(text), {}, False

    def lengthen(self, text: bytes) -> str | None:
        self.length += len(text)
        return "the text might become too long" if self.length > _LONGEST_STRING else None


class Trial:
    """Views of keys, on which effects are tried in their order. Nothing is changed."""

    def __init__(self, keys: UserKeys, now: int) -> None:
        self._keys = keys
        self._now = now
        self._views: dict[bytes, _View] = {}

    def problem(self, effect: Effect) -> str | None:
        """Return why an effect cannot be applied after those that were tried before it."""
        view = self._views.setdefault(effect.key, self._view(effect.key))
        kind = _KINDS.get(effect.name)
        if kind is None:
            return _try_any(view, effect.name, effect.args)
        if view.kind not in ("none", kind):
            return f"it holds a {view.kind}, not a {kind}"
        problem = None
        if kind == "string":
            problem = _try_text(view, effect.name, effect.args)
        elif kind == "hash":
            problem = _try_fields(view, effect.name, effect.args)
        if effect.name in _MAY_EMPTY:
            view.may_be_gone = view.may_be_gone or view.kind != "none"
        else:
            view.kind, view.may_be_gone = kind, False
        return problem

    def _view(self, key: bytes) -> _View:
        value = self._keys.find(key, self._now)
        if value is None:
            return _View()
        if value.kind == "hash":
            return _View("hash", cells={name: _Cell(text) for name, text in value.content.items()})
        if isinstance(value.content, HyperLogLog):
            return _View("string", _Cell(b"HYLL", is_log=True))
        if value.kind == "string":
            return _View("string", _Cell(value.content), length=len(value.content))
        return _View(value.kind)


def _try_any(view: _View, name: str, args: Sequence[bytes]) -> str | None:
    if name == "SET":
        words = {word.upper() for word in args[1:]}
        if view.may_be_gone and words & {b"NX", b"XX"}:
            return "whether the key is still there by then is not known beforehand"
        if (b"NX" in words and view.kind != "none") or (b"XX" in words and view.kind == "none"):
            return None
    if name in ("SET", "SETEX", "PSETEX"):
        text = args[0 if name == "SET" else 1]
        view.renew("string", text)
        return view.lengthen(text)
    if name in ("DEL", "UNLINK"):
        view.renew("none")
    return None


def _try_text(view: _View, name: str, args: Sequence[bytes]) -> str | None:
    if name == "APPEND":
        view.cell = _Cell(made_by="APPEND")
        return view.lengthen(args[0])
    if name == "PFADD":
        if view.kind != "none" and not view.cell.is_log:
            return "it does not hold a HyperLogLog"
        view.cell = _Cell(made_by="PFADD", is_log=True)
        return None
    if name == "INCRBYFLOAT":
        return view.cell.add_float(float(args[0]), name)
    number = int(args[0]) if args else 1
    return view.cell.add_integer(-number if name.startswith("DECR") else number)


def _try_fields(view: _View, name: str, args: Sequence[bytes]) -> str | None:
    if name == "HSET":
        view.cells.update((name, _Cell(text)) for name, text in zip(args[0::2], args[1::2], strict=True))
    elif name == "HDEL":
        view.cells.update((name, _Cell()) for name in args)
    elif name == "HINCRBY":
        return view.cells.setdefault(args[0], _Cell()).add_integer(int(args[1]))
    else:
        return view.cells.setdefault(args[0], _Cell()).add_float(float(args[1]), name)
    return None
