"""Single messages: sending them, looking at them, and changing what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from duly._port import Inbox
from duly.errors import DulyError, UsageError
from duly.web.api import requests, responses
from duly.web.api.operation import ApiCall, Operation
from duly.web.names import message_not_found
from duly.web.opaque import decode_cursor, encode_cursor
from duly.web.problems import Refused


async def _send(call: ApiCall) -> responses.Sent:
    queue = call.site.names.open_for_sending(call.path_param("queue"))
    return await _store(call, queue.send_many)


async def _publish(call: ApiCall) -> responses.Sent:
    topic = call.site.names.open_topic(call.path_param("topic"), typed=True)
    return await _store(call, topic.publish_many)


async def _store(call: ApiCall, store: Any) -> responses.Sent:
    """Store one message or several: all are checked before the first is sent."""
    is_list = isinstance(call.body, list)
    messages: Sequence[requests.Publish] = call.body if is_list else [call.body]
    ids = await store([each.to_duly() for each in messages], durable=_common_durability(messages))
    return responses.Sent(ids=ids) if is_list else responses.Sent(id=ids[0])


def _common_durability(messages: Sequence[requests.Publish]) -> Any:
    """Find how durable messages are to be: they are confirmed together."""
    values = {each.durable for each in messages}
    if len(values) > 1:
        raise UsageError("durable must be the same for all messages of one call: they are confirmed together")
    return values.pop() if values else None


async def _list(call: ApiCall) -> responses.MessagesShown:
    inbox, page = await call.inbox(), call.query
    after = None if page.after is None else decode_cursor(page.after, page.state)
    try:
        found = await inbox.list(page.state, page.limit, after)
    except UsageError as error:
        raise await _missing_cursor(inbox, page, error) from None
    # A page of large messages is shorter than asked for, and need not be the last.
    has_more = bool(found) and (len(found) == page.limit or bool(await inbox.list(page.state, 1, found[-1])))
    messages = [responses.message_response(each, with_payload=call.sees_payloads) for each in found]
    return responses.MessagesShown(messages, encode_cursor(found[-1]) if has_more else None)


async def _missing_cursor(inbox: Inbox, page: requests.MessagePage, error: UsageError) -> DulyError:
    """Say why there is no page: by the id alone of a message that is gone, it is not known where to go on."""
    before = await inbox.get(page.after or "")
    if before is not None and before.state == page.state:
        return error
    problem = f"message {page.after!r} is not {page.state} in {inbox.title} any more"
    return Refused(409, f"{problem}: begin without `after`, or give what `next` of a page was")


async def _get(call: ApiCall) -> responses.Message:
    inbox = await call.inbox()
    message = await inbox.get(call.path_param("id"))
    if message is None:
        raise message_not_found(inbox, call.path_param("id"))
    return responses.message_response(message, with_payload=call.sees_payloads)


async def _explain(call: ApiCall) -> responses.Explanation:
    return responses.Explanation(await (await call.inbox()).explain(call.path_param("id")))


async def _cancel(call: ApiCall) -> None:
    inbox, id_ = await call.inbox(), call.path_param("id")
    if await inbox.cancel(id_, running=call.query.running):
        return
    message = await inbox.get(id_)
    if message is None or message.state == "done":
        raise message_not_found(inbox, id_)
    raise Refused(
        409,
        f"message {id_} of {inbox.title} is not cancelled: a consumer has it, and its handler may have begun. "
        "?running=true takes it from the consumer and ends it",
    )


async def _move(call: ApiCall) -> responses.Message | None:
    """Give a message another due time. One that was taken and finished at once is not there to be shown."""
    inbox, messages, id_ = await call.inbox(), call.body, call.path_param("id")
    if messages.promote and (messages.delay is not None or messages.at is not None):
        raise UsageError("promote makes a message due now: give it, or delay, or at")
    moved = inbox.promote(id_) if messages.promote else inbox.reschedule(id_, delay=messages.delay, at=messages.at)
    is_moved = await moved
    message = await inbox.get(id_)
    if not is_moved:
        if message is None:
            raise message_not_found(inbox, id_)
        raise Refused(409, f"message {id_} of {inbox.title} does not wait: it is {message.state}")
    return None if message is None else responses.message_response(message, with_payload=call.sees_payloads)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="POST",
        path="/queues/{queue}/messages",
        name="send",
        summary="Store a message, or a list of them. The queue is created by its first use.",
        needs="operator",
        handle=_send,
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
        handle=_publish,
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
        handle=_list,
        query=requests.MessagePage,
        answer=responses.MessagesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/explanations/{id}",
        name="explain",
        summary="Say in one sentence why a message is not being delivered, and when it will be.",
        needs="operator",
        handle=_explain,
        answer=responses.Explanation,
    ),
    Operation(
        method="GET",
        path="{inbox}/messages/{id}",
        name="get",
        summary="Look at one message.",
        needs="viewer",
        handle=_get,
        answer=responses.Message,
    ),
    Operation(
        method="PATCH",
        path="{inbox}/messages/{id}",
        name="reschedule",
        summary="Give a waiting message another due time: delay, at, or promote. 204: it is over by now.",
        needs="operator",
        handle=_move,
        body=requests.Move,
        answer=responses.Message,
        may_return_nothing=True,
        is_logged=True,
    ),
    Operation(
        method="DELETE",
        path="{inbox}/messages/{id}",
        name="cancel",
        summary="End a message that waits or is dead. 409: a consumer has it; running=true takes it away.",
        needs="operator",
        handle=_cancel,
        query=requests.CancelHow,
        answer=None,
        is_logged=True,
    ),
)
