"""An operation as a value: the script, the queue, the arguments, and how to decode the reply."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeVar

from duly._core.keys import EVERY_PRIORITY, QueueKeys
from duly._core.resp import Arg
from duly._core.topology import slot_of
from duly._core.verbs import VERBS
from duly._lua import Script

T = TypeVar("T")

_SEQUENCE: Final = struct.Struct("<d")
"""A double, since that is what numbers are in Lua; as bytes, so that a script need not convert it."""

_ASKED: Final[Mapping[str, str]] = {
    **{script: name for name, verb in VERBS.items() for script in verb.scripts},
    "await_end": "result",
    "claim": "receive",
    "correct": "repair",
    "delete_topic": "delete",
    "foreign_pending": "pending",
    "move": "redrive",
    "occupied": "receive",
    "read_topic": "read",
    "register": "schedule",
    "seek_group": "seek",
    "send_checked": "send",
    "take_tokens": "receive",
    "topic_stats": "stats",
    "unregister": "unschedule",
}
"""The user's name for what a script does, where the two differ."""


class CallStream:
    """A stream of numbered calls, one at a time. A call keeps its stream and number on every try, on any node."""

    __slots__ = ("name", "sequence")

    def __init__(self, name: bytes, sequence: int = 0) -> None:
        self.name: bytes = name
        self.sequence: int = sequence


def read_sequence(record: bytes | None) -> int:
    """Return the number of the last call of a stream, from its record on the server. Without a record, it is 0."""
    return 0 if record is None else int(_SEQUENCE.unpack_from(record)[0])


class Call(Generic[T]):
    """One script call. Pure data: a link sends it, again if necessary.

    A script whose first key is `call` writes: the link adds the key of its stream of calls and a
    sequence number, so that a repeat is recognised (I6). `extra_keys` are the keys for `others*` in the script's
    header: they do not belong to the queue `keys`.
    """

    __slots__ = ("args", "asked", "decode", "digits", "extra_keys", "is_dated", "keys", "script", "writes")

    def __init__(
        self,
        script: Script,
        keys: QueueKeys,
        args: Sequence[Arg],
        decode: Callable[[Any], T],
        digits: str = EVERY_PRIORITY,
        extra_keys: Sequence[bytes] = (),
    ) -> None:
        self.script: Script = script
        self.keys: QueueKeys = keys
        self.args: Sequence[Arg] = args
        self.decode: Callable[[Any], T] = decode
        self.digits: str = digits
        self.extra_keys: Sequence[bytes] = extra_keys
        self.writes: bool = script.keys[0] == "call"
        self.is_dated: bool = script.argv[1:2] == ("late_after",)
        """Whether the call does less if it is carried out late. Then its reply has the server's time."""
        self.asked: str = ""
        """The method that the user has called, if this is a step of it."""

    @property
    def title(self) -> str:
        """The call in the user's words, for errors."""
        return self.titled(self.asked or self.script.name, self.keys.title)

    @staticmethod
    def titled(name: str, place: str) -> str:
        """Describe a script and its place in the user's words."""
        return f"{_ASKED.get(name, name)} on {place}"

    def part_of(self, asked: str) -> Self:
        """Mark this call as a step of another method that the user has called."""
        self.asked = asked
        return self

    def is_in_one_slot(self) -> bool:
        """Return whether a cluster accepts the call: all of its keys are in the slot of its queue."""
        return all(slot_of(key) == self.keys.slot for key in self.extra_keys)

    def command(self, verb: bytes, code: str | bytes, stream: CallStream, late_after: int = -1) -> list[Arg]:
        """Write the command: EVALSHA with the hash, or EVAL with the text.

        `late_after` is for a dated call: the server's time after which it is late, in microseconds.
        """
        keys = self.keys.of_script(self.script, self.digits)
        if self.extra_keys or self.keys.tail:
            keys = (*keys, *self.extra_keys, *self.keys.tail)
        if self.writes:
            return [
                verb,
                code,
                len(keys) + 1,
                self.keys.call(stream.name),
                *keys,
                _SEQUENCE.pack(stream.sequence),
                *((late_after,) if self.is_dated else ()),
                *self.args,
            ]
        return [verb, code, len(keys), *keys, *self.args]
