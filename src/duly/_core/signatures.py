"""The parameters of the user's functions, and the types in their annotations.

Annotations are resolved late, when a worker starts or a task is first sent. So they may name a type that is defined
further down.
"""

import collections.abc
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final

from duly._core.delivered import Delivered
from duly.errors import UsageError

UNTYPED: Final = None
"""The type of a parameter without annotation, which takes any value."""

_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_LISTS: Final = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)


def checked_function(function: Any, what: str) -> Callable[..., Any]:
    """Raise if calling the function with a message would not run it."""
    if not callable(function) or inspect.isclass(function):
        raise UsageError(f"{what} must be a function, not {function!r}")
    called = _called(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise UsageError(f"{what} {name_of(function)} must not yield: a generator does nothing when it is called")
    return typing.cast("Callable[..., Any]", function)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine. Partials, methods and objects with an async `__call__` are recognised."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def name_of(function: Any) -> str:
    """Return the name of a function, for errors."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or f"<{type(function).__qualname__}>"


def parameters_of(function: Callable[..., Any], what: str) -> list[Parameter]:
    """List the parameters, with annotations as they are written."""
    try:
        if sys.version_info >= (3, 14):  # annotations are code there, which may fail this early
            import annotationlib

            signature = inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        else:
            signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} {name_of(function)} cannot be used: Python does not know its parameters") from error
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls") and parameters[0].default is Parameter.empty:
        raise UsageError(
            f"{what} {name_of(function)} is a method without its object: decorate a function, or register the method "
            "of an object, like orders.handler(shop.on_order)"
        )
    return parameters


def is_positional(parameter: Parameter) -> bool:
    """Whether an argument can be passed by position."""
    return parameter.kind in _POSITIONAL


def is_required(parameter: Parameter) -> bool:
    """Whether a call without it fails."""
    is_open = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return not is_open and parameter.default is Parameter.empty


def type_of(parameter: Parameter, function: Callable[..., Any], what: str) -> Any:
    """Resolve the annotation of a parameter; UNTYPED: it has none, or allows any value."""
    if parameter.annotation is Parameter.empty:
        return UNTYPED
    written = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        kind = typing.get_type_hints(written, {}, _names_seen_by(function), include_extras=True)[parameter.name]
    except Exception as error:
        shown = parameter.annotation if isinstance(parameter.annotation, str) else repr(parameter.annotation)
        raise UsageError(
            f"{what} {name_of(function)}: the annotation {shown!r} of {parameter.name!r} cannot be resolved "
            f"({type(error).__name__}: {error}). Import the type at the top of the module, so that it exists when the "
            "program runs"
        ) from error
    return UNTYPED if kind in (Any, object) else kind


def is_delivery(kind: Any) -> bool:
    """Whether a type means the delivery: Delivery, AsyncDelivery, or an optional one."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return is_delivery(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        return bool(members) and all(map(is_delivery, members))
    plain = origin or kind
    return isinstance(plain, type) and issubclass(plain, Delivered)


def body_of_delivery(kind: Any) -> Any:
    """Return the type of the body that a type of delivery names, as in `Delivery[Order]`; UNTYPED: it names none."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Annotated, typing.Union, types.UnionType):
        named = [body_of_delivery(each) for each in args if is_delivery(each)]
        return next((each for each in named if each is not UNTYPED), UNTYPED)
    return _narrowing(args[0]) if args and is_delivery(kind) else UNTYPED


def is_list(kind: Any) -> bool:
    """Whether a type is a list."""
    return (typing.get_origin(kind) or kind) in _LISTS


def item_of(kind: Any) -> Any:
    """Return the type of a list's items."""
    (item,) = typing.get_args(kind) or (UNTYPED,)
    return _narrowing(item)


def _narrowing(kind: Any) -> Any:
    """Return a type, or UNTYPED for one that allows every value."""
    return UNTYPED if kind in (Any, object) or isinstance(kind, typing.TypeVar) else kind


def _called(function: Any) -> Any:
    """Find the code that runs first when this is called."""
    while isinstance(function, functools.partial | staticmethod | types.MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if inspect.isfunction(function):
        return function
    call = getattr(type(function), "__call__", None)  # noqa: B004 - it is the method we want
    return call if inspect.isfunction(call) else function


def _names_seen_by(function: Any) -> Mapping[str, Any]:
    """Collect the names that annotations may use: those in the function's scope, then those of Duly."""
    written = _called(function)
    while hasattr(written, "__wrapped__"):
        written = _called(written.__wrapped__)
    code, cells = getattr(written, "__code__", None), getattr(written, "__closure__", None) or ()
    enclosing = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            enclosing[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    parameters = {parameter.__name__: parameter for parameter in getattr(written, "__type_params__", ())}
    return {**_names_of_duly(), **getattr(written, "__globals__", {}), **enclosing, **parameters}


def _names_of_duly() -> dict[str, Any]:
    """Return the names of Duly, which users may import for the type checker only."""
    package = __name__.partition(".")[0]
    return {package: sys.modules[package], "Delivery": Delivered, "AsyncDelivery": Delivered}
