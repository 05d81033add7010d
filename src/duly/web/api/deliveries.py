"""Receiving by a long poll, and settling with receipts: what a consumer in any language does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

import msgspec

from duly import AsyncDelivery, message
from duly._core import ops, settles
from duly._core.replies import lease_lost
from duly.errors import LeaseLost, UsageError
from duly.web.api import requests, responses, settlement
from duly.web.api.operation import Asked, Operation
from duly.web.bounded_gather import each_of
from duly.web.names import Inbox
from duly.web.opaque import delivery_of, receipt_of, with_message_headers

_LONGER: Final = "receive with a longer `lease`, or call `extend` in time,"
"""What helps against a lost lease over HTTP, where nobody renews."""
Steps = Callable[[Inbox, settlement.Deliveries], list[settles.Step]]


# What is taken


class Settle(requests.Given):
    """Which deliveries: one, or several."""

    receipt: str | None = None
    receipts: requests.Receipts | None = None

    def given(self) -> list[str]:
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


async def _receive(asked: Asked) -> msgspec.Raw:
    """Hand out what is due. Whoever has gone meanwhile has received nothing: it goes back at once."""
    inbox, given = asked.open_inbox(), asked.body

    async def give_back(deliveries: Sequence[AsyncDelivery]) -> None:
        if deliveries:
            await inbox._link.run_now(ops.release(inbox._keys, deliveries))

    # Who does not wait takes no seat from those who do.
    with asked.site.waiting_room.seat() if given.wait else nullcontext():
        deliveries = await asked.while_there(inbox.receive(given.limit, given.wait, given.lease), give_back)
    try:
        messages = [responses.delivery(each, receipt_of(each)) for each in deliveries]
        return msgspec.Raw(msgspec.json.encode(responses.Received(messages)))
    except BaseException:  # nobody would have their receipts
        await give_back(deliveries)
        raise


async def _ack(asked: Asked) -> responses.Settled:
    given: Ack = asked.body
    result = None
    if given.result is not msgspec.UNSET and bytes(given.result) != b"null":
        result = requests.checked_json(given.result, "result")
    return await _settled(asked, lambda inbox, those: settlement.acks(inbox, those, result))


async def _retry(asked: Asked) -> responses.Settled:
    given: RetryOf = asked.body
    return await _settled(asked, lambda _, those: settles.retried(those, given.delay, given.error))


async def _defer(asked: Asked) -> responses.Settled:
    given: Defer = asked.body
    return await _settled(asked, lambda _, those: settles.deferred(those, given.delay, given.reason))


async def _reject(asked: Asked) -> responses.Settled:
    return await _settled(asked, lambda _, those: settles.rejected(those, asked.body.reason))


async def _release(asked: Asked) -> responses.Settled:
    return await _settled(asked, lambda _, those: settles.released(those))


async def _extend(asked: Asked) -> responses.Settled:
    return await _settled(asked, lambda _, those: settles.extended(those, asked.body.seconds))


async def _progress(asked: Asked) -> responses.Settled:
    said = message.Progress(asked.body.fraction, asked.body.text)
    return await _settled(asked, lambda _, those: settles.alike("progress", those, said.fraction, said.text))


async def _recycle(asked: Asked) -> responses.Settled:
    given: Recycle = asked.body
    if given.body is msgspec.UNSET and given.base64 is None:
        return await _settled(asked, lambda inbox, those: settlement.recycles(inbox, those, given.delay))
    body = requests.checked_body(given.body, given.base64)
    whole = await each_of(_opened(asked), _with_its_headers)
    return await _settled(asked, lambda inbox, those: settlement.recycles(inbox, those, given.delay, body), whole)


async def _with_its_headers(delivery: AsyncDelivery) -> AsyncDelivery:
    """Look up what a receipt leaves out. A message that is not there any more has lost its lease too."""
    message = await delivery._queue.get(delivery.id)
    return delivery if message is None or not message.headers else with_message_headers(delivery, message.headers)


def _opened(asked: Asked) -> list[AsyncDelivery]:
    """Make deliveries of all receipts, each once, before the first is settled."""
    inbox = asked.open_inbox(typed=True)
    opened = [delivery_of(inbox, receipt) for receipt in asked.body.given()]
    return list({(each.id, each.fence): each for each in opened}.values())


async def _settled(asked: Asked, steps: Steps, opened: list[AsyncDelivery] | None = None) -> responses.Settled:
    """Settle what the receipts stand for: all is checked before anything is done."""
    deliveries = _opened(asked) if opened is None else opened
    inbox = asked.open_inbox(typed=True)
    lost = await settlement.carried_out(inbox, steps(inbox, deliveries))
    return _told(asked.request.url.path.rpartition("/")[2], deliveries, lost)


def _told(verb: str, deliveries: Sequence[AsyncDelivery], lost: Sequence[AsyncDelivery]) -> responses.Settled:
    """Say what was settled. Nothing at all is an error: who settles one message should not have to look closer."""
    if len(lost) == len(deliveries):
        first = lease_lost(deliveries[0].queue, deliveries[0].id, verb, _LONGER)
        others = f". The same is true of the {len(lost) - 1} others" if len(lost) > 1 else ""
        raise LeaseLost(f"{first}{others}")
    gone = {id(each) for each in lost}
    settled = [each.id for each in deliveries if id(each) not in gone]
    return responses.Settled(settled, [each.id for each in deliveries if id(each) in gone])


def _settle(verb: str, summary: str, act: Callable[[Asked], Awaitable[Any]], body: Any) -> Operation:
    return Operation(
        method="POST",
        path=f"{{inbox}}/{verb}",
        name=verb,
        summary=summary,
        needs="operator",
        act=act,
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
        act=_receive,
        body=requests.Receive,
        may_be_empty=True,
        answer=responses.Received,
    ),
    _settle("ack", "Finish messages; those that were sent with repeat come back.", _ack, Ack),
    _settle("retry", "Count a failure: back after a delay, or dead when no attempt is left.", _retry, RetryOf),
    _settle("defer", "Have messages come back later; no attempt is spent.", _defer, Defer),
    _settle("reject", "Make messages dead, now.", _reject, Reject),
    _settle("release", "Give messages back at once, to their places; no attempt is spent.", _release, Settle),
    _settle("recycle", "Finish messages and put them back as new, in one step.", _recycle, Recycle),
    _settle("progress", "Report how far the work is. It is shown until the delivery ends.", _progress, ProgressOf),
    _settle("extend", "Let leases end after `seconds` from now on.", _extend, Extend),
)
