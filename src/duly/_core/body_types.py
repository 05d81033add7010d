"""Whether two types can both be read from one body: the `type=` of a queue, and the annotation of its handler."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

Form = Literal["object", "array", "text", "number", "boolean", "bytes"]

_FORMS: Final[Mapping[Any, Form]] = {
    dict: "object",
    list: "array",
    tuple: "array",
    str: "text",
    int: "number",
    float: "number",
    bool: "boolean",
    bytes: "bytes",
}


def contradict(one: Any, other: Any) -> bool:
    """Whether no body can be of both types. False where that is not certain."""
    return all(_contradict(a, b) for a in _members(one) for b in _members(other))


def name_of(kind: Any) -> str:
    """Name a type as it is written."""
    return kind.__qualname__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _contradict(one: Any, other: Any) -> bool:
    if _is_record(one) and _is_record(other):
        return not issubclass(one, other) and not issubclass(other, one)
    forms = _form_of(one), _form_of(other)
    return None not in forms and forms[0] != forms[1]


def _members(kind: Any) -> Sequence[Any]:
    """List the types that a type allows, without annotations and parameters: of a union, each member."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        return [each for member in typing.get_args(kind) for each in _members(member)]
    return [origin or kind]


def _form_of(kind: Any) -> Form | None:
    """Name the form in which bodies of a type are stored; None: it is not known for certain."""
    return "object" if _is_record(kind) else _FORMS.get(kind) if isinstance(kind, type) else None


def _is_record(kind: Any) -> bool:
    """Whether bodies of a type are JSON objects with named fields."""
    if not isinstance(kind, type):
        return False
    if issubclass(kind, msgspec.Struct):
        return not kind.__struct_config__.array_like
    is_model = hasattr(kind, "model_validate_json") and not getattr(kind, "__pydantic_root_model__", False)
    return is_model or dataclasses.is_dataclass(kind)
