"""The sentences of `explain`: why a message is not being delivered, and when it will be."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from duly._core.naming import kind_of, title_of
from duly._core.views import MessageDetails, moment
from duly.message import Message
from duly.options import QueueOptions, interval_of


def explained(queue: str, id_: str, details: MessageDetails | None, options: QueueOptions) -> str:
    """Explain a message. `options` are the caller's: limits are not stored with a queue."""
    if details is None:
        gone = "it was never sent, or is finished, cancelled, expired or trimmed"
        return f"message {id_} of {title_of(queue)} is unknown: {gone}."
    message = details.message
    return f"message {id_} of {title_of(queue)} {_SENTENCES[message.state](details, options)}."


# Entries that a group does not have


def explained_unread(group: str, id_: str, unread: int, paused: str | None, *, is_wanted: bool) -> str:
    """Explain an entry that its group has not read yet. `unread`: the number of unread entries."""
    if not is_wanted:
        return f"message {id_} of {title_of(group)} is unread, and will be skipped: it lacks the group's headers."
    which = f"one of {unread} unread entries" if unread > 1 else "the only unread entry"
    paused_by = f", and the group is paused by {paused}: it is delivered after resume()" if paused else ""
    return f"message {id_} of {title_of(group)} is {which}{paused_by or _ON_RECEIVE}."


def explained_to_come(group: str, id_: str, details: MessageDetails, *, is_group_there: bool) -> str:
    """Explain a delayed publish, for a group: it waits in the topic, or could not enter the stream."""
    if details.message.state == "dead":
        return f"message {id_} of {title_of(group)} {_entering(details)}."
    way = f"{_entering(details)}, as an entry with a new id"
    how = "like any entry" if is_group_there else "if it exists by then, or starts before it"
    return f"message {id_} of {title_of(group)} {way}: the group receives it then, {how}."


def explained_without_group(group: str, id_: str, topic: str, others: Sequence[str]) -> str:
    """Explain that the group does not exist, and name the groups that do."""
    existing = f"has {', '.join(map(repr, others))}" if others else "has no group"
    return (
        f"message {id_} of {title_of(group)} is unknown: the group does not exist, topic {topic!r} {existing}. A group "
        "is created by its first receive, its worker, or create()."
    )


def explained_absent(group: str, id_: str, *, is_in_stream: bool) -> str:
    """Explain an entry that the group does not have and will not read."""
    skipped = "skipped because of its headers, seek() or the start of the group"
    if is_in_stream:
        why = f"is no longer in the group, which has read past it: it is finished or cancelled, or was {skipped}"
    else:
        why = f"is unknown: it was never published, or is finished, cancelled, {skipped}, or trimmed from the topic"
    return f"message {id_} of {title_of(group)} {why}."


# Entries and delayed publishes of a topic


def explained_delayed(topic: str, id_: str, details: MessageDetails) -> str:
    """Explain a delayed publish: it waits, or could not enter the stream."""
    return f"message {id_} of topic {topic!r} {_entering(details)}."


def explained_entry(topic: str, id_: str, groups: Sequence[str]) -> str:
    """Explain an entry of the stream."""
    where = f"explain(id) of the groups {', '.join(map(repr, groups))} shows what they did with it"
    return f"message {id_} of topic {topic!r} is in the stream: {where if groups else 'there is no group to read it'}."


def explained_missing(topic: str, id_: str, *, is_entry: bool) -> str:
    """Explain an id that the topic does not have."""
    if is_entry:
        why = "it was never published, or was trimmed, or was freed after every group had acked it"
    else:
        why = "it was never published with a delay, or was cancelled, or has entered the stream with another id"
    return f"message {id_} of topic {topic!r} is unknown: {why}."


def _entering(details: MessageDetails) -> str:
    due = _time(details.message.due_at)
    if details.message.state == "dead":
        why = details.message.reason
        return f"never enters the stream, {why!r}: another program removed or overwrote its data; cancel(id) removes it"
    if details.message.state == "ready":
        return f"was delayed until {due}: it enters the stream with the next publish, read or receive"
    return f"waits in the topic: it enters the stream at {due}"


# Messages of a queue or group

