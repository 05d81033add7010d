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


class ArgumentSpec(NamedTuple):
    """A parameter for one argument, or for any number of them."""

    name: str
    decode: Callable[[bytes], Any]
    is_required: bool


class ArgumentPlan:
    """The parameters that a task fills from a message. The worker adds the delivery, if the task wants it."""

    def __init__(self, parameters: Sequence[Parameter], kinds: Sequence[Any]) -> None:
        self._positional: list[ArgumentSpec] = []
        self._named_only: list[ArgumentSpec] = []
        self._by_name: dict[str, ArgumentSpec] = {}
        self._rest: ArgumentSpec | None = None
        self._rest_by_name: ArgumentSpec | None = None
        self._delivery: Parameter | None = None
        self._delivery_at = 0
        for parameter, kind in zip(parameters, kinds, strict=True):
            if signatures.is_delivery(kind):
                self._keep_for_delivery(parameter)
            else:
                self._add(parameter, _spec(parameter, kind))

    def _add(self, parameter: Parameter, spec: ArgumentSpec) -> None:
        if signatures.is_positional(parameter):
            self._positional.append(spec)
        elif parameter.kind is Parameter.KEYWORD_ONLY:
            self._named_only.append(spec)
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            self._by_name[parameter.name] = spec
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            self._rest = spec
        elif parameter.kind is Parameter.VAR_KEYWORD:
            self._rest_by_name = spec

    def _keep_for_delivery(self, parameter: Parameter) -> None:
        if self._delivery is not None:
            raise UsageError(f"both {self._delivery.name} and {parameter.name} are annotated as the delivery")
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise UsageError(f"{parameter.name} cannot be annotated as the delivery: there is only one")
        self._delivery = parameter
        self._delivery_at = len(self._positional)

    def fit(
        self, args: Sequence[T], kwargs: Mapping[str, T], convert: Callable[[ArgumentSpec, T], R]
    ) -> tuple[list[R], dict[str, R]]:
        """Find the parameter of each argument, and convert the argument for it. Raises Misfit."""
        count = len(self._positional)
        if len(args) > count and self._rest is None:
            raise Misfit(f"it takes {count} positional argument{'s' * (count != 1)}, not {len(args)}")
        self._check_complete(len(args), kwargs)
        positional = [convert(spec, value) for spec, value in zip(self._positional, args, strict=False)]
        if self._rest is not None:
            positional += [convert(self._rest, value) for value in args[count:]]
        named = {name: convert(self._spec_named(name, len(args)), value) for name, value in kwargs.items()}
        return positional, named

    def _check_complete(self, by_place: int, kwargs: Mapping[str, Any]) -> None:
        wanted = self._positional[by_place:] + self._named_only
        missing = [spec.name for spec in wanted if spec.is_required and not self._is_named(spec, kwargs)]
        if missing:
            raise Misfit(f"it lacks {', '.join(map(repr, missing))}")

    def _is_named(self, spec: ArgumentSpec, kwargs: Mapping[str, Any]) -> bool:
        return spec.name in kwargs and spec.name in self._by_name

    def _spec_named(self, name: str, by_place: int) -> ArgumentSpec:
        spec = self._by_name.get(name)
        if spec is not None and spec in self._positional[:by_place]:
            raise Misfit(f"{name!r} is given twice")
        if self._delivery is not None and name == self._delivery.name:
            raise Misfit(f"{name!r} is the delivery, which the worker passes")
        spec = spec or self._rest_by_name
        if spec is None:
            raise Misfit(f"it has no parameter {name!r}")
        return spec

    def inject(self, delivery: Any, positional: list[Any], named: dict[str, Any]) -> None:
        """Insert the delivery among the arguments, if the function wants it."""
        wanted = self._delivery
        if wanted is None:
            return
        if signatures.is_positional(wanted) and len(positional) >= self._delivery_at:
            positional.insert(self._delivery_at, delivery)
        elif wanted.kind is not Parameter.POSITIONAL_ONLY:
            named[wanted.name] = delivery


def _spec(parameter: Parameter, kind: Any) -> ArgumentSpec:
    try:
        decode = codec.json_decoder_of(kind)
    except UsageError as error:
        raise UsageError(f"parameter {parameter.name!r}: {error}") from error.__cause__
    return ArgumentSpec(parameter.name, decode, signatures.is_required(parameter))


def written(spec: ArgumentSpec, value: Any) -> msgspec.Raw:
    """Encode an argument, if it fits."""
    raw = codec.encoded_json(value, f"argument {spec.name!r}")
    _decoded(spec, raw)
    return msgspec.Raw(raw)


def read(spec: ArgumentSpec, value: msgspec.Raw) -> Any:
    """Decode an argument."""
    return _decoded(spec, bytes(value))


def _decoded(spec: ArgumentSpec, raw: bytes) -> Any:
    try:
        return spec.decode(raw)
    except Exception as error:  # noqa: BLE001 - a user's validator may raise anything
        raise Misfit(f"argument {spec.name!r}: {codec.without_values(error)}") from codec.cause_of(error)
