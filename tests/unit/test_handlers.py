"""Handlers: the functions that can be one, their arguments, and the errors for other functions."""

import functools
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

import duly
from duly import AsyncDelivery, Batch, CodecError, Delivery, UsageError
from duly._core import codec
from duly._core.handlers import Bound, Handler

JSON = codec.CONTENT_JSON
RAW = codec.CONTENT_BYTES
D: Any = object()
"""Stands for a delivery."""


@dataclass
class Order:
    number: int


class Point(msgspec.Struct):
    x: int


class Customer(pydantic.BaseModel):
    name: str


@pydantic.dataclasses.dataclass
class Positive:
    number: pydantic.PositiveInt


class Line(TypedDict):
    text: str


class Pair(NamedTuple):
    left: int
    right: int


@dataclass
class Basket:
    owner: Customer


class Odd:
    pass


def made(source: str, block: str = "...") -> Callable[..., Any]:
    """Make a function as a module of the user's own would."""
    names = {"duly": duly, "Delivery": Delivery, "AsyncDelivery": AsyncDelivery, "typing": typing, "Order": Order}
    exec(f"{source}: {block}", names)
    return typing.cast("Callable[..., Any]", names["on_order"])


def resolved(function: Callable[..., Any], kind: Any = None, **options: Any) -> Handler:
    handler = Handler(function, **options)
    handler.resolve(codec.decoder_of(kind))
    return handler


def bound(function: Callable[..., Any], body: bytes = b'{"number":1}', kind: Any = None) -> tuple[Any, ...]:
    call = resolved(function, kind).bind(JSON, body, D)
    assert call == Bound(function, call.args, {})
    return call.args


# Which parameters it gets

BODY: Any = {"number": 1}
SHAPES: list[tuple[str, tuple[Any, ...]]] = [
    ("def on_order(body)", (BODY,)),
    ("def on_order(body, d)", (BODY, D)),
    ("def on_order(body, anything)", (BODY, D)),
    ("def on_order(body, d=None)", (BODY, D)),
    ("def on_order(body, /, d)", (BODY, D)),
    ("def on_order(body, times=3)", (BODY,)),
    ("def on_order(body, times: int = 3)", (BODY,)),
    ("def on_order(body, d, times=3)", (BODY, D)),
    ("def on_order(body, *, times=3)", (BODY,)),
    ("def on_order(*args, **kwargs)", (BODY,)),
    ("def on_order(body: object, d: typing.Any)", (BODY, D)),
    ("def on_order(d: Delivery)", (D,)),
    ("def on_order(d: duly.AsyncDelivery)", (D,)),
    ("def on_order(d: 'Delivery')", (D,)),
    ("def on_order(d: 'duly.Delivery | None' = None)", (D,)),
    ("def on_order(d: typing.Optional[AsyncDelivery])", (D,)),
    ("def on_order(d: Delivery | AsyncDelivery)", (D,)),
    ("def on_order(d: typing.Annotated[Delivery, 'it'])", (D,)),
    ("def on_order(body, d: Delivery[typing.Any])", (BODY, D)),
    ("def on_order(d: Delivery, times=3)", (D,)),
    ("def on_order(body: Order, d: Delivery)", (Order(1), D)),
    ("def on_order(d: Delivery, body: Order)", (D, Order(1))),
    ("def on_order(d: Delivery, body)", (D, BODY)),
    ("async def on_order(body: 'Order', d: 'AsyncDelivery')", (Order(1), D)),
]


@pytest.mark.parametrize(("source", "args"), SHAPES, ids=[source for source, _ in SHAPES])
def test_parameters_are_recognised(source: str, args: tuple[Any, ...]) -> None:
    assert bound(made(source)) == args


MISSHAPEN = [
    "def on_order()",
    "def on_order(*, body)",
    "def on_order(**kwargs)",
    "def on_order(body, *, shop)",
    "def on_order(body, d, shop)",
    "def on_order(self, body)",
]


@pytest.mark.parametrize("source", MISSHAPEN)
def test_a_function_that_cannot_be_called_with_a_message_is_refused_when_decorated(source: str) -> None:
    with pytest.raises(UsageError, match="handler on_order"):
        Handler(made(source))


