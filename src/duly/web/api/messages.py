"""Single messages: send, list, inspect, reschedule and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

from duly._port import Inbox
from duly.errors import DulyError, NotFinished, UsageError
from duly.message import MessageId
from duly.web.api import requests, responses
from duly.web.api.operation import ApiCall, Operation
from duly.web.names import message_not_found
from duly.web.opaque import decode_cursor, encode_cursor
from duly.web.problems import Refused
from duly.web.searching import search


async def _send(call: ApiCall) -> responses.Sent:
    queue = call.site.names.open_for_sending(call.path_param("queue"))
    return await _store(call, queue.send_many)


async def _publish(call: ApiCall) -> responses.Sent:
    topic = call.site.names.open_topic(call.path_param("topic"), typed=True)
    return await _store(call, topic.publish_many)


async def _store(call: ApiCall, store: Any) -> responses.Sent:
    """Store one message or several. All are validated before the first is sent."""
    is_list = isinstance(call.body, list)
    messages: Sequence[requests.Publish] = call.body if is_list else [call.body]
    ids = await store([each.to_duly() for each in messages], durable=_common_durability(messages))
    return _stored(ids, is_list=is_list)


def _stored(ids: Sequence[MessageId], *, is_list: bool) -> responses.Sent:
    texts = list(map(str, ids))
    sent = responses.Sent(ids=texts) if is_list else responses.Sent(id=texts[0])
    confirmed = [each.durable for each in ids if each.durable is not None]
    if confirmed:  # several calls may have reached different numbers of replicas
        sent.durable = min(confirmed, key=lambda level: level if isinstance(level, int) else 0)
    return sent


def _common_durability(messages: Sequence[requests.Publish]) -> Any:
    """Return the durability of all messages. It must be the same, because they are confirmed together."""
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
    # A page of large messages is shorter than the limit, and may not be the last.
    has_more = bool(found) and (len(found) == page.limit or bool(await inbox.list(page.state, 1, found[-1])))
    messages = [responses.message_response(each, with_payload=call.sees_payloads) for each in found]
    return responses.MessagesShown(messages, encode_cursor(found[-1]) if has_more else None)


async def _search(call: ApiCall) -> responses.MessagesShown:
    found = await search(call.site.names, call.path_param("id"), call.query.after)
    messages = [responses.message_response(each, with_payload=call.sees_payloads) for each in found.hits]
    return responses.MessagesShown(messages, found.next, responses.missing_nodes(found.away))


async def _missing_cursor(inbox: Inbox, page: requests.MessagePage, error: UsageError) -> DulyError:
    """Explain why there is no page. The id of a message that has left the state does not determine a position."""
    before = await inbox.get(page.after or "")
    if before is not None and before.state == page.state:
        return error
    problem = f"message {page.after!r} is no longer {page.state} in {inbox.title}"
    return Refused(409, f"{problem}: start without `after`, or use `next` of a page")


async def _get(call: ApiCall) -> responses.Message:
    inbox = await call.inbox()
    message = await inbox.get(call.path_param("id"))
    if message is None:
        raise message_not_found(inbox, call.path_param("id"))
    return responses.message_response(message, with_payload=call.sees_payloads)


async def _explain(call: ApiCall) -> responses.Explanation:
    return responses.Explanation(await call.site.snapshots.explain(await call.inbox(), call.path_param("id")))


async def _cancel(call: ApiCall) -> None:
    inbox, id_ = await call.inbox(), call.path_param("id")
    if await inbox.cancel(id_, running=call.query.running):
        return
    message = await inbox.get(id_)
    if message is None or message.state == "done":
        raise message_not_found(inbox, id_)
    raise Refused(
        409,
        f"message {id_} of {inbox.title} was not cancelled: a consumer holds it, and its handler may have started. "
        "?running=true takes it away from the consumer and cancels it",
    )


async def _move(call: ApiCall) -> responses.Message | None:
    """Change the due time of a message. Nothing is returned if it was delivered and finished in the meantime."""
    inbox, messages, id_ = await call.inbox(), call.body, call.path_param("id")
    if messages.promote and (messages.delay is not None or messages.at is not None):
        raise UsageError("promote makes a message due now: give either promote, delay or at")
    moved = inbox.promote(id_) if messages.promote else inbox.reschedule(id_, delay=messages.delay, at=messages.at)
    is_moved = await moved
    message = await inbox.get(id_)
    if not is_moved:
        if message is None:
            raise message_not_found(inbox, id_)
        raise Refused(409, f"message {id_} of {inbox.title} is not waiting: it is {message.state}")
    return None if message is None else responses.message_response(message, with_payload=call.sees_payloads)


async def _result(call: ApiCall) -> responses.Result | None:
    """Wait for the result of a message. Nothing is returned if it is not finished in time."""
    await call.site.names.check_reached(call.request.path_params)
    queue, id_, wait = (
        call.site.names.open_for_results(call.path_param("queue")),
        call.path_param("id"),
        call.query.wait,
    )
    try:
        with call.site.poll_limit.hold() if wait else nullcontext():
            value = await call.run_while_connected(queue.result(id_, wait))
    except NotFinished:
        return None
    return responses.Result(id_, responses.to_json(value))


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="POST",
        path="/queues/{queue}/messages",
        name="send",
        summary="Store a message, or a list of messages. The queue is created by its first use.",
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
        summary="Publish a message, or a list of messages, to every group of a topic.",
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
        summary="List a page of the messages in a state.",
        needs="viewer",
        handle=_list,
        query=requests.MessagePage,
        answer=responses.MessagesShown,
    ),
    Operation(
        method="GET",
        path="/search/{id}",
        name="search",
        summary="Return the messages with an id, of all queues and groups. Over many queues, it takes several calls.",
        needs="viewer",
        handle=_search,
        query=requests.SearchFor,
        answer=responses.MessagesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/explanations/{id}",
        name="explain",
        summary="Explain in one sentence why a message is not being delivered, and when it will be.",
        needs="operator",
        handle=_explain,
        answer=responses.Explanation,
    ),
    Operation(
        method="GET",
        path="/queues/{queue}/results/{id}",
        name="result",
        summary="Return the result of a message, and wait for it. 204: it is not finished. 409: its handler failed.",
        needs="operator",
        handle=_result,
        query=requests.ResultOf,
        answer=responses.Result,
        may_return_nothing=True,
    ),
    Operation(
        method="GET",
        path="{inbox}/messages/{id}",
        name="get",
        summary="Return one message.",
        needs="viewer",
        handle=_get,
        answer=responses.Message,
    ),
    Operation(
        method="PATCH",
        path="{inbox}/messages/{id}",
        name="reschedule",
        summary="Change the due time of a waiting message: delay, at, or promote. 204: it has been finished since.",
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
        summary="Cancel a waiting or dead message. 409: a consumer holds it; running=true takes it away.",
        needs="operator",
        handle=_cancel,
        query=requests.CancelHow,
        answer=None,
        is_logged=True,
    ),
)
