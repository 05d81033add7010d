"""move: dead letters to another queue."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from duly._core.codec import FLAG_KEY, part_of, read_stamps, stamped
from duly.memory.calls import Kept
from duly.memory.message import StoredMessage, flags_of, priority_of
from duly.memory.past import Past, counts_of_redriven
from duly.memory.state import QueueState

_FIRST_LETTER: Final = 4
_FIRST_KEY: Final = b"msgs"


def other_prefix(keys: Sequence[bytes]) -> bytes:
    """Return the other queue, by the prefix of its keys."""
    return keys[0].removesuffix(_FIRST_KEY)


class _Arrivals:
    """Messages that enter a queue from another one, within its bounds."""

    def __init__(self, queue: QueueState, max_length: int, max_bytes: int, detail: bytes) -> None:
        self._queue = queue
        self._detail = detail
        self._now = queue.tick()
        self._length_left = max_length - queue.count_live() if max_length >= 0 else inf
        self._bytes_left = max_bytes - queue.stats.get("bytes", 0) if max_bytes >= 0 else inf
        self.count = 0

    def record_of(self, letter: StoredMessage, part: bytes) -> bytes:
        """Write the record of the next message: as new, except for the time at which it was sent."""
        sent, _ = read_stamps(letter.intact)
        return stamped(sent, self._now + self.count, part or part_of(letter.intact))

    def has_room(self, record: bytes) -> bool:
        """Return whether one more message fits."""
        return self._length_left >= 1 and self._bytes_left >= len(record)

    def knows(self, id_: bytes) -> bool:
        """Return whether an id is in use."""
        message = self._queue.find(id_)
        return message is not None and message.place != "done"

    def add(self, letter: StoredMessage, record: bytes) -> None:
        """Add a message, with its past but without its errors."""
        queue, due = self._queue, self._now + self.count
        self._forget_finished(letter.id)
        message = StoredMessage(letter.id, record, priority_of(record))
        queue.add(message, due)
        past = Past([], Past.of(letter).timeline)
        past.add_event(due, "redrive", detail=self._detail)
        message.why = past.row_of_live()
        queue.set_counts(message, counts_of_redriven(letter))
        queue.is_keyed = queue.is_keyed or bool(flags_of(record) & FLAG_KEY)
        queue.count("sent", 1)
        queue.count("bytes", len(record))
        queue.clock = due
        self._length_left -= 1
        self._bytes_left -= len(record)
        self.count += 1

    def _forget_finished(self, id_: bytes) -> None:
        finished = self._queue.messages.get(id_)
        if finished is not None and finished.place == "done":
            self._queue.count("done_bytes", -finished.size)
            self._queue.count("done_trimmed", 1)
            self._queue.forget(finished)


def move(here: QueueState, args: list[bytes], there: QueueState) -> Any:
    """Take dead letters out of one queue and put them into another."""
    letters = list(zip(args[_FIRST_LETTER::3], args[_FIRST_LETTER + 1 :: 3], args[_FIRST_LETTER + 2 :: 3], strict=True))
    now, is_full, known = here.tick(), False, list[bytes]()
    there.expire_some(there.tick(), len(letters))
    arrivals = _Arrivals(there, int(args[1]), int(args[2]), args[3])
    for id_, died, part in letters:
        letter = here.messages.get(id_)
        if is_full or letter is None or letter.flaw or here.dead.score(id_) != int(died):
            continue
        record = arrivals.record_of(letter, part)
        if arrivals.knows(id_):
            known.append(id_)
        elif not arrivals.has_room(record):
            is_full = True
        else:
            arrivals.add(letter, record)
            here.forget(letter)
            here.leave_lane(letter, now)
            here.count("moved", 1)
            here.count("dead_bytes", -letter.size)
    return Kept([arrivals.count, int(is_full), *known])


TRANSITIONS: Final[dict[str, Callable[[QueueState, list[bytes], QueueState], Any]]] = {"move": move}
"""The functions of scripts that reach into another queue, by script name."""