@pytest.mark.parametrize(
    "source", ["def on_order(body, shop: int)", "def on_order(a: Delivery, b: Delivery)", "def on_order(a, b: Order)"]
)
def test_parameters_of_no_use_are_refused_when_resolved(source: str) -> None:
    handler = Handler(made(source))

    with pytest.raises(UsageError, match=r"handler on_order: .*takes \(body\), \(body, d\)"):
        handler.resolve(codec.decoder_of(None))


@pytest.mark.parametrize("source", ["def on_order(body)", "async def on_order(body)"])
def test_generators_are_refused(source: str) -> None:
    with pytest.raises(UsageError, match="must not yield"):
        Handler(made(source, "yield"))


@pytest.mark.parametrize("thing", [None, "on_order", 5, Order])
def test_a_value_that_is_not_a_function_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match="must be a function"):
        Handler(thing)


def test_a_function_without_known_parameters_is_refused() -> None:
    with pytest.raises(UsageError, match="does not know its parameters"):
        Handler(max)


# Its kind


async def on_order(body: Order) -> None: ...


def handle(body: Order) -> None: ...


class Shop:
    async def on_order(self, body: Order) -> None: ...

    def handle(self, body: Order) -> None: ...

    @staticmethod
    async def on_static(body: Order) -> None: ...

    @classmethod
    async def on_class(cls, body: Order) -> None: ...


class AsyncCallable:
    async def __call__(self, body: Order) -> None: ...


class SyncCallable:
    def __call__(self, body: Order) -> None: ...


async def with_settings(settings: str, body: Order) -> None: ...


ASYNC: list[Any] = [
    on_order,
    Shop().on_order,
    Shop.on_static,
    Shop.__dict__["on_static"],
    Shop.on_class,
    AsyncCallable(),
    functools.partial(with_settings, "settings"),
    functools.partial(Shop().on_order),
    functools.partial(functools.partial(AsyncCallable())),
]
SYNC: list[Any] = [handle, Shop().handle, SyncCallable(), functools.partial(handle), functools.partial(SyncCallable())]


@pytest.mark.parametrize("function", ASYNC)
def test_async_functions_are_seen_in_all_their_forms(function: Any) -> None:
    handler = resolved(function)

    assert handler.is_async
    assert handler.concurrency == 100
    assert handler.bind(JSON, b'{"number":1}', D).args == (Order(1),)


@pytest.mark.parametrize("function", SYNC)
def test_plain_functions_are_seen_in_all_their_forms(function: Any) -> None:
    handler = resolved(function)

    assert not handler.is_async
    assert handler.concurrency == 16
    assert handler.bind(JSON, b'{"number":1}', D).args == (Order(1),)


def test_a_wrapper_is_read_through() -> None:
    @functools.wraps(handle)
    def wrapper(*args: Any) -> None: ...

    assert bound(wrapper) == (Order(1),)


def test_names_are_those_of_the_functions() -> None:
    names = [Handler(each).name for each in (on_order, Shop().on_order, AsyncCallable(), functools.partial(handle))]

    assert names == ["on_order", "Shop.on_order", "<AsyncCallable>", "handle"]


def test_options_are_kept() -> None:
    handler = Handler(on_order, concurrency=7, timeout=60)

    assert (handler.concurrency, handler.timeout, handler.batch, handler.retry) == (7, 60.0, None, None)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": "many"}, "concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"batch": 100}, r"duly\.Batch"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Handler(on_order, **options)


@pytest.mark.parametrize(
    "options", [{"max": 0}, {"max": 1001}, {"max": 1.5}, {"wait": -1}, {"wait": None}, {"wait": float("inf")}]
)
def test_a_bad_batch_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"Batch\."):
        Batch(**options)


# The type of the body

