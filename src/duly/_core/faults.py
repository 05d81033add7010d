"""What an audit can find, in words: what it means for the message, and what a repair does about it.

The scripts name a fault by its text; a star stands for a part that differs. A test holds this table, the scripts and
the page for operators together.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from duly.message import AuditFault


class Fault(NamedTuple):
    """One kind of damage."""

    what: str
    """As the scripts say it; `*` is the part that differs."""
    meaning: str
    mend: str


WRONG_BYTES: Final = "counts wrong bytes"

FAULTS: Final = (
    Fault(
        "body without a place",
        "The message is stored, but no consumer would ever find it.",
        "It goes back to where it waits, at its own time; a dead or finished one back to its kind.",
    ),
    Fault(
        "damaged body without a place",
        "What is stored under this id cannot be read, and no consumer would ever find it.",
        "It becomes a dead letter with the reason damaged; what is left of it is kept.",
    ),
    Fault(
        "place without a body",
        "Consumers would find the id, but what was sent is gone.",
        "It becomes a dead letter with the reason body lost, so that its id is known.",
    ),
    Fault(
        "a body that only the stream has",
        "The group has lost what was published, or cannot read it: consumers would find an id and nothing else.",
        "It is read from the topic's stream again; the message stays where it is.",
    ),
    Fault(
        "place of an entry that was not read yet",
        "The entry is still to come: its place stands for nothing, and would make a dead letter of it.",
        "The place is removed; the entry comes in its turn.",
    ),
    Fault(
        "body of an entry that was not read yet",
        "The entry is still to come, and what is stored under its id cannot be read.",
        "It is removed; the entry comes in its turn.",
    ),
    Fault(
        "waits, but has entered the stream",
        "Every group would be given the publish a second time.",
        "It does not wait any more; the entry stays.",
    ),
    Fault(
        "dead, though it can enter the stream",
        "What was published is whole, but no group would ever be given it.",
        "It waits to enter the stream, at its own time.",
    ),
    Fault(
        "a key that no topic has",
        "Nothing is handed out before it has entered the stream: what the key says of a publish could hold it back.",
        "The key is removed; publishes whose bodies are left wait for their time.",
    ),
    Fault(
        "dead without a body",
        "The dead letter cannot be redriven: what was sent is gone.",
        "It stays a dead letter, with the reason body lost.",
    ),
    Fault(
        "finished without a body",
        "The message is finished; only what was kept of it is gone.",
        "It is taken off the list of finished messages.",
    ),
    Fault(
        "finished by nobody",
        "The message is among those that are finished, but nobody was given it, or whoever was has not settled it.",
        "It goes back to where it waits, at its own time.",
    ),
    Fault(
        "damaged",
        "What is stored cannot be read, so it cannot be delivered.",
        "It becomes a dead letter with the reason damaged; what is left of it is kept.",
    ),
    Fault(
        "an id that is not text",
        "Clients know ids as text: nobody could settle the message, or ask for it.",
        "It becomes a dead letter with the reason damaged; its body is kept.",
    ),
    Fault(
        "in two places: * and *",
        "The message would be handed out twice, or after it has ended.",
        "The first of the two places is kept.",
    ),
    Fault(
        "row in * of no message",
        "It is left over from a message that is not there; it only takes room.",
        "The row is removed.",
    ),
    Fault(
        "waits under a wrong priority",
        "The message would be handed out too early or too late, and cannot be cancelled or rescheduled.",
        "It waits under the priority that it was sent with.",
    ),
    Fault(
        "waits for a wrong time",
        "The message would be handed out before its time, long after it, or before others of its key.",
        "It waits for the time that was asked for by its send, retry or defer.",
    ),
    Fault(
        "waits for another time than it counts",
        "Since its last retry or defer the message has two times to wait for, and one of them is wrong.",
        "It waits for the later one, so that it does not come early.",
    ),
    Fault(
        "leased to nobody",
        "The message counts as handed out, but no consumer can settle it.",
        "It goes back to where it waits.",
    ),
    Fault(
        "a lease that cannot be read",
        "Nobody can settle the message, and the claim that takes it back would fail.",
        "The lease ends and the message goes back to where it waits; its holder finds the lease lost.",
    ),
    Fault(
        "a lease without an end",
        "The message would never come back from a consumer that died.",
        "The lease ends in a minute, unless its holder settles the message before.",
    ),
    Fault(
        "a lease, but not leased",
        "A former holder could still settle a message that is not out any more.",
        "The lease ends; the message stays where it is.",
    ),
    Fault(
        "a ttl that nobody watches",
        "The message would not be dropped when its ttl is over, unless a claim meets it.",
        "It is watched again.",
    ),
    Fault(
        "a ttl that is watched at a wrong time",
        "The message would be dropped before its ttl is over, or too late.",
        "It is watched at the end of its ttl.",
    ),
    Fault(
        "in expires, but not waiting",
        "The message would be dropped as expired while somebody works on it, or after it has ended.",
        "It is not watched any more.",
    ),
    Fault(
        "in expires, but without a ttl",
        "The message would be dropped as expired, though it has no ttl.",
        "It is not watched any more.",
    ),
    Fault(
        "counts that cannot be read",
        "Attempts and delays of the message are unknown, and scripts that ask for them would fail.",
        "They are counted again from its timeline, as far as that is kept.",
    ),
    Fault(
        "counts of a message that is over",
        "They are left over from its life; they only take room.",
        "The row is removed.",
    ),
    Fault(
        "troubled, but not counted",
        "The message failed before, but would have all of its attempts again.",
        "They are counted again from its timeline, as far as that is kept.",
    ),
    Fault(
        "a past that cannot be read",
        "Errors and timeline of the message are lost, and scripts that add to them would fail.",
        "The row is removed; the message stays where it is.",
    ),
    Fault(
        "alive, but with a reason to be dead",
        "The message is at work and looks like a dead letter.",
        "The reason is removed; errors and timeline are kept.",
    ),
    Fault(
        "progress of a delivery that is over",
        "It is left over from an earlier delivery; it is not shown, and only takes room.",
        "It is removed; errors and timeline are kept.",
    ),
    Fault(
        "dead without a reason",
        "Nobody knows why the message is dead.",
        "It stays a dead letter, with the reason unknown.",
    ),
    Fault(
        "over since no time",
        "A dead or finished message would never be trimmed by its age, or at once.",
        "It counts as ended now.",
    ),
    Fault(
        "parked behind nobody",
        "The message waits behind another one of its key that does not exist: it would wait for ever.",
        "Those of its key wait to be handed out, one after the other in their order.",
    ),
    Fault(
        "parked behind one that does not know",
        "The message before it would not hand the key on: it would wait for ever.",
        "The message before it is told.",
    ),
    Fault(
        "parked where it does not belong",
        "The entry stands for no message, or for one that is somewhere else; others of its key could wait for it.",
        "The entry is removed; its message, if there is one, takes the place where it belongs.",
    ),
    Fault(
        "parked out of its order",
        "Messages of its key would be handed out in another order, and some never.",
        "It has its place in the order again.",
    ),
    Fault(
        "the lane * belongs to nobody",
        "The messages of this key wait for one that is not there: they would wait for ever.",
        "They wait to be handed out, one after the other in their order.",
    ),
    Fault(
        "the lane * has no mark",
        "The message that the key belongs to could not hand it on: others would wait for ever.",
        "It is told that others may be behind it.",
    ),
    Fault(
        "in work without its lane",
        "Another message of its key would be handed out before this one is finished.",
        "Its key belongs to it again.",
    ),
    Fault(
        "half a dedup window",
        "The dedup value would count for ever, or not at all.",
        "The window is made whole from the message that opened it, or closed when that is gone.",
    ),
    Fault(
        "a dedup window without an end",
        "Sends with this dedup value would be taken for repeats for more than ten years, and stored nowhere.",
        "The window ends as the message says that opened it, or is closed when that is gone.",
    ),
    Fault(
        "a key of another type",
        "Every call that needs this key fails; what it held is gone. Nothing else can be looked at until it is mended.",
        "What is there now is removed. Messages whose bodies are left find their places again.",
    ),
    Fault(
        "a key that would expire",
        "Somebody gave the key a time to live: the server would remove it, with all that is in it.",
        "It stays; of the two keys of dedup windows, as long as the other.",
    ),
    Fault(
        "a key that would never expire",
        "What is in the key is needed for a while only; it would take room for ever.",
        "It expires when nobody needs it any more.",
    ),
    Fault(
        "a field of meta that cannot be read",
        "Calls that need this number fail. Nothing else can be looked at before it is mended.",
        "The field is removed; a counter begins anew, and the difference is counted as corrected.",
    ),
    Fault(
        "a field of meta that is missing",
        "Claims do not know that there are large messages, or some with a key: they would take too much at once.",
        "The field is set again.",
    ),
    Fault(
        "a clock that is far ahead",
        "The queue's clock is days ahead of the server's: until it is caught up with, no lease or delay ends.",
        "It is the server's again, unless something that is stored may have a time from it: end that first.",
    ),
    Fault(
        "a rate without an end",
        "The next delivery would be on time in more than ten years, which no rate asks for.",
        "The rate begins anew, with one message at once.",
    ),
    Fault(
        "a counter below zero",
        "The number is not true; messages are not affected.",
        "The counter begins anew, and the difference is counted as corrected.",
    ),
    Fault(
        WRONG_BYTES,
        "Bounds by bytes would be applied too early or too late; messages are not affected.",
        "The counter is set to what is stored.",
    ),
    Fault(
        "a priority that no claim looks at",
        "Messages of this priority would never be handed out: those that wait, and those that come back.",
        "Claims look at it again.",
    ),
    Fault(
        "priorities out of order",
        "Messages of a lower priority would be handed out first.",
        "The order is made right.",
    ),
    Fault(
        "without its pillar",
        "One message too few would be counted, and a key could be lost when another is handed on.",
        "The pillar is put back.",
    ),
    Fault(
        "a pillar and nothing else",
        "It is left over; it only takes room.",
        "The key is removed.",
    ),
    Fault(
        "the next slot is noted wrong",
        "Schedules of the queue would fire late, or never.",
        "The first slot is noted.",
    ),
    Fault(
        "a schedule that nobody looks at",
        "The schedule would never fire.",
        "It is looked at again at once, and fires by its rule of catching up.",
    ),
    Fault(
        "a paused schedule that is looked at",
        "Consumers would look at the schedule again and again.",
        "It is left alone until it is resumed.",
    ),
    Fault(
        "a slot of no schedule",
        "Consumers would look again and again for a schedule that is not there.",
        "The slot is removed.",
    ),
    Fault(
        "a slot at no time",
        "The schedule would fire again and again, or not for years.",
        "It is looked at again at once, and fires by its rule of catching up.",
    ),
    Fault(
        "a schedule that cannot be read",
        "Nobody knows what the schedule was, so it cannot fire.",
        "It is removed: declare it again.",
    ),
)
"""All of them, as the scripts name them; the client itself finds `WRONG_BYTES`."""


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Fault], ...]:
    return tuple((re.compile(re.escape(each.what).replace(r"\*", ".*"), re.DOTALL), each) for each in FAULTS)


def fault_of(what: str) -> Fault:
    """Find what is known of a fault by its text."""
    for pattern, fault in _patterns():
        if pattern.fullmatch(what):
            return fault
    raise LookupError(f"no fault is called {what!r}")


def explained(id_: str, what: str, detail: str = "") -> AuditFault:
    """Say what a fault means, and what a repair does."""
    fault = fault_of(what)
    return AuditFault(id_, what, detail, fault.meaning, fault.mend)


def without_repeats(found: Iterable[AuditFault]) -> list[AuditFault]:
    """Keep each fault once: an id is met in every key that has it."""
    return list(dict.fromkeys(found))
