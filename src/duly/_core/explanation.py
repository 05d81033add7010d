"""One true sentence: why a message is not being delivered, and when it will be."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from duly._core.naming import kind_of, title_of
from duly._core.replies import Sight, moment
from duly.message import Message
from duly.options import QueueOptions, interval_of


def explained(queue: str, id_: str, sight: Sight | None, options: QueueOptions) -> str:
    """Explain a message, where `options` are those of the one who asks: limits are not stored with a queue."""
    if sight is None:
        gone = "it was never sent, or is finished, cancelled, expired or trimmed"
        return f"message {id_} of {title_of(queue)} is unknown: {gone}."
    message = sight.message
    return f"message {id_} of {title_of(queue)} {_TELLERS[message.state](sight, options)}."


# What a group does not have


def explained_unread(group: str, id_: str, unread: int, paused: str | None, *, is_wanted: bool) -> str:
    """Explain an entry that its group has not read yet, one of so many."""
    if not is_wanted:
        return f"message {id_} of {title_of(group)} is unread, and will be passed over: it has not the group's headers."
    which = f"as one of {unread} entries" if unread > 1 else "as the only entry"
    why = f", and the group is paused by {paused}: it is delivered after resume()" if paused else ""
    return f"message {id_} of {title_of(group)} is unread, {which}{why or ': it is delivered as consumers ask'}."


def explained_to_come(group: str, id_: str, sight: Sight, *, is_group_there: bool) -> str:
    """Explain a publish that waits for its time in the topic, or could not enter when it came."""
    if sight.message.state == "dead":
        return f"message {id_} of {title_of(group)} {_entering(sight)}."
    way = f"{_entering(sight)}, as an entry with an id of its own"
    how = "as all others" if is_group_there else "if it exists by then, or begins before it"
    return f"message {id_} of {title_of(group)} {way}: the group gets it then, {how}."


def explained_without_group(group: str, id_: str, topic: str, others: Sequence[str]) -> str:
    """Say that there is no such group, and which there are."""
    there = f"has {', '.join(map(repr, others))}" if others else "has no group"
    return (
        f"message {id_} of {title_of(group)} is unknown: the group does not exist, topic {topic!r} {there}. A group is "
        "made by its first receive, its worker, or create()."
    )


def explained_absent(group: str, id_: str, *, is_in_stream: bool) -> str:
    """Say what may have become of an entry that the group has not, and will not read."""
    passed = "passed over by its headers, by seek() or by where it began"
    if is_in_stream:
        why = f"is not in the group any more, which has read on behind it: it is finished or cancelled, or was {passed}"
    else:
        why = f"is unknown: it was never published, or is finished, cancelled, {passed}, or trimmed from the topic"
    return f"message {id_} of {title_of(group)} {why}."


# What a topic has


def explained_delayed(topic: str, id_: str, sight: Sight) -> str:
    """Explain a publish that waits for its time, or could not enter when it came."""
    return f"message {id_} of topic {topic!r} {_entering(sight)}."


def explained_entry(topic: str, id_: str, groups: Sequence[str]) -> str:
    """Explain an entry of the stream."""
    who = f"the groups {', '.join(map(repr, groups))} tell by explain(id) what they did with it"
    return f"message {id_} of topic {topic!r} is in the stream: {who if groups else 'there is no group to read it'}."


def explained_missing(topic: str, id_: str, *, is_entry: bool) -> str:
    """Say what may have become of something that the topic has not."""
    if is_entry:
        why = "it was never published, or is trimmed, or freed after every group has acked it"
    else:
        why = "it was never published with a delay, or was cancelled, or has entered the stream, with another id"
    return f"message {id_} of topic {topic!r} is unknown: {why}."


def _entering(sight: Sight) -> str:
    due = _time(sight.message.due_at)
    if sight.message.state == "dead":
        why = sight.message.reason
        return f"never enters the stream, {why!r}: somebody removed or overwrote what it held; cancel(id) forgets it"
    if sight.message.state == "ready":
        return f"was delayed until {due}: it enters the stream with the next publish, read or claim"
    return f"waits in the topic: it enters the stream at {due}"


# What is in a store


def _of_ready(sight: Sight, options: QueueOptions) -> str:
    due = f"is ready since {_time(sight.message.due_at)}"
    if sight.paused is not None:
        return (
            f"{due}, but the {kind_of(sight.message.queue)} is paused by {sight.paused}: it is delivered after resume()"
        )
    if sight.owner not in (None, sight.message.id):
        return _of_parked(sight, options)
    if options.max_in_flight is not None and sight.leased >= options.max_in_flight:
        return (
            f"{due}, but {sight.leased} messages are out and max_in_flight is {options.max_in_flight}: it is "
            f"delivered when one of them is settled{_turn(sight)}"
        )
    interval = interval_of(options.rate)
    if interval and sight.tat > sight.now:
        until = min(sight.tat, sight.now + interval)  # a slower rate may have written it
        return f"{due}, but the rate of {options.rate} is used up until {_time(moment(until))}{_turn(sight)}"
    if _is_suspect(sight.message, options):
        return (
            f"{due} and its next crash would be its last: it waits for a worker that holds nothing else{_turn(sight)}"
        )
    return f"{due}{_turn(sight)}: it is delivered as consumers ask"


def _is_suspect(message: Message, options: QueueOptions) -> bool:
    return options.crash_limit > 1 and message.crashes >= options.crash_limit - 1


def _turn(sight: Sight) -> str:
    if not sight.ahead:
        return ", as the first"
    return f", behind {sight.ahead} {'other' if sight.ahead == 1 else 'others'}"


def _of_delayed(sight: Sight, options: QueueOptions) -> str:  # noqa: ARG001
    message = sight.message
    last = message.timeline[-1].what if message.timeline else "sent"
    until = _time(message.due_at)
    if last == "retry":
        error = f" after error {message.errors[-1].error!r}" if message.errors else " after a failure"
        return f"is in back-off{error}: attempt {message.attempt} is due at {until}"
    if last == "defer":
        reason = message.timeline[-1].detail
        because = f" ({reason})" if reason else ""
        return f"was deferred {_times(message.defers)}{because}: it is due again at {until}"
    return f"is delayed until {until}"


def _of_parked(sight: Sight, options: QueueOptions) -> str:
    behind = f"is behind message {sight.owner} of key {sight.message.key!r}"
    if sight.owner_place == "dead":  # its lane is blocked, whatever the options of the one who asks
        return f"{behind}, which is dead: redrive(), cancel() or purge it"
    end = "finished or removed" if options.on_dead == "block" else "finished or dead"
    return f"{behind}{_front(sight)}: it is delivered after that one is {end}"


def _front(sight: Sight) -> str:
    """Say what the message in front does."""
    does = {"leased": "leased until", "waiting": "due at"}.get(sight.owner_place)
    return f", which is {does} {_time(moment(sight.owner_score))}" if does else ""


def _of_leased(sight: Sight, options: QueueOptions) -> str:  # noqa: ARG001
    message, until = sight.message, _time(sight.message.deadline)
    if message.deadline is not None and message.deadline <= moment(sight.now):
        return f"was leased by {message.consumer} until {until}: the next claim takes it back, as a crash"
    return f"is leased by {message.consumer} until {until}, attempt {message.attempt}"


def _of_dead(sight: Sight, options: QueueOptions) -> str:  # noqa: ARG001
    message = sight.message
    error = f", last error {message.errors[-1].error!r}" if message.errors else ""
    return (
        f"is dead since {_time(message.finished_at)} because: {message.reason}{error}; redrive() puts it back to work"
    )


def _of_done(sight: Sight, options: QueueOptions) -> str:  # noqa: ARG001
    return f"was finished at {_time(sight.message.finished_at)}"


_TELLERS: Final = {
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