TYPES: list[tuple[Any, bytes, Any]] = [
    (Order, b'{"number":1}', Order(1)),
    (Point, b'{"x":1}', Point(1)),
    (Customer, b'{"name":"Li"}', Customer(name="Li")),
    (Positive, b'{"number":1}', Positive(1)),
    (Line, b'{"text":"a"}', {"text": "a"}),
    (Pair, b"[1,2]", Pair(1, 2)),
    (Basket, b'{"owner":{"name":"Li"}}', Basket(Customer(name="Li"))),
    (list[Customer], b'[{"name":"Li"}]', [Customer(name="Li")]),
    (Customer | None, b'{"name":"Li"}', Customer(name="Li")),
    (Customer | int, b"5", 5),
    (dict[str, Positive], b'{"a":{"number":1}}', {"a": Positive(1)}),
    (Order | None, b"null", None),
    (int | str, b'"a"', "a"),
    (int, b"5", 5),
    (list, b"[1]", [1]),
    (dict, b'{"a":1}', {"a": 1}),
    (datetime, b'"2030-01-02T00:00:00Z"', datetime(2030, 1, 2, tzinfo=UTC)),
    (typing.Literal["a"], b'"a"', "a"),
    (typing.Annotated[int, msgspec.Meta(gt=0)], b"1", 1),
    (None, b"null", None),
]


def annotated(kind: Any) -> Callable[..., Any]:
    def on_order(body: Any) -> None: ...

    on_order.__annotations__["body"] = kind
    return on_order


@pytest.mark.parametrize(("kind", "raw", "body"), TYPES)
def test_the_body_is_decoded_to_its_annotation(kind: Any, raw: bytes, body: Any) -> None:
    assert bound(annotated(kind), raw) == (body,)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Order, b'{"number":"one"}'),
        (Order, b"{"),
        (Customer, b"{}"),
        (Positive, b'{"number":0}'),
        (Basket, b'{"owner":{}}'),
        (int, b"1.5"),
        (bytes, b'"text"'),
        (None, b"5"),
        (list, b"[" * 100_000),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_body_that_does_not_decode_is_a_codec_error(kind: Any, raw: bytes) -> None:
    with pytest.raises(CodecError):
        resolved(annotated(kind)).bind(JSON, raw, D)


def test_any_error_of_a_type_is_a_codec_error() -> None:
    @dataclass
    class Fragile:
        number: int

        def __post_init__(self) -> None:
            raise KeyError(self.number)

    with pytest.raises(CodecError, match="Fragile"):
        resolved(annotated(Fragile)).bind(JSON, b'{"number":1}', D)


def test_bytes_are_raw() -> None:
    assert resolved(annotated(bytes)).bind(RAW, b"\xff", D).args == (b"\xff",)
    assert resolved(annotated(bytes | None)).bind(RAW, b"\xff", D).args == (b"\xff",)
    with pytest.raises(CodecError, match="raw bytes"):
        resolved(annotated(Order)).bind(RAW, b"\xff", D)


def test_without_annotation_the_queue_decides() -> None:
    assert bound(made("def on_order(body)"), kind=Order) == (Order(1),)
    assert bound(made("def on_order(body: typing.Any)"), kind=Order) == (Order(1),)
    assert bound(made("def on_order(body: Order)"), kind=dict) == (Order(1),)


def test_a_handler_of_deliveries_decodes_nothing() -> None:
    assert bound(made("def on_order(d: Delivery)"), b"{", kind=Order) == (D,)


@pytest.mark.parametrize("kind", [Odd, list[Odd], Order | Point, complex, typing.Callable[[], None], 5, "list[Odd]"])
def test_a_type_that_json_cannot_give_is_refused_when_resolved(kind: Any) -> None:
    handler = Handler(annotated(kind))

    with pytest.raises(UsageError, match=r"handler annotated\.<locals>\.on_order: "):
        handler.resolve(codec.decoder_of(None))


# Annotations that are read late


def test_a_forward_reference_is_resolved_late() -> None:
    names: dict[str, Any] = {}
    exec("def on_order(body: 'list[Later]'): ...", names)
    handler = Handler(names["on_order"])
    names["Later"] = Order

    handler.resolve(codec.decoder_of(None))

    assert handler.bind(JSON, b'[{"number":1}]', D).args == ([Order(1)],)


def test_annotations_from_the_future_are_resolved() -> None:
    names: dict[str, Any] = {"Order": Order}
    source = "from __future__ import annotations\nimport duly\ndef on_order(body: Order, d: duly.Delivery): ..."
    exec(source, names)

    assert bound(names["on_order"]) == (Order(1), D)


