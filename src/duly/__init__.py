"""Duly: a reliable and delayed message queue on Redis and Valkey.

`duly.Duly()` is an app on a server. `app.queue(name)` returns a queue, and `app.topic(name)` returns a topic. The
README has an introduction.
"""

from typing import TYPE_CHECKING, Any

from duly._async.app import AsyncDuly
from duly._async.delivery import AsyncDelivery
from duly._async.group import AsyncGroup
from duly._async.lock import AsyncLock
from duly._async.queue import AsyncQueue
from duly._async.task import AsyncTask
from duly._async.topic import AsyncTopic
from duly._core.states import State
from duly._sync.app import Duly
from duly._sync.delivery import Delivery
from duly._sync.group import Group
from duly._sync.lock import Lock
from duly._sync.queue import Queue
from duly._sync.task import Task
from duly._sync.topic import Topic
from duly.errors import (
    CodecError,
    DulyError,
    HandlerFailed,
    InvalidName,
    LeaseLost,
    LockBusy,
    LockLost,
    NotDurable,
    NotFinished,
    QueueFull,
    ResultGone,
    ServerError,
    TooLarge,
    Unavailable,
    UnsafeServer,
    UsageError,
)
from duly.message import (
    Audit,
    AuditFault,
    Bucket,
    Committed,
    Entry,
    Event,
    Failure,
    GroupInfo,
    Histogram,
    HistoryPoint,
    Message,
    MessageId,
    Pending,
    PendingMessage,
    Progress,
    Schedule,
    Stats,
    TopicStats,
    WorkerInfo,
)
from duly.once import once
from duly.options import (
    UNCHANGED,
    Batch,
    Keep,
    QueueKeywords,
    QueueOptions,
    Repeat,
    Retry,
    Seconds,
    Send,
    SendOptions,
    TopicKeywords,
    TopicOptions,
    Wait,
)
from duly.outcomes import Defer, Outcome, Recycle, Reject, RetryIn
from duly.selection import Where

if TYPE_CHECKING:
    from duly.worker import Worker, WorkerOptions

    __version__: str

__all__ = [
    "UNCHANGED",
    "AsyncDelivery",
    "AsyncDuly",
    "AsyncGroup",
    "AsyncLock",
    "AsyncQueue",
    "AsyncTask",
    "AsyncTopic",
    "Audit",
    "AuditFault",
    "Batch",
    "Bucket",
    "CodecError",
    "Committed",
    "Defer",
    "Delivery",
    "Duly",
    "DulyError",
    "Entry",
    "Event",
    "Failure",
    "Group",
    "GroupInfo",
    "HandlerFailed",
    "Histogram",
    "HistoryPoint",
    "InvalidName",
    "Keep",
    "LeaseLost",
    "Lock",
    "LockBusy",
    "LockLost",
    "Message",
    "MessageId",
    "NotDurable",
    "NotFinished",
    "Outcome",
    "Pending",
    "PendingMessage",
    "Progress",
    "Queue",
    "QueueFull",
    "QueueKeywords",
    "QueueOptions",
    "Recycle",
    "Reject",
    "Repeat",
    "ResultGone",
    "Retry",
    "RetryIn",
    "Schedule",
    "Seconds",
    "Send",
    "SendOptions",
    "ServerError",
    "State",
    "Stats",
    "Task",
    "TooLarge",
    "Topic",
    "TopicKeywords",
    "TopicOptions",
    "TopicStats",
    "Unavailable",
    "UnsafeServer",
    "UsageError",
    "Wait",
    "Where",
    "Worker",
    "WorkerInfo",
    "WorkerOptions",
    "once",
]


def __getattr__(name: str) -> Any:
    """Import the worker and the version on first use, since most programs need neither."""
    if name == "__version__":
        return globals().setdefault(name, _find_version())
    if name not in ("Worker", "WorkerOptions"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from duly import worker

    return globals().setdefault(name, getattr(worker, name))


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("duly")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0.0.0"
