"""Receiving by a long poll, and settling with receipts: what a consumer in any language does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from duly import AsyncDelivery
from duly._core import ops
from duly._core.replies import lease_lost
from duly.errors import LeaseLost
from duly.web.api import shapes
from duly.web.api.operation import Asked, Operation
from duly.web.api.queues import each_of
from duly.web.receipts import delivery_of, receipt_of, with_headers

Verb = Callable[[AsyncDelivery], Awaitable[None]]


async def _receive(asked: Asked) -> msgspec.Raw:
    """Hand out what is due. Whoever has gone meanwhile has received nothing: it goes back at once."""
    inbox, given = asked.inbox_to_be(), asked.body

    async def give_back(deliveries: Sequence[AsyncDelivery]) -> None:
        if deliveries:
            await inbox._link.run_now(ops.release(inbox._keys, deliveries))

    with asked.site.places.one():
        deliveries = await asked.while_there(inbox.receive(given.limit, given.wait, given.lease), give_back)
    try:
        messages = [shapes.delivery(each, receipt_of(each)) for each in deliveries]
        return msgspec.Raw(msgspec.json.encode(shapes.Received(messages)))
    except BaseException:  # nobody would have their receipts
        await give_back(deliveries)
        raise


async def _ack(asked: Asked) -> shapes.Settled:
    given: shapes.Ack = asked.body
    if given.result is not msgspec.UNSET and bytes(given.result) != b"null":
        result = shapes.checked_json(given.result, "result")
        return await _settled(asked, _opened(asked), lambda d: d.ack(result=result))
    deliveries = _opened(asked)
    lost = await asked.inbox_to_be().ack_many(deliveries)
    return _told("ack", deliveries, lost)


async def _retry(asked: Asked) -> shapes.Settled:
    return await _settled(asked, _opened(asked), lambda d: d.retry(asked.body.delay, asked.body.error))


async def _defer(asked: Asked) -> shapes.Settled:
    return await _settled(asked, _opened(asked), lambda d: d.defer(asked.body.delay, asked.body.reason))


async def _reject(asked: Asked) -> shapes.Settled:
    return await _settled(asked, _opened(asked), lambda d: d.reject(asked.body.reason))


async def _release(asked: Asked) -> shapes.Settled:
    return await _settled(asked, _opened(asked), lambda d: d.release())


async def _extend(asked: Asked) -> shapes.Settled:
    return await _settled(asked, _opened(asked), lambda d: d.extend(asked.body.seconds))


async def _recycle(asked: Asked) -> shapes.Settled:
    given: shapes.Recycle = asked.body
    deliveries = _opened(asked)
    if given.body is msgspec.UNSET and given.base64 is None:
        return await _settled(asked, deliveries, lambda d: d.recycle(given.delay))
    body = shapes.checked_body(given.body, given.base64)
    whole = await each_of(deliveries, _with_its_headers)
    return await _settled(asked, whole, lambda d: d.recycle(given.delay, body))


async def _with_its_headers(delivery: AsyncDelivery) -> AsyncDelivery:
    """Look up what a receipt leaves out. A message that is not there any more has lost its lease too."""
    message = await delivery._queue.get(delivery.id)
    return delivery if message is None or not message.headers else with_headers(delivery, message.headers)


def _opened(asked: Asked) -> list[AsyncDelivery]:
    """Make deliveries of all receipts, before the first is settled."""
    inbox = asked.inbox_to_be(typed=True)
    return [delivery_of(inbox, receipt) for receipt in asked.body.given()]


async def _settled(asked: Asked, deliveries: Sequence[AsyncDelivery], verb: Verb) -> shapes.Settled:
    async def is_lost(delivery: AsyncDelivery) -> bool:
        try:
            await verb(delivery)
        except LeaseLost:
            return True
        return False

    flags = await each_of(deliveries, is_lost)
    lost = [delivery for delivery, flag in zip(deliveries, flags, strict=True) if flag]
    return _told(asked.request.url.path.rpartition("/")[2], deliveries, lost)


def _told(verb: str, deliveries: Sequence[AsyncDelivery], lost: Sequence[AsyncDelivery]) -> shapes.Settled:
    """Say what was settled. Nothing at all is an error: who settles one message should not have to look closer."""
    if len(lost) == len(deliveries):
        first = lease_lost(deliveries[0].queue, deliveries[0].id, verb)
        others = f". The same is true of the {len(lost) - 1} others" if len(lost) > 1 else ""
        raise LeaseLost(f"{first}{others}")
    gone = {id(each) for each in lost}
    return shapes.Settled([each.id for each in deliveries if id(each) not in gone], [each.id for each in lost])


def _settle(verb: str, summary: str, act: Callable[[Asked], Awaitable[Any]], body: Any) -> Operation:
    return Operation(
        method="POST",
        path=f"{{inbox}}/{verb}",
        name=verb,
        summary=summary,
        needs="operator",
        act=act,
        body=body,
        answer=shapes.Settled,
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="POST",
        path="{inbox}/receive",
        name="receive",
        summary="Take messages that are due, waiting for the first. What is not settled comes back.",
        needs="operator",
        act=_receive,
        body=shapes.Receive,
        may_be_empty=True,
        answer=shapes.Received,
    ),
    _settle("ack", "Finish messages; those that were sent with repeat come back.", _ack, shapes.Ack),
    _settle("retry", "Count a failure: back after a delay, or dead when no attempt is left.", _retry, shapes.RetryOf),
    _settle("defer", "Have messages come back later; no attempt is spent.", _defer, shapes.Defer),
    _settle("reject", "Make messages dead, now.", _reject, shapes.Reject),
    _settle("release", "Give messages back at once, to their places; no attempt is spent.", _release, shapes.Settle),
    _settle("recycle", "Finish messages and put them back as new, in one step.", _recycle, shapes.Recycle),
    _settle("extend", "Let leases end so many seconds from now.", _extend, shapes.Extend),
)
