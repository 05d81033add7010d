"""What the processes of the demonstration must agree on: one value, handed to each as a line of JSON."""

from pathlib import Path
from typing import Final

import msgspec

import duly

ORDERS: Final = "orders"
"""The queue of messages that are due at once, sent in bursts."""

REMINDERS: Final = "reminders"
"""The queue of delayed messages."""

QUEUES: Final = (ORDERS, REMINDERS)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    url: str
    namespace: str
    """Of its own, so that a server of yours is shared without a collision."""
    histories: str
    """The directory in which each process writes down what it saw."""
    seconds: float
    """Until the last delayed message is due."""
    lease: float = 2.0
    producers: int = 2
    bursts: int = 10
    """Of each producer."""
    orders_a_second: float = 200.0
    reminders_a_second: float = 50.0

    @property
    def sending_seconds(self) -> float:
        """How long the producers send: the rest of the run belongs to what is delayed and redelivered."""
        return self.seconds * 0.7

    @property
    def kill_at(self) -> float:
        """Seconds into the run from which on a consumer may be killed: in the middle of the sending."""
        return self.seconds * 0.35

    @property
    def orders_a_burst(self) -> int:
        """Messages of one burst of one producer."""
        return max(1, round(self.orders_a_second * self.seconds / (self.producers * self.bursts)))

    @property
    def reminders_a_burst(self) -> int:
        """Delayed messages that a producer sends after each burst."""
        return max(1, round(self.reminders_a_second * self.seconds / (self.producers * self.bursts)))

    def open_app(self) -> duly.Duly:
        """Open the server."""
        return duly.Duly(self.url, namespace=self.namespace)

    def open_queue(self, app: duly.Duly, name: str) -> duly.Queue:
        """Name a queue with the lease of this run."""
        return app.queue(name, lease=self.lease)

    def history_of(self, process: str) -> Path:
        """Name the file in which a process writes its history."""
        return Path(self.histories) / f"{process}.jsonl"

    def log_of(self, process: str) -> Path:
        """Name the file that gets what a process prints."""
        return Path(self.histories) / f"{process}.log"


def to_line(plan: Plan) -> bytes:
    """Write a plan for the standard input of a process: its URL may hold a password, and arguments are for all eyes."""
    return msgspec.json.encode(plan) + b"\n"


def from_line(line: bytes) -> Plan:
    """Read what `to_line` wrote."""
    return msgspec.json.decode(line, type=Plan)
