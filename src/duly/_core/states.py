"""The states of a message. duly._core.verbs has the legal moves between them."""

from typing import Final, Literal

State = Literal["ready", "delayed", "leased", "parked", "dead", "done"]
"""The state of a message. `ready` and `delayed` are stored in one place and differ by the due time."""

STATES: Final[tuple[State, ...]] = ("ready", "delayed", "leased", "parked", "dead", "done")
LIVE: Final[frozenset[State]] = frozenset({"ready", "delayed", "leased", "parked"})