_ON_RECEIVE: Final = ": it is delivered when a consumer asks for messages"


def _of_ready(details: MessageDetails, options: QueueOptions) -> str:
    due = f"has been ready since {_time(details.message.due_at)}"
    if details.paused is not None:
        kind = kind_of(details.message.queue)
        return f"{due}, but the {kind} is paused by {details.paused}: it is delivered after resume()"
    if details.owner not in (None, details.message.id):
        return _of_parked(details, options)
    if options.max_in_flight is not None and details.leased >= options.max_in_flight:
        return (
            f"{due}, but {details.leased} messages are in flight and max_in_flight is {options.max_in_flight}: it is "
            f"delivered when one of them is settled{_turn(details)}"
        )
    interval = interval_of(options.rate)
    if interval and details.tat > details.now:
        until = min(details.tat, details.now + interval)  # a consumer with a slower rate may have written it
        return f"{due}, but the rate of {options.rate} is used up until {_time(moment(until))}{_turn(details)}"
    if _is_suspect(details.message, options):
        return f"{due} and one more crash makes it dead: it waits for a worker that holds nothing else{_turn(details)}"
    share = f" by due time, and retry_share is {options.retry_share}" if options.retry_share and details.ahead else ""
    return f"{due}{_turn(details)}{share}{_ON_RECEIVE}"


def _is_suspect(message: Message, options: QueueOptions) -> bool:
    return options.crash_limit > 1 and message.crashes >= options.crash_limit - 1


def _turn(details: MessageDetails) -> str:
    if not details.ahead:
        return ", first in line"
    return f", behind {details.ahead} {'other' if details.ahead == 1 else 'others'}"


def _of_delayed(details: MessageDetails, options: QueueOptions) -> str:  # noqa: ARG001
    message = details.message
    last = message.timeline[-1].what if message.timeline else "sent"
    until = _time(message.due_at)
    if last == "retry":
        error = f" after error {message.errors[-1].error!r}" if message.errors else " after a failure"
        return f"is in backoff{error}: attempt {message.attempt} is due at {until}"
    if last == "defer":
        reason = message.timeline[-1].detail
        because = f" ({reason})" if reason else ""
        return f"was deferred {_times(message.defers)}{because}: it is due again at {until}"
    return f"is delayed until {until}"


def _of_parked(details: MessageDetails, options: QueueOptions) -> str:
    behind = f"is behind message {details.owner} of key {details.message.key!r}"
    if details.owner_place == "dead":  # its lane is blocked, regardless of the caller's options
        return f"{behind}, which is dead: redrive(), cancel() or purge it"
    end = "finished or removed" if options.on_dead == "block" else "finished or dead"
    return f"{behind}{_front(details)}: it is delivered after that one is {end}"


def _front(details: MessageDetails) -> str:
    """Describe the message in front."""
    state = {"leased": "leased until", "waiting": "due at"}.get(details.owner_place)
    return f", which is {state} {_time(moment(details.owner_score))}" if state else ""


def _of_leased(details: MessageDetails, options: QueueOptions) -> str:  # noqa: ARG001
    message, until = details.message, _time(details.message.deadline)
    if message.deadline is not None and message.deadline <= moment(details.now):
        return f"was leased by {message.consumer} until {until}: the next receive counts a crash and frees it"
    return f"is leased by {message.consumer} until {until}, attempt {message.attempt}"


def _of_dead(details: MessageDetails, options: QueueOptions) -> str:  # noqa: ARG001
    message = details.message
    error = f", last error {message.errors[-1].error!r}" if message.errors else ""
    return f"has been dead since {_time(message.finished_at)}: {message.reason}{error}; redrive() delivers it again"


def _of_done(details: MessageDetails, options: QueueOptions) -> str:  # noqa: ARG001
    return f"was finished at {_time(details.message.finished_at)}"


_SENTENCES: Final = {
    "ready": _of_ready,
    "delayed": _of_delayed,
    "parked": _of_parked,
    "leased": _of_leased,
    "dead": _of_dead,
    "done": _of_done,
}


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _time(moment_: datetime | None) -> str:
    return "an unknown time" if moment_ is None else moment_.isoformat(timespec="milliseconds")
