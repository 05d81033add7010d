"""Types that involve both clients: handlers, hooks and commits. Other modules import this for type checking only.

A handler may annotate its delivery as `Delivery` or as `AsyncDelivery`, and a commit sends to queues of either client.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from duly._async.app import AsyncDuly
from duly._async.delivery import AsyncDelivery
from duly._async.queue import AsyncQueue
from duly._async.task import AsyncTask
from duly._async.topic import AsyncTopic
from duly._core.address import Address
from duly._core.delivered import Delivered
from duly._sync.app import Duly
from duly._sync.delivery import Delivery
from duly._sync.queue import Queue
from duly._sync.task import Task
from duly._sync.topic import Topic
from duly.options import BodyT

P = ParamSpec("P")
R = TypeVar("R")
FirstT_contra = TypeVar("FirstT_contra", contravariant=True)
SecondT_contra = TypeVar("SecondT_contra", contravariant=True)
ReturnT_co = TypeVar("ReturnT_co", covariant=True)


class RedisClient(Protocol):
    """A client of redis-py, sync or async."""

    @property
    def connection_pool(self) -> Any:
        """Its pool, which has the address and credentials."""


Server = str | RedisClient | Duly | AsyncDuly | Address
"""The server of an app: an address, a client, or another app."""

SendPair = (
    tuple[Queue[Any] | AsyncQueue[Any], Any]
    | tuple[Task[..., Any] | AsyncTask[..., Any], tuple[Any, ...] | Mapping[str, Any]]
)
"""One send of a commit: a queue with a body or `Send`, or a task with its arguments."""

PublishPair = tuple[Topic[Any] | AsyncTopic[Any], Any]
"""One publish of a commit: a topic with a body or `Send`."""


if TYPE_CHECKING:

    class EitherDelivery(Delivery[BodyT], AsyncDelivery[BodyT]):  # type: ignore[misc]
        """A type that is accepted as a delivery of either client. It has no instances."""
else:
    EitherDelivery = Delivered

# For functions whose parameters have no names: mypy cannot capture them with the protocols below.
HandlerOf = (
    Callable[[BodyT], Any]
    | Callable[[BodyT, EitherDelivery[BodyT]], Any]
    | Callable[[EitherDelivery[BodyT]], Any]
    | Callable[[EitherDelivery[BodyT], BodyT], Any]
)
BatchHandlerOf = (
    Callable[[list[BodyT]], Any]
    | Callable[[list[BodyT], list[AsyncDelivery[BodyT]]], Any]
    | Callable[[list[BodyT], list[Delivery[BodyT]]], Any]
    | Callable[[list[AsyncDelivery[BodyT]]], Any]
    | Callable[[list[Delivery[BodyT]]], Any]
    | Callable[[list[AsyncDelivery[BodyT]], list[BodyT]], Any]
    | Callable[[list[Delivery[BodyT]], list[BodyT]], Any]
)


# A function fits an overloaded protocol if it fits each overload. So the first overload checks the function, and the
# second one captures its parameters and return type for the type of the decorated function.
class Takes(Protocol[FirstT_contra, P, ReturnT_co]):
    """A function that can be called with one argument."""

    @overload
    def __call__(self, first: FirstT_contra, /) -> Any: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ReturnT_co: ...


class TakesTwo(Protocol[FirstT_contra, SecondT_contra, P, ReturnT_co]):
    """A function that can be called with two arguments."""

    @overload
    def __call__(self, first: FirstT_contra, second: SecondT_contra, /) -> Any: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ReturnT_co: ...


class Handles(Protocol[BodyT]):
    """Decorates a handler that takes a body, a delivery, or both."""

    @overload
    def __call__(self, function: Takes[BodyT, P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: TakesTwo[BodyT, EitherDelivery[BodyT], P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: Takes[EitherDelivery[BodyT], P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: TakesTwo[EitherDelivery[BodyT], BodyT, P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: HandlerOf[BodyT], /) -> Any: ...


class HandlesBatches(Protocol[BodyT]):
    """Decorates a handler that takes lists of bodies or deliveries."""

    @overload
    def __call__(self, function: Takes[list[BodyT], P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: TakesTwo[list[BodyT], list[AsyncDelivery[BodyT]], P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: TakesTwo[list[BodyT], list[Delivery[BodyT]], P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: BatchHandlerOf[BodyT], /) -> Any: ...
