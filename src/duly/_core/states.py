"""Where a message can be. duly._core.verbs has the legal moves between states."""

from typing import Final, Literal

State = Literal["ready", "delayed", "leased", "parked", "dead", "done"]
"""Where a message is. `ready` and `delayed` are one place: the due time tells them apart."""

STATES: Final[tuple[State, ...]] = ("ready", "delayed", "leased", "parked", "dead", "done")
LIVE: Final[frozenset[State]] = frozenset({"ready", "delayed", "leased", "parked"})
