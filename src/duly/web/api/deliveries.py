"""Receiving by a long poll, and settling with receipts: what a consumer in any language does."""

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
"""What helps against a lost lease over HTTP, where nobody renews."""
Steps = Callable[[Inbox, settlement.Deliveries], list[port.Step]]


# What is taken


class Settle(requests.Given):
    """Which deliveries: one, or several."""

    receipt: str | None = None
    receipts: requests.Receipts | None = None

    def all_receipts(self) -> list[str]:
        """Give the receipts, each once."""
        if (self.receipt is None) == (self.receipts is None):
            raise UsageError("give either receipt or receipts, a list of them")
        return list(dict.fromkeys(self.receipts or [self.receipt or ""]))


class Ack(Settle):
    """Finished. `result` is kept where the queue keeps finished messages."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RetryOf(Settle):
    """Failed. Without a delay, it is the retry policy's."""

    delay: float | None = None
    error: str | None = None


class Defer(Settle, kw_only=True):
    """Not now."""

    delay: float
    reason: str = ""


class Reject(Settle, kw_only=True):
    """Never."""

    reason: str


class Recycle(Settle):
    """Finished, and back as new; without a body, with the one it has."""

    delay: float = 0.0
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: str | None = None


class Extend(Settle, kw_only=True):
    """The lease, in seconds from now on."""

    seconds: float


class ProgressOf(Settle, kw_only=True):
    """How far the work is, from 0 to 1, and what is being done."""

    fraction: float
    text: str = ""


# What is done


async def _receive(call: ApiCall) -> msgspec.Raw:
    """Hand out what is due. Whoever has gone meanwhile has received nothing: it goes back at once."""
    inbox, options = call.open_inbox(), call.body

    async def release(deliveries: Sequence[AsyncDelivery]) -> None:
        if deliveries:
            await port.release_now(inbox, deliveries)

    # Who does not wait takes no seat from those who do.
    with call.site.poll_limit.hold() if options.wait else nullcontext():
        deliveries = await call.run_while_connected(inbox.receive(options.limit, options.wait, options.lease), release)
    try:
        messages = [responses.delivery_response(each, encode_receipt(each)) for each in deliveries]
        return msgspec.Raw(msgspec.json.encode(responses.Received(messages)))
    except BaseException:  # nobody would have their receipts
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
    """Look up what a receipt leaves out. A message that is not there any more has lost its lease too."""
    message = await inbox.get(delivery.id)
    return delivery if message is None or not message.headers else port.with_headers(delivery, message.headers)


def _deliveries_of(call: ApiCall) -> list[AsyncDelivery]:
    """Make deliveries of all receipts, each once, before the first is settled."""
    inbox = call.open_inbox(typed=True)
    deliveries = [decode_receipt(inbox, receipt) for receipt in call.body.all_receipts()]
    return list({(each.id, each.fence): each for each in deliveries}.values())


async def _settle_receipts(
    call: ApiCall, steps: Steps, deliveries: list[AsyncDelivery] | None = None
) -> responses.Settled:
    """Settle what the receipts stand for: all is checked before anything is done."""
    deliveries = _deliveries_of(call) if deliveries is None else deliveries
    inbox = call.open_inbox(typed=True)
    lost = await settlement.settle(inbox, steps(inbox, deliveries))
    return _settled_response(call.request.url.path.rpartition("/")[2], deliveries, lost)


def _settled_response(
    verb: str, deliveries: Sequence[AsyncDelivery], lost: Sequence[AsyncDelivery]
) -> responses.Settled:
    """Say what was settled. Nothing at all is an error: who settles one message should not have to look closer."""
    if len(lost) == len(deliveries):
        first = port.lease_lost(deliveries[0].queue, deliveries[0].id, verb, _LEASE_ADVICE)
        others = f". The same is true of the {len(lost) - 1} others" if len(lost) > 1 else ""
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
        summary="Take messages that are due, waiting for the first. What is not settled comes back.",
        needs="operator",
        handle=_receive,
        body=requests.Receive,
        is_body_optional=True,
        answer=responses.Received,
    ),
    _settle_operation("ack", "Finish messages; those that were sent with repeat come back.", _ack, Ack),
    _settle_operation(
        "retry", "Count a failure: back after a delay, or dead when no attempt is left.", _retry, RetryOf
    ),
    _settle_operation("defer", "Have messages come back later; no attempt is spent.", _defer, Defer),
    _settle_operation("reject", "Make messages dead, now.", _reject, Reject),
    _settle_operation("release", "Give messages back at once, to their places; no attempt is spent.", _release, Settle),
    _settle_operation("recycle", "Finish messages and put them back as new, in one step.", _recycle, Recycle),
    _settle_operation(
        "progress", "Report how far the work is. It is shown until the delivery ends.", _progress, ProgressOf
    ),
    _settle_operation("extend", "Let leases end after `seconds` from now on.", _extend, Extend),
)
