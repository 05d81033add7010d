"""The plan that all processes of the demo share: one value, passed to each as a line of JSON."""

from pathlib import Path
from typing import Final

import msgspec

import duly

ORDERS: Final = "orders"
"""The queue of messages without delay, sent in bursts."""

REMINDERS: Final = "reminders"
"""The queue of delayed messages."""

QUEUES: Final = (ORDERS, REMINDERS)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    url: str
    namespace: str
    """A new namespace, so that your own server can be used without a collision."""
    histories: str
    """The directory in which each process writes its history."""
    seconds: float
    """Until the last delayed message is due."""
    lease: float = 2.0
    producers: int = 2
    bursts: int = 10
    """Bursts per producer."""
    orders_a_second: float = 200.0
    reminders_a_second: float = 50.0

    @property
    def sending_seconds(self) -> float:
        """How long the producers send. The rest of the run is for delayed and redelivered messages."""
        return self.seconds * 0.7

    @property
    def kill_at(self) -> float:
        """Seconds after which a consumer is killed: while the producers send."""
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
        """Connect to the server."""
        return duly.Duly(self.url, namespace=self.namespace)

    def open_queue(self, app: duly.Duly, name: str) -> duly.Queue:
        """Return a queue with the lease of this run."""
        return app.queue(name, lease=self.lease)

    def history_of(self, process: str) -> Path:
        """Return the file for the history of a process."""
        return Path(self.histories) / f"{process}.jsonl"

    def log_of(self, process: str) -> Path:
        """Return the file for the output of a process."""
        return Path(self.histories) / f"{process}.log"


def to_line(plan: Plan) -> bytes:
    """Encode a plan for standard input. Its URL may contain a password, and other users can read arguments."""
    return msgspec.json.encode(plan) + b"\n"


def from_line(line: bytes) -> Plan:
    """Decode a plan."""
    return msgspec.json.decode(line, type=Plan)
