"""The store that a queue or group of a worker claims from: its keys, its held messages, and the state of its claims."""

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duly._async.delivery import AsyncDelivery
from duly._async.inbox import AsyncInbox
from duly._async.schedules import fire_due
from duly._core import patience
from duly._core.call import Call
from duly._core.keys import GroupKeys, QueueKeys
from duly._core.ops import Suspects, Then
from duly._core.replies import Claimed
from duly._core.topology import Node
from duly._sync.delivery import Delivery
from duly.worker.clock_translator import ClockTranslator
from duly.worker.wake_state import WakeState

if TYPE_CHECKING:
    from duly.worker.queue_runtime import QueueRuntime

AnyDelivery = AsyncDelivery | Delivery


class Source:
    """One store of messages. All times are of the monotonic clock.

    Only the event loop writes here. The renewer's thread copies `held`. The rest belongs to the parts of the fetcher.
    """

    def __init__(self, runtime: "QueueRuntime", queue: AsyncInbox) -> None:
        self.runtime = runtime
        self.queue = queue
        self.weight: int = runtime.weight
        self.keys: QueueKeys = queue._keys
        self.wake_key: bytes = self.keys.key("wake")
        self.link: Any = queue._link
        self._is_spread = bool(self.link.is_spread)
        self.held: set[AnyDelivery] = set()
        """Messages that are claimed and not settled. The renewer renews them."""

        self.period: float = patience.looking_period(runtime.lease)
        """Seconds after which it is polled without a wake-up."""
        self.is_watched = False
        """Whether the last claim left nothing behind, so that a wake token announces the next message."""
        self.is_idle = False
        """Whether the last claim found the queue empty, without any due time. One call polls many such queues."""
        self.has_timer = False
        """Whether this worker has the wake token, or keeps a due time or the end of a lease.

        It must claim, or pass the wake token on.
        """
        self.clock_translator: ClockTranslator = ClockTranslator()
        self.claimed_at: int = 0
        """When the last claim was made, by the server's clock and in microseconds."""
        self.next_in: float | None = None
        """Seconds from the last claim until the next message is due. None: no message is known."""
        self.next_at: float = math.inf
        """When the next message is due, or a lease ends, by the last claim."""
        self.fruitless = 0
        self.wake_state: WakeState | None = WakeState(self.keys) if isinstance(self.keys, GroupKeys) else None
        """For a group, whose members all wake for an entry. None: a queue, whose wake token goes to one consumer."""
        self.polled_at: float = time.monotonic()

    @property
    def node(self) -> Node | None:
        """The node that serves it, as far as known. On one server None, for all sources. It changes with its slot."""
        return self.link.node_of(self.keys) if self._is_spread else None

    @property
    def is_down(self) -> bool:
        """Whether an outage of its node was logged that has not ended."""
        return bool(self.link.is_down_at(self.keys))

    @property
    def wants_watch(self) -> bool:
        """Whether a wake-up would help: the last claim left nothing behind, and there is room for more."""
        return self.is_watched and (not self.runtime.busy or self.runtime.room > 0)

    @property
    def rests_until(self) -> float:
        """When a group that woke for nothing is to be watched again. A queue never rests."""
        return 0.0 if self.wake_state is None else self.wake_state.rests_until

    def claim_call(self, limit: int, *, then: Then, suspects: Suspects) -> Call[Claimed]:
        """Make the call that claims up to `limit` messages."""
        return self.queue._claim(limit=limit, lease=self.runtime.lease, then=then, suspects=suspects)

    async def fire(self, now: int, due: Sequence[tuple[str, bytes]]) -> bool:
        """Send the messages of schedules that are due. True: something was sent."""
        return await fire_due(self.queue, now, due)


def awake(sources: Sequence[Source]) -> tuple[list[Source], float]:
    """Return the sources to watch now, and when the next rest of a group ends."""
    now = time.monotonic()
    wanted = [source for source in sources if source.wants_watch]
    rested_at = min((source.rests_until for source in wanted if source.rests_until > now), default=math.inf)
    return [source for source in wanted if source.rests_until <= now], rested_at
