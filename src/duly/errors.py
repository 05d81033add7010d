"""The exceptions of Duly, grouped by the party that has to act.

    DulyError
    ├── UsageError           your code: the call was refused, nothing was written
    │   ├── InvalidName      a queue, topic or schedule name that is not allowed
    │   └── TooLarge         a body over `max_message_bytes`
    ├── QueueFull            back-pressure: the queue or the server has no room
    ├── LeaseLost            a normal race: another consumer has the message now
    ├── LockBusy             another holder has the lock
    ├── LockLost             the lock expired before it was extended
    ├── NotDurable           stored, but the requested durability is not confirmed
    ├── HandlerFailed        there will be no result: the message is dead
    │   └── ResultGone       there will be no result: the message is unknown
    ├── NotFinished          there is no result yet
    ├── CodecError           a stored body does not decode
    └── ServerError          the server refused or failed a call
        ├── Unavailable      it could not be reached, or did not answer
        └── UnsafeServer     its settings allow it to lose messages

Each text names the problem, the queue and id, and a way to fix it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.message import Message, MessageId


class DulyError(Exception):
    """The base class of all exceptions that Duly raises on purpose."""


class UsageError(DulyError, ValueError):
    """The call has invalid arguments. Nothing was sent or stored."""


class InvalidName(UsageError):
    """The name of a queue, topic, group or schedule is not allowed."""


class TooLarge(UsageError):
    """A message is larger than `max_message_bytes`. Nothing was stored."""


class QueueFull(DulyError):
    """The queue is at `max_length` or `max_bytes`, or the server is at `maxmemory`.

    `stored` lists the ids that the same `send_many` stored before the queue was full.
    """

    def __init__(self, message: str, *, stored: "Sequence[MessageId]" = ()) -> None:
        super().__init__(message)
        self.stored: list[MessageId] = list(stored)


class LeaseLost(DulyError):
    """The lease was lost: another consumer has the message now, or the message is finished.

    This is normal after a pause that was longer than the lease, and after a cancel. The call changed nothing. Do not
    repeat it.
    """


class LockBusy(DulyError):
    """Another holder has the lock.

    `name` is the name of the lock, and `by` is its holder. It expires in `left` seconds unless it is freed before.
    """

    def __init__(self, message: str, *, name: str = "", by: str = "", left: float = 0.0) -> None:
        super().__init__(message)
        self.name = name
        self.by = by
        self.left = left


class LockLost(DulyError):
    """The lock expired before it was extended. Another holder may have it now."""


class NotDurable(DulyError):
    """The message is stored, but the requested durability was not confirmed.

    `ids` lists the stored messages. They will be delivered unless the server loses them first.
    """

    def __init__(self, message: str, *, ids: "Sequence[MessageId]" = ()) -> None:
        super().__init__(message)
        self.ids: list[MessageId] = list(ids)


class HandlerFailed(DulyError):
    """There will be no result, because the message is dead.

    `message` is the dead `duly.Message` with its reason and errors. It is None for ResultGone.
    """

    def __init__(self, text: str, *, message: "Message | None" = None) -> None:
        super().__init__(text)
        self.message: Message | None = message


class ResultGone(HandlerFailed):
    """There will be no result: the message is unknown, or was cancelled, expired or trimmed.

    Its handler may have succeeded.
    """


class NotFinished(DulyError, TimeoutError):
    """The wait for a result timed out. The message is still waiting, or a handler is running."""


class CodecError(DulyError):
    """A stored body or record cannot be decoded."""


class ServerError(DulyError):
    """The server refused or failed a call."""


class Unavailable(ServerError):
    """The server could not be reached, or did not answer in time.

    The server may or may not have carried out the call. The text of the exception has the details.
    """


class UnsafeServer(ServerError):
    """The server's settings allow it to lose messages."""
