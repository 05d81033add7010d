"""Effects in other systems that must not happen twice: a payment, a mail, a call of an external API."""

from collections.abc import Awaitable, Generator
from typing import Any, NoReturn, overload

from duly._async.delivery import AsyncDelivery
from duly._core import codec, ops, outgoing, replies
from duly._core.call import Call
from duly._core.keys import OnceKeys
from duly._sync.delivery import Delivery
from duly.errors import UsageError
from duly.options import Seconds, checked_positive_seconds


@overload
def once(d: Delivery, name: str, ttl: Seconds) -> bool: ...


@overload
def once(d: AsyncDelivery, name: str, ttl: Seconds) -> Awaitable[bool]: ...


def once(d: Delivery | AsyncDelivery, name: str, ttl: Seconds) -> bool | Awaitable[bool]:
    """Ask whether this delivery may cause the effect `name`, which happens at most once in `ttl` seconds.

    True for the first delivery that asks. Also true for a later delivery of the same message, if the consumer returned
    the first one to the queue (retry, defer, release). False for every other message. False for the message itself if
    its consumer died, because the effect may have happened. Await it for an AsyncDelivery.
    """
    if not isinstance(d, Delivery | AsyncDelivery):
        raise UsageError(f"once needs a delivery, not {d!r}")
    outgoing.checked_new_text(name, "the name of an effect")
    seconds = checked_positive_seconds(ttl, "ttl")
    if d.is_settled:
        raise replies.lease_lost(d.queue, d.id, "once")
    sent = round(codec.read_stamps(d._record)[0])
    asking = ops.Asking(d.queue, d.id, sent, d.fence, d.deliveries, d.crashes, d.redrives)
    call = ops.once(OnceKeys(d._queue._app.namespace, name), asking, seconds)
    if isinstance(d, AsyncDelivery):
        return _Answer(d._queue._link, call)
    is_allowed: bool = d._queue._link.run(call)
    return is_allowed


class _Answer(Awaitable[bool]):
    """An answer to await. Taken for the answer itself, it would always be yes."""

    def __init__(self, link: Any, call: Call[bool]) -> None:
        self._link = link
        self._call = call

    def __await__(self) -> Generator[Any, None, bool]:
        answer: Generator[Any, None, bool] = self._link.run(self._call).__await__()
        return answer

    def __bool__(self) -> NoReturn:
        raise UsageError("the answer of once must be awaited: `if await duly.once(d, ...)`")
