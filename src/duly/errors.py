"""What can go wrong, split by who must act.

    DulyError
    ├── UsageError           your code: the call was refused, nothing was written
    │   ├── InvalidName      a queue, topic or schedule name that cannot be used
    │   └── TooLarge         a body over `max_message_bytes`
    ├── QueueFull            back-pressure: the queue or the server has no room
    ├── LeaseLost            a normal race: someone else owns the message now
    ├── LockBusy             another holder has the lock
    ├── LockLost             the lock ran out before it was extended
    ├── NotDurable           stored, but not confirmed as asked for
    ├── HandlerFailed        the result you wait for will not come: the message is dead
    │   └── ResultGone       or nothing is known of it any more
    ├── NotFinished          the result you wait for has not come yet
    ├── CodecError           a stored body does not decode
    └── ServerError          the server
        ├── Unavailable      it could not be reached, or did not answer
        └── UnsafeServer     it may lose messages by its settings

Every message says what happened, to which queue and id, and what to do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.message import Message


class DulyError(Exception):
    """Base of everything that Duly raises on purpose."""


class UsageError(DulyError, ValueError):
    """The call cannot be carried out as written. Nothing was sent or stored."""


class InvalidName(UsageError):
    """A name that cannot be part of a key."""


class TooLarge(UsageError):
    """A message is larger than `max_message_bytes`."""


class QueueFull(DulyError):
    """The queue is at `max_length` or `max_bytes`, or the server is at `maxmemory`.

    `stored` holds the ids of the same `send_many` that were stored before the queue was full.
    """

    def __init__(self, message: str, *, stored: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stored: list[str] = list(stored)


class LeaseLost(DulyError):
    """Someone else owns the message now, or it is finished.

    Normal after a pause longer than the lease, and after a cancel. Do not repeat the call.
    """


class LockBusy(DulyError):
    """Another holder has the lock.

    `name` is the lock's, `by` says who holds it, `left` for how many seconds still unless it is freed before.
    """

    def __init__(self, message: str, *, name: str = "", by: str = "", left: float = 0.0) -> None:
        super().__init__(message)
        self.name = name
        self.by = by
        self.left = left


class LockLost(DulyError):
    """The lock ran out before it was extended, and somebody else may have it by now."""


class NotDurable(DulyError):
    """The message is stored, but the durability that was asked for is not confirmed.

    `ids` are the stored messages: they will be delivered unless the server loses them first.
    """

    def __init__(self, message: str, *, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids: list[str] = list(ids)


class HandlerFailed(DulyError):
    """The result that was asked for will not come.

    `message` is the dead `duly.Message`, with its reason and errors; None: see ResultGone.
    """

    def __init__(self, text: str, *, message: "Message | None" = None) -> None:
        super().__init__(text)
        self.message: Message | None = message


class ResultGone(HandlerFailed):
    """The message is unknown, or was cancelled, expired or trimmed. Perhaps its handler did not fail at all."""


class NotFinished(DulyError, TimeoutError):
    """The wait for a result is over, and the message still waits or is being handled."""


class CodecError(DulyError):
    """A stored body or record does not decode."""


class ServerError(DulyError):
    """The server refused or failed a call."""


class Unavailable(ServerError):
    """The server could not be reached, or did not answer in time.

    A call that raises this may or may not have been carried out.
    """


class UnsafeServer(ServerError):
    """The server's settings allow it to lose messages."""
