"""Long polling and settling with receipts, for consumers in any language."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

import msgspec

from duly import AsyncDelivery, message
from duly import _port as port
from duly._port import Inbox
from duly.errors import LeaseLost, UsageError
from duly.web.api import requests, responses, settlement
from duly.web.api.operation import ApiCall, Operation
from duly.web.bounded_gather import bounded_gather
from duly.web.opaque import decode_receipt, encode_receipt

_LEASE_ADVICE: Final = "receive with a longer `lease`, or call `extend` in time,"
"""Advice after a lost lease over HTTP, where leases are not renewed automatically."""
Steps = Callable[[Inbox, settlement.Deliveries], list[port.Step]]


# Requests


class Settle(requests.Given):
    """The deliveries to settle: one, or several."""

    receipt: str | None = None
    receipts: requests.Receipts | None = None

    def all_receipts(self) -> list[str]:
        """Return the receipts without duplicates."""
        if (self.receipt is None) == (self.receipts is None):
            raise UsageError("give either receipt, or receipts as a list")
        return list(dict.fromkeys(self.receipts or [self.receipt or ""]))


class Ack(Settle):
    """The message is finished. `result` is kept if the queue keeps finished messages."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RetryOf(Settle):
    """The message has failed. Without a delay, the retry policy decides."""

    delay: float | None = None
    error: str | None = None


class Defer(Settle, kw_only=True):
    """Deliver the message later."""

    delay: float
    reason: str = ""


class Reject(Settle, kw_only=True):
    """Never."""

    reason: str


class Recycle(Settle):
    """The message is finished and stored again as new, with another body if one is given."""

    delay: float = 0.0
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: str | None = None


class Extend(Settle, kw_only=True):
    """The new duration of the lease, in seconds from now."""

    seconds: float


class ProgressOf(Settle, kw_only=True):
    """The progress of the work, from 0 to 1, and a description."""

    fraction: float
    text: str = ""


# Operations


async def _receive(call: ApiCall) -> msgspec.Raw:
    """Deliver messages that are due. If the client disconnects, they are released at once."""
    inbox, options = call.open_inbox(), call.body

    async def release(deliveries: Sequence[AsyncDelivery]) -> None:
        if deliveries:
            await port.release_now(inbox, deliveries)

    # A receive without waiting does not count against the limit.
    with call.site.poll_limit.hold() if options.wait else nullcontext():
        deliveries = await call.run_while_connected(inbox.receive(options.limit, options.wait, options.lease), release)
    try:
        messages = [responses.delivery_response(each, encode_receipt(each)) for each in deliveries]
        return msgspec.Raw(msgspec.json.encode(responses.Received(messages)))
    except BaseException:  # the client has no receipts for them
        await release(deliveries)
        raise


async def _ack(call: ApiCall) -> responses.Settled:
    options: Ack = call.body
    result = None
    if options.result is not msgspec.UNSET and bytes(options.result) != b"null":
        result = requests.checked_json(options.result, "result")
    return await _settle_receipts(call, lambda inbox, deliveries: settlement.ack_steps(inbox, deliveries, result))


async def _retry(call: ApiCall) -> responses.Settled:
    options: RetryOf = call.body
    return await _settle_receipts(call, lambda _, deliveries: port.retried(deliveries, options.delay, options.error))


async def _defer(call: ApiCall) -> responses.Settled:
    options: Defer = call.body
    return await _settle_receipts(call, lambda _, deliveries: port.deferred(deliveries, options.delay, options.reason))


async def _reject(call: ApiCall) -> responses.Settled:
    return await _settle_receipts(call, lambda _, deliveries: port.rejected(deliveries, call.body.reason))


async def _release(call: ApiCall) -> responses.Settled:
    return await _settle_receipts(call, lambda _, deliveries: port.released(deliveries))


async def _extend(call: ApiCall) -> responses.Settled:
    return await _settle_receipts(call, lambda _, deliveries: port.extended(deliveries, call.body.seconds))


async def _progress(call: ApiCall) -> responses.Settled:
    progress = message.Progress(call.body.fraction, call.body.text)
    return await _settle_receipts(
        call, lambda _, deliveries: port.alike("progress", deliveries, progress.fraction, progress.text)
    )


