"""A topic and its groups whose every operation goes into histories, for processes that get killed.

A message is known by its unique body: the id of a delayed publish is not that of its entry. Each group is
judged separately, as if it were a queue: its history has all publishes and the calls of its members.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from duly import Send
from tests.fault.recorded import AHEAD_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly import Delivery, Group, Topic
    from tests.fault.history import Recorder

US: Final = 1_000_000


class RecordedTopic:
    """Publishes, and records each message."""

    def __init__(self, topic: Topic, recorder: Recorder) -> None:
        self.topic = topic
        self.recorder = recorder

    def publish_many(self, bodies: Sequence[str], **options: Any) -> None:
        """Publish many, of one key if one is given; it is known of each whether it was done."""
        with self.recorder.operation("send", *bodies, key=options.get("key")) as done:
            self.topic.publish_many([Send(body, **options) for body in bodies])
            for body in bodies:
                done(id=body)

    def publish(self, body: str, **options: Any) -> None:
        """Publish one."""
        with self.recorder.operation("send", body, key=options.get("key")):
            self.topic.publish(body, **options)


class RecordedMember:
    """Receives and acks in a group, and records each message."""

    def __init__(self, group: Group, recorder: Recorder, lease: float) -> None:
        self.group = group
        self.recorder = recorder
        self.lease = lease

    def receive(self, limit: int, wait: float) -> list[Delivery]:
        """Claim. A fence is the server's time of the claim, and the server runs here: claims are placed exactly."""
        with self.recorder.operation("claim", lease_us=round(self.lease * US)) as done:
            found = self.group.receive(limit, wait, lease=self.lease)
            returned = time.monotonic_ns()
            for each in found:
                moment = min(each.fence * 1000 - AHEAD_NS, returned)
                done(id=each.body, invoked_ns=moment, fence=each.fence, attempt=each.attempt, key=each.key)
        return found

    def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Ack what one claim brought; a lease that was lost is a refusal."""
        began = time.monotonic_ns()
        for each in deliveries:
            self.recorder.record("ack", "invoke", id=each.body, fence=each.fence)
        lost = set(self.group.ack_many(deliveries))
        for each in deliveries:
            outcome = "fail" if each in lost else "ok"
            self.recorder.record("ack", outcome, id=each.body, fence=each.fence, invoked_ns=began)  # type: ignore[arg-type]
