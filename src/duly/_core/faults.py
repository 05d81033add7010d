"""The faults that an audit can find: what each means for the message, and what a repair does.

The scripts name a fault by its text. A star stands for a variable part. A test compares this table with the scripts
and with the page for operators.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from duly.message import AuditFault


class Fault(NamedTuple):
    """One kind of damage."""

    what: str
    """The text that the scripts return; `*` stands for a variable part."""
    meaning: str
    fix: str


WRONG_BYTES: Final = "counts wrong bytes"

FAULTS: Final = (
    Fault(
        "body without a place",
        "The message is stored, but no consumer would ever find it.",
        "It waits again until its due time; a dead or finished message returns to that state.",
    ),
    Fault(
        "damaged body without a place",
        "The data stored under this id cannot be read, and no consumer would ever find it.",
        "It becomes a dead letter with the reason damaged; the remaining data is kept.",
    ),
    Fault(
        "place without a body",
        "Consumers would find the id, but the body is lost.",
        "It becomes a dead letter with the reason body lost, so that its id stays known.",
    ),
    Fault(
        "a body that only the stream has",
        "The group has lost the body or cannot read it: consumers would find only an id.",
        "The body is read from the topic's stream again; the message keeps its place.",
    ),
    Fault(
        "place of an entry that was not read yet",
        "The group has not read the entry yet: this place would make it a dead letter.",
        "The place is removed; the entry is delivered in its turn.",
    ),
    Fault(
        "body of an entry that was not read yet",
        "The group has not read the entry yet, and the data stored under its id cannot be read.",
        "The data is removed; the entry is delivered in its turn.",
    ),
    Fault(
        "waits, but has entered the stream",
        "Every group would receive the entry a second time.",
        "The delayed copy is removed; the entry stays.",
    ),
    Fault(
        "dead, though it can enter the stream",
        "The published message is intact, but no group would ever receive it.",
        "It waits again, and enters the stream at its due time.",
    ),
    Fault(
        "a key that no topic has",
        "A topic delivers nothing before it enters the stream: this key could block a delayed publish.",
        "The key is removed; delayed publishes that still have a body wait for their due time.",
    ),
    Fault(
        "dead without a body",
        "The dead letter cannot be redriven: its body is lost.",
        "It stays a dead letter, with the reason body lost.",
    ),
    Fault(
        "finished without a body",
        "The message is finished, but its kept body is lost.",
        "It is removed from the list of finished messages.",
    ),
    Fault(
        "finished by nobody",
        "The message is listed as finished, but it was never delivered, or its consumer has not settled it.",
        "It waits again until its due time.",
    ),
    Fault(
        "damaged",
        "The stored data cannot be read, so the message cannot be delivered.",
        "It becomes a dead letter with the reason damaged; the remaining data is kept.",
    ),
    Fault(
        "an id that is not text",
        "Clients handle ids as text: no client could settle the message or ask for it.",
        "It becomes a dead letter with the reason damaged; its body is kept.",
    ),
    Fault(
        "in two places: * and *",
        "The message would be delivered twice, or after it has ended.",
        "The first of the two places is kept.",
    ),
    Fault(
        "row in * of no message",
        "It is left over from a message that no longer exists; it only uses memory.",
        "The row is removed.",
    ),
    Fault(
        "waits under a wrong priority",
        "The message would be delivered too early or too late, and cannot be cancelled or rescheduled.",
        "It waits under the priority that it was sent with.",
    ),
    Fault(
        "waits for a wrong time",
        "The message would be delivered before its due time, long after it, or before earlier messages of its key.",
        "It waits for the time that its send, retry or defer set.",
    ),
    Fault(
        "waits for another time than it counts",
        "The message has had two due times since its last retry or defer, and one of them is wrong.",
        "It waits for the later one, so that it is not delivered early.",
    ),
    Fault(
        "leased to nobody",
        "The message counts as delivered, but no consumer can settle it.",
        "It waits again.",
    ),
    Fault(
        "a lease that cannot be read",
        "No consumer can settle the message, and the claim that reclaims it would fail.",
        "The lease ends and the message waits again; its holder gets LeaseLost.",
    ),
    Fault(
        "a lease without an end",
        "If its consumer died, the message would never be redelivered.",
        "The lease ends in a minute, unless its holder settles the message first.",
    ),
    Fault(
        "a lease, but not leased",
        "A former holder could still settle a message that is no longer leased.",
        "The lease ends; the message keeps its place.",
    ),
    Fault(
        "a ttl that nobody watches",
        "The message would not expire at the end of its ttl, unless a claim reaches it.",
        "Its expiry is tracked again.",
    ),
    Fault(
        "a ttl that is watched at a wrong time",
        "The message would expire before the end of its ttl, or too late.",
        "It expires at the end of its ttl.",
    ),
    Fault(
        "in expires, but not waiting",
        "The message would expire while a consumer works on it, or after it has ended.",
        "Its expiry is no longer tracked.",
    ),
    Fault(
        "in expires, but without a ttl",
        "The message would expire, although it has no ttl.",
        "Its expiry is no longer tracked.",
    ),
    Fault(
        "counts that cannot be read",
        "Attempts and delays of the message are unknown, and scripts that read them would fail.",
        "They are counted again from the stored part of its timeline.",
    ),
    Fault(
        "counts of a message that is over",
        "They are left over from before it ended; they only use memory.",
        "The row is removed.",
    ),
    Fault(
        "troubled, but not counted",
        "The message failed before, but would get all of its attempts again.",
        "They are counted again from the stored part of its timeline.",
    ),
    Fault(
        "a past that cannot be read",
        "Errors and timeline of the message are lost, and scripts that add to them would fail.",
        "The row is removed; the message keeps its place.",
    ),
    Fault(
        "alive, but with a reason to be dead",
        "The message is live, but is shown like a dead letter.",
        "The reason is removed; errors and timeline are kept.",
    ),
    Fault(
        "progress of a delivery that is over",
        "It is left over from an earlier delivery; it is not shown, and only uses memory.",
        "It is removed; errors and timeline are kept.",
    ),
    Fault(
        "dead without a reason",
        "The reason why the message is dead is lost.",
        "It stays a dead letter, with the reason unknown.",
    ),
    Fault(
        "over since no time",
        "Retention by age would never remove this dead or finished message, or would remove it at once.",
        "It counts as ended now.",
    ),
    Fault(
        "parked behind nobody",
        "The message waits behind another one of its key that does not exist: it would wait forever.",
        "The messages of its key become deliverable again, one after the other in their order.",
    ),
    Fault(
        "parked behind one that does not know",
        "The message before it would not pass the key on: this one would wait forever.",
        "The message before it is marked as having others behind it.",
    ),
    Fault(
        "parked where it does not belong",
        "The entry belongs to no message, or to one in another state; others of its key could wait for it.",
        "The entry is removed; its message, if it exists, moves to the place where it belongs.",
    ),
    Fault(
        "parked out of its order",
        "Messages of its key would be delivered out of order, and some never.",
        "It returns to its place in the order.",
    ),
    Fault(
        "the lane * belongs to nobody",
        "The messages of this key wait for one that does not exist: they would wait forever.",
        "They become deliverable again, one after the other in their order.",
    ),
    Fault(
        "the lane * has no mark",
        "The message that owns the key could not pass it on: others would wait forever.",
        "It is marked as having others behind it.",
    ),
    Fault(
        "in work without its lane",
        "Another message of its key would be delivered before this one is finished.",
        "It owns its key again.",
    ),
    Fault(
        "half a dedup window",
        "The dedup value would apply forever, or not at all.",
        "The window is restored from the message that opened it, or closed if that message is gone.",
    ),
    Fault(
        "a dedup window without an end",
        "Sends with this dedup value would be dropped as duplicates for more than ten years.",
        "The window ends when the message that opened it asked for, or is closed if that message is gone.",
    ),
    Fault(
        "a key of another type",
        "Calls that need this key fail, and its data is lost. Nothing else can be checked before it is repaired.",
        "The foreign value is removed. Messages that still have a body return to their places.",
    ),
    Fault(
        "a key that would expire",
        "Another program gave the key a time to live: the server would remove it with all of its data.",
        "The time to live is removed. Of the two keys of dedup windows, each expires together with the other.",
    ),
    Fault(
        "a key that would never expire",
        "The key is needed only for a while; it would use memory forever.",
        "It expires when it is no longer needed.",
    ),
    Fault(
        "a field of meta that cannot be read",
        "Calls that need this number fail. Nothing else can be checked before it is repaired.",
        "The field is removed; a counter starts again from 0, and the difference is counted as corrected.",
    ),
    Fault(
        "a history that cannot be read",
        "Charts and histograms lack a part; messages are not affected.",
        "The unreadable part is removed.",
    ),
    Fault(
        "a field of meta that is missing",
        "Claims do not know that there are large messages, or messages with a key: they would take too many at once.",
        "The field is set again.",
    ),
    Fault(
        "a clock that is far ahead",
        "The queue's clock is days ahead of the server's clock: no lease or delay ends until the server catches up.",
        "It is set to the server's time, unless stored messages may have a time from it: end those first.",
    ),
    Fault(
        "a rate without an end",
        "The rate limit would allow the next delivery only in more than ten years.",
        "The rate limit is reset: one message can be delivered at once.",
    ),
    Fault(
        "a counter below zero",
        "The number is wrong; messages are not affected.",
        "The counter starts again from 0, and the difference is counted as corrected.",
    ),
    Fault(
        WRONG_BYTES,
        "Bounds by bytes would be applied too early or too late; messages are not affected.",
        "The counter is set to the size of the stored messages.",
    ),
    Fault(
        "a priority that no claim looks at",
        "Messages of this priority would never be delivered, neither waiting ones nor those that are retried.",
        "Claims check it again.",
    ),
    Fault(
        "priorities out of order",
        "Messages of a lower priority would be delivered first.",
        "The order is restored.",
    ),
    Fault(
        "without its pillar",
        "One message too few would be counted, and a key could be lost when another one is passed on.",
        "Its placeholder entry is restored.",
    ),
    Fault(
        "a pillar and nothing else",
        "It is left over; it only uses memory.",
        "The key is removed.",
    ),
    Fault(
        "the next slot is noted wrong",
        "Schedules of the queue would fire late, or never.",
        "The time of the next run is corrected.",
    ),
    Fault(
        "a schedule that nobody looks at",
        "The schedule would never fire.",
        "It is checked again at once, and fires as its catch_up asks for.",
    ),
    Fault(
        "a paused schedule that is looked at",
        "Consumers would check the schedule again and again.",
        "It is not checked until it is resumed.",
    ),
    Fault(
        "a slot of no schedule",
        "Consumers would check again and again for a schedule that does not exist.",
        "The slot is removed.",
    ),
    Fault(
        "a slot at no time",
        "The schedule would fire again and again, or not for years.",
        "It is checked again at once, and fires as its catch_up asks for.",
    ),
    Fault(
        "a schedule that cannot be read",
        "The schedule's definition is lost, so it cannot fire.",
        "It is removed: declare it again.",
    ),
)
"""Every fault, by the text that the scripts return. The client itself finds `WRONG_BYTES`."""


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Fault], ...]:
    return tuple((re.compile(re.escape(each.what).replace(r"\*", ".*"), re.DOTALL), each) for each in FAULTS)


def fault_of(what: str) -> Fault:
    """Find a fault by its text."""
    for pattern, fault in _patterns():
        if pattern.fullmatch(what):
            return fault
    raise LookupError(f"no fault is called {what!r}")


def explained(id_: str, what: str, detail: str = "") -> AuditFault:
    """Return a fault with its meaning and what a repair does."""
    fault = fault_of(what)
    return AuditFault(id_, what, detail, fault.meaning, fault.fix)


def without_repeats(found: Iterable[AuditFault]) -> list[AuditFault]:
    """Keep each fault once: an audit finds an id in every key that has it."""
    return list(dict.fromkeys(found))