async def _recycle(call: ApiCall) -> responses.Settled:
    options: Recycle = call.body
    if options.body is msgspec.UNSET and options.base64 is None:
        return await _settle_receipts(
            call, lambda inbox, deliveries: settlement.recycle_steps(inbox, deliveries, options.delay)
        )
    body = requests.checked_body(options.body, options.base64)
    inbox = call.open_inbox(typed=True)
    with_headers = await bounded_gather(_deliveries_of(call), functools.partial(_with_message_headers, inbox))
    return await _settle_receipts(
        call, lambda inbox, deliveries: settlement.recycle_steps(inbox, deliveries, options.delay, body), with_headers
    )


async def _with_message_headers(inbox: Inbox, delivery: AsyncDelivery) -> AsyncDelivery:
    """Look up the headers that a receipt leaves out. If the message is gone, its lease is lost as well."""
    message = await inbox.get(delivery.id)
    return delivery if message is None or not message.headers else port.with_headers(delivery, message.headers)


def _deliveries_of(call: ApiCall) -> list[AsyncDelivery]:
    """Decode all receipts, without duplicates, before the first message is settled."""
    inbox = call.open_inbox(typed=True)
    deliveries = [decode_receipt(inbox, receipt) for receipt in call.body.all_receipts()]
    return list({(each.id, each.fence): each for each in deliveries}.values())


async def _settle_receipts(
    call: ApiCall, steps: Steps, deliveries: list[AsyncDelivery] | None = None
) -> responses.Settled:
    """Settle the deliveries of all receipts. Everything is checked before the first call."""
    deliveries = _deliveries_of(call) if deliveries is None else deliveries
    inbox = call.open_inbox(typed=True)
    lost = await settlement.settle(inbox, steps(inbox, deliveries))
    return _settled_response(call.request.url.path.rpartition("/")[2], deliveries, lost)


def _settled_response(
    verb: str, deliveries: Sequence[AsyncDelivery], lost: Sequence[AsyncDelivery]
) -> responses.Settled:
    """Report the settled and lost messages. If all are lost it is an error, so that a single ack is easy to check."""
    if len(lost) == len(deliveries):
        first = port.lease_lost(deliveries[0].queue, deliveries[0].id, verb, _LEASE_ADVICE)
        others = f". The same applies to the {len(lost) - 1} others" if len(lost) > 1 else ""
        raise LeaseLost(f"{first}{others}")
    lost_deliveries = {id(each) for each in lost}
    settled = [each.id for each in deliveries if id(each) not in lost_deliveries]
    return responses.Settled(settled, [each.id for each in deliveries if id(each) in lost_deliveries])


def _settle_operation(verb: str, summary: str, handle: Callable[[ApiCall], Awaitable[Any]], body: Any) -> Operation:
    return Operation(
        method="POST",
        path=f"{{inbox}}/{verb}",
        name=verb,
        summary=summary,
        needs="operator",
        handle=handle,
        body=body,
        answer=responses.Settled,
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="POST",
        path="{inbox}/receive",
        name="receive",
        summary="Receive messages that are due, and wait for the first. Messages that are not settled are redelivered.",
        needs="operator",
        handle=_receive,
        body=requests.Receive,
        is_body_optional=True,
        answer=responses.Received,
    ),
    _settle_operation("ack", "Finish messages. Those with repeat are delivered again later.", _ack, Ack),
    _settle_operation(
        "retry", "Report a failure: retry after a delay, or dead if no attempt is left.", _retry, RetryOf
    ),
    _settle_operation("defer", "Deliver messages again later, without counting an attempt.", _defer, Defer),
    _settle_operation("reject", "Make messages dead now.", _reject, Reject),
    _settle_operation(
        "release", "Return messages to their places in the queue now, without counting an attempt.", _release, Settle
    ),
    _settle_operation("recycle", "Finish messages and store them again as new, in one step.", _recycle, Recycle),
    _settle_operation(
        "progress", "Report the progress of the work. It is shown until the delivery ends.", _progress, ProgressOf
    ),
    _settle_operation("extend", "Let leases end `seconds` from now.", _extend, Extend),
)
