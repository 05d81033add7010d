"""Single messages: sending them, looking at them, and changing what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from duly.errors import DulyError, UsageError
from duly.web.api import requests, responses
from duly.web.api.operation import Asked, Operation
from duly.web.names import Inbox, no_message
from duly.web.opaque import cursor_of, position_of
from duly.web.problems import Refused


async def _send(asked: Asked) -> responses.Sent:
    queue = asked.site.names.sender(asked.word("queue"))
    return await _stored(asked, queue.send_many)


async def _publish(asked: Asked) -> responses.Sent:
    topic = asked.site.names.open_topic(asked.word("topic"), typed=True)
    return await _stored(asked, topic.publish_many)


async def _stored(asked: Asked, store: Any) -> responses.Sent:
    """Store one message or several: all are checked before the first is sent."""
    is_many = isinstance(asked.body, list)
    given: Sequence[requests.Publish] = asked.body if is_many else [asked.body]
    ids = await store([each.checked() for each in given], durable=_durable_of(given))
    return responses.Sent(ids=ids) if is_many else responses.Sent(id=ids[0])


def _durable_of(given: Sequence[requests.Publish]) -> Any:
    """Find how durable messages are to be: they are confirmed together."""
    asked_for = {each.durable for each in given}
    if len(asked_for) > 1:
        raise UsageError("durable must be the same for all messages of one call: they are confirmed together")
    return asked_for.pop() if asked_for else None


async def _list(asked: Asked) -> responses.MessagesShown:
    inbox, page = await asked.inbox(), asked.query
    after = None if page.after is None else position_of(page.after, page.state)
    try:
        found = await inbox.list(page.state, page.limit, after)
    except UsageError as error:
        raise await _moved_on(inbox, page, error) from None
    # A page of large messages is shorter than asked for, and need not be the last.
    is_more = bool(found) and (len(found) == page.limit or bool(await inbox.list(page.state, 1, found[-1])))
    messages = [responses.shown(each, with_payload=asked.sees_payloads) for each in found]
    return responses.MessagesShown(messages, cursor_of(found[-1]) if is_more else None)


async def _moved_on(inbox: Inbox, page: requests.MessagePage, error: UsageError) -> DulyError:
    """Say why there is no page: by the id alone of a message that is gone, it is not known where to go on."""
    before = await inbox.get(page.after or "")
    if before is not None and before.state == page.state:
        return error
    gone = f"message {page.after!r} is not {page.state} in {inbox.title} any more"
    return Refused(409, f"{gone}: begin without `after`, or give what `next` of a page was")


async def _get(asked: Asked) -> responses.Message:
    inbox = await asked.inbox()
    message = await inbox.get(asked.word("id"))
    if message is None:
        raise no_message(inbox, asked.word("id"))
    return responses.shown(message, with_payload=asked.sees_payloads)


async def _explain(asked: Asked) -> responses.Explanation:
    return responses.Explanation(await (await asked.inbox()).explain(asked.word("id")))


async def _cancel(asked: Asked) -> None:
    inbox, id_ = await asked.inbox(), asked.word("id")
    if await inbox.cancel(id_, running=asked.query.running):
        return
    message = await inbox.get(id_)
    if message is None or message.state == "done":
        raise no_message(inbox, id_)
    raise Refused(
        409,
        f"message {id_} of {inbox.title} is not cancelled: a consumer has it, and its handler may have begun. "
        "?running=true takes it from the consumer and ends it",
    )


async def _move(asked: Asked) -> responses.Message | None:
    """Give a message another due time. One that was taken and finished at once is not there to be shown."""
    inbox, given, id_ = await asked.inbox(), asked.body, asked.word("id")
    if given.promote and (given.delay is not None or given.at is not None):
        raise UsageError("promote makes a message due now: give it, or delay, or at")
    moving = inbox.promote(id_) if given.promote else inbox.reschedule(id_, delay=given.delay, at=given.at)
    is_moved = await moving
    message = await inbox.get(id_)
    if not is_moved:
        if message is None:
            raise no_message(inbox, id_)
        raise Refused(409, f"message {id_} of {inbox.title} does not wait: it is {message.state}")
    return None if message is None else responses.shown(message, with_payload=asked.sees_payloads)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="POST",
        path="/queues/{queue}/messages",
        name="send",
        summary="Store a message, or a list of them. The queue is created by its first use.",
        needs="operator",
        act=_send,
        body=requests.Sends,
        answer=responses.Sent,
        status=201,
    ),
    Operation(
        method="POST",
        path="/topics/{topic}/messages",
        name="publish",
        summary="Publish a message to every group of a topic, or a list of them.",
        needs="operator",
        act=_publish,
        body=requests.Publishes,
        answer=responses.Sent,
        status=201,
    ),
    Operation(
        method="GET",
        path="{inbox}/messages",
        name="list",
        summary="Look at a page of the messages in a state.",
        needs="viewer",
        act=_list,
        query=requests.MessagePage,
        answer=responses.MessagesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/explanations/{id}",
        name="explain",
        summary="Say in one sentence why a message is not being delivered, and when it will be.",
        needs="operator",
        act=_explain,
        answer=responses.Explanation,
    ),
    Operation(
        method="GET",
        path="{inbox}/messages/{id}",
        name="get",
        summary="Look at one message.",
        needs="viewer",
        act=_get,
        answer=responses.Message,
    ),
    Operation(
        method="PATCH",
        path="{inbox}/messages/{id}",
        name="reschedule",
        summary="Give a waiting message another due time: delay, at, or promote. 204: it is over by now.",
        needs="operator",
        act=_move,
        body=requests.Move,
        answer=responses.Message,
        may_be_silent=True,
        is_logged=True,
    ),
    Operation(
        method="DELETE",
        path="{inbox}/messages/{id}",
        name="cancel",
        summary="End a message that waits or is dead. 409: a consumer has it; running=true takes it away.",
        needs="operator",
        act=_cancel,
        query=requests.CancelHow,
        answer=None,
        is_logged=True,
    ),
)
