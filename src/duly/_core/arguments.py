"""The arguments of tasks. A sender checks them by the same rules as the worker that decodes them."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, NamedTuple, TypeVar

import msgspec

from duly._core import codec, signatures
from duly.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")


class Misfit(ValueError):
    """Arguments do not fit the function's parameters."""


class Slot(NamedTuple):
    """A parameter for one argument, or for any number of them."""

    name: str
    decode: Callable[[bytes], Any]
    is_required: bool


class ArgumentPlan:
    """The parameters that a task fills from a message. The worker adds the delivery, if the task wants it."""

    def __init__(self, parameters: Sequence[Parameter], kinds: Sequence[Any]) -> None:
        self._positional: list[Slot] = []
        self._named_only: list[Slot] = []
        self._by_name: dict[str, Slot] = {}
        self._rest: Slot | None = None
        self._rest_by_name: Slot | None = None
        self._delivery: Parameter | None = None
        self._delivery_at = 0
        for parameter, kind in zip(parameters, kinds, strict=True):
            if signatures.is_delivery(kind):
                self._keep_for_delivery(parameter)
            else:
                self._add(parameter, _slot(parameter, kind))

    def _add(self, parameter: Parameter, slot: Slot) -> None:
        if signatures.is_positional(parameter):
            self._positional.append(slot)
        elif parameter.kind is Parameter.KEYWORD_ONLY:
            self._named_only.append(slot)
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            self._by_name[parameter.name] = slot
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            self._rest = slot
        elif parameter.kind is Parameter.VAR_KEYWORD:
            self._rest_by_name = slot

    def _keep_for_delivery(self, parameter: Parameter) -> None:
        if self._delivery is not None:
            raise UsageError(f"both {self._delivery.name} and {parameter.name} are annotated as the delivery")
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise UsageError(f"{parameter.name} cannot be annotated as the delivery: there is only one")
        self._delivery = parameter
        self._delivery_at = len(self._positional)

    def fit(
        self, args: Sequence[T], kwargs: Mapping[str, T], convert: Callable[[Slot, T], R]
    ) -> tuple[list[R], dict[str, R]]:
        """Find the slot of each argument, and convert the argument for it. Raises Misfit."""
        count = len(self._positional)
        if len(args) > count and self._rest is None:
            raise Misfit(f"it takes {count} positional argument{'s' * (count != 1)}, not {len(args)}")
        self._check_complete(len(args), kwargs)
        positional = [convert(slot, value) for slot, value in zip(self._positional, args, strict=False)]
        if self._rest is not None:
            positional += [convert(self._rest, value) for value in args[count:]]
        named = {name: convert(self._slot_named(name, len(args)), value) for name, value in kwargs.items()}
        return positional, named

    def _check_complete(self, by_place: int, kwargs: Mapping[str, Any]) -> None:
        wanted = self._positional[by_place:] + self._named_only
        missing = [slot.name for slot in wanted if slot.is_required and not self._is_named(slot, kwargs)]
        if missing:
            raise Misfit(f"it misses {', '.join(map(repr, missing))}")

    def _is_named(self, slot: Slot, kwargs: Mapping[str, Any]) -> bool:
        return slot.name in kwargs and slot.name in self._by_name

    def _slot_named(self, name: str, by_place: int) -> Slot:
        slot = self._by_name.get(name)
        if slot is not None and slot in self._positional[:by_place]:
            raise Misfit(f"{name!r} is given twice")
        if self._delivery is not None and name == self._delivery.name:
            raise Misfit(f"{name!r} is the delivery, which the worker passes")
        slot = slot or self._rest_by_name
        if slot is None:
            raise Misfit(f"it has no parameter {name!r}")
        return slot

    def inject(self, delivery: Any, positional: list[Any], named: dict[str, Any]) -> None:
        """Insert the delivery among the arguments, if the function wants it."""
        wanted = self._delivery
        if wanted is None:
            return
        if signatures.is_positional(wanted) and len(positional) >= self._delivery_at:
            positional.insert(self._delivery_at, delivery)
        elif wanted.kind is not Parameter.POSITIONAL_ONLY:
            named[wanted.name] = delivery


def _slot(parameter: Parameter, kind: Any) -> Slot:
    try:
        decode = codec.json_decoder_of(kind)
    except UsageError as error:
        raise UsageError(f"parameter {parameter.name!r}: {error}") from error.__cause__
    return Slot(parameter.name, decode, signatures.is_required(parameter))


def written(slot: Slot, value: Any) -> msgspec.Raw:
    """Encode an argument, if it fits."""
    raw = codec.encoded_json(value, f"argument {slot.name!r}")
    _decoded(slot, raw)
    return msgspec.Raw(raw)


def read(slot: Slot, value: msgspec.Raw) -> Any:
    """Decode an argument."""
    return _decoded(slot, bytes(value))


def _decoded(slot: Slot, raw: bytes) -> Any:
    try:
        return slot.decode(raw)
    except Exception as error:  # noqa: BLE001 - a user's validator may raise anything
        raise Misfit(f"argument {slot.name!r}: {codec.without_values(error)}") from codec.cause_of(error)