def test_a_local_type_that_the_function_uses_is_found() -> None:
    @dataclass
    class Local:
        number: int

    def on_order(body: "Local") -> bool:
        return isinstance(body, Local)

    assert bound(on_order) == (Local(1),)


@pytest.mark.parametrize("annotation", ["Delivery", "AsyncDelivery | None", "duly.Delivery"])
def test_a_delivery_is_known_though_it_was_imported_for_the_type_checker_only(annotation: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def on_order(d: '{annotation}'): ...", names)

    assert bound(names["on_order"]) == (D,)


def test_an_unused_annotation_may_be_unknown() -> None:
    names: dict[str, Any] = {}
    exec("def on_order(body: int) -> 'Nowhere': ...", names)

    assert bound(names["on_order"], b"5") == (5,)


@pytest.mark.parametrize("annotation", ["Nowhere", "list['Nowhere']", "not a type", "duly.Nowhere"])
def test_an_annotation_that_cannot_be_resolved_is_named(annotation: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def on_order(body: {annotation!r}): ...", names)
    handler = Handler(names["on_order"])

    with pytest.raises(UsageError, match=r"handler on_order: the annotation .* of 'body' cannot be resolved") as caught:
        handler.resolve(codec.decoder_of(None))

    assert annotation in str(caught.value)


# Batches

BATCH = Batch(max=10)
BATCHES: list[tuple[str, tuple[Any, ...]]] = [
    ("def on_order(bodies)", ([BODY],)),
    ("def on_order(bodies, ds)", ([BODY], [D])),
    ("def on_order(bodies: list)", ([BODY],)),
    ("def on_order(bodies: list[typing.Any], ds: list[Delivery])", ([BODY], [D])),
    ("def on_order(bodies: list[Order])", ([Order(1)],)),
    ("def on_order(bodies: typing.Sequence[Order], ds: 'list[duly.AsyncDelivery]')", ([Order(1)], [D])),
    ("async def on_order(bodies: typing.Iterable[Order], *, times=3)", ([Order(1)],)),
    ("def on_order(ds: list[Delivery])", ([D],)),
    ("def on_order(ds: list[Delivery | AsyncDelivery], bodies: list[Order])", ([D], [Order(1)])),
]


@pytest.mark.parametrize(("source", "args"), BATCHES, ids=[source for source, _ in BATCHES])
def test_a_batch_handler_gets_lists(source: str, args: tuple[Any, ...]) -> None:
    handler = resolved(made(source), batch=BATCH)

    body = handler.decode_one(JSON, b'{"number":1}')

    assert handler.arguments([body], [D]) == args
    assert handler.concurrency == 1


def test_each_body_of_a_batch_is_decoded_separately() -> None:
    def on_orders(bodies: Sequence[Order]) -> None: ...

    handler = resolved(on_orders, batch=BATCH)

    assert handler.decode_one(JSON, b'{"number":1}') == Order(1)
    with pytest.raises(CodecError):
        handler.decode_one(JSON, b"{}")


def test_a_batch_handler_of_deliveries_decodes_nothing() -> None:
    handler = resolved(made("def on_order(ds: list[Delivery])"), batch=BATCH)

    assert handler.decode_one(JSON, b"{") is None


@pytest.mark.parametrize(
    "source",
    ["def on_order(body: Order)", "def on_order(bodies: list[Order], d: Delivery)", "def on_order(d: Delivery)"],
)
def test_a_batch_handler_that_is_not_written_for_lists_is_refused(source: str) -> None:
    handler = Handler(made(source), batch=BATCH)

    with pytest.raises(UsageError, match=r"handler on_order: .*list"):
        handler.resolve(codec.decoder_of(None))


class Special(Point):
    y: int = 0


@pytest.mark.parametrize(
    ("of_queue", "of_handler"),
    [
        (Order, Order),
        (Point, Special),
        (Special, Point),
        (Order, Order | Point),
        (Order | int, Order),
        (Order, Order | None),
        (Order, typing.Annotated[Order, "ours"]),
        (Order, Any),
        (Order, dict[str, Any]),
        (dict, Order),
        (float, int),
        (list, tuple[int, int]),
        (Line, Order),
        (str, datetime),
        (None, Order),
    ],
)
def test_a_handler_may_read_the_bodies_of_a_queue_as_another_type(of_queue: Any, of_handler: Any) -> None:
    app = duly.Duly("memory://")

    @app.queue("orders", type=of_queue).handler
    def handle(body: of_handler) -> None: ...

    @app.queue("batches", type=of_queue).handler(batch=Batch())
    def handle_all(bodies: list[of_handler]) -> None: ...


@pytest.mark.parametrize(
    ("of_queue", "of_handler"),
    [(Order, Point), (Customer, Order), (Order, str), (str, int), (bytes, Order), (Order, bytes), (Order, Point | int)],
)
def test_a_handler_of_a_type_that_contradicts_the_queue_s_is_refused(of_queue: Any, of_handler: Any) -> None:
    app = duly.Duly("memory://")
    names = f"handle takes .*{getattr(of_handler, '__name__', 'Point')}.*queue 'orders' has type={of_queue.__name__}"

    with pytest.raises(UsageError, match=names):

        @app.queue("orders", type=of_queue).handler
        def handle(body: of_handler) -> None: ...

    with pytest.raises(UsageError, match="has type="):

        @app.queue("orders", type=of_queue).handler(batch=Batch())
        def handle_all(bodies: list[of_handler]) -> None: ...

    app.queue("orders", type=of_queue).handler(lambda body: None)  # the refused ones have left nothing behind


def test_a_type_that_is_defined_below_the_handler_is_compared_when_a_worker_starts() -> None:
    app = duly.Duly("memory://")

    @app.queue("orders", type=Order).handler  # type: ignore[arg-type]
    def handle(body: "Late") -> None: ...

    class Late(msgspec.Struct):
        x: int

    handler = Handler(handle)
    handler.serve("queue 'orders'", Order)
    handle.__globals__["Late"] = Late
    try:
        with pytest.raises(UsageError, match="has type=Order"):
            handler.resolve(codec.decoder_of(None))
    finally:
        del handle.__globals__["Late"]


@pytest.mark.parametrize(
    ("of_queue", "of_delivery"),
    [(Order, Order), (Point, Special), (Special, Point), (Order | None, Order), (Order, Any), (None, Any)],
)
def test_a_delivery_may_name_the_type_of_its_queue(of_queue: Any, of_delivery: Any) -> None:
    app = duly.Duly("memory://")

    @app.queue("both", type=of_queue).handler
    def handle(body: object, d: Delivery[of_delivery]) -> None: ...

    @app.queue("alone", type=of_queue).handler
    async def handle_one(d: AsyncDelivery[of_delivery] | None) -> None: ...

    @app.queue("batches", type=of_queue).handler(batch=Batch())
    def handle_all(deliveries: list[Delivery[of_delivery]]) -> None: ...


@pytest.mark.parametrize(("of_queue", "has"), [(Point, "type=Point"), (None, "no type=")])
def test_a_delivery_that_names_another_type_than_its_queue_is_refused(of_queue: Any, has: str) -> None:
    queue = duly.Duly("memory://").queue("orders", type=of_queue)
    said = f"takes a delivery of Order, but queue 'orders' has {has}: d.body would not be of type Order"

    with pytest.raises(UsageError, match=said):

        @queue.handler
        def handle(body: object, d: Delivery[Order]) -> None: ...

    with pytest.raises(UsageError, match=said):

        @queue.handler
        async def handle_one(d: typing.Annotated[AsyncDelivery[Order], "it"]) -> None: ...

    with pytest.raises(UsageError, match=said):

        @queue.handler(batch=Batch())
        def handle_all(deliveries: Sequence[Delivery[Order]]) -> None: ...


@pytest.mark.parametrize("kind", [duly.Queue, duly.Topic, duly.Group, duly.Delivery, duly.Send])
def test_a_generic_class_takes_a_type_when_the_program_runs(kind: Any) -> None:
    colours = [kind, getattr(duly, f"Async{kind.__name__}", kind)]

    assert [typing.get_args(each[Order]) for each in colours] == [(Order,), (Order,)]


def test_a_task_takes_the_types_of_its_arguments_and_its_result_when_the_program_runs() -> None:
    assert typing.get_args(duly.Task[[int, str], bool]) == ((int, str), bool)
    assert typing.get_args(duly.AsyncTask[..., bool]) == (..., bool)
