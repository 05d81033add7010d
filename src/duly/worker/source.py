"""What a queue or group of a worker claims from: its keys, what is held of it, and when to claim next."""

import math
import time
from typing import TYPE_CHECKING, Any

from duly._async.delivery import AsyncDelivery
from duly._async.inbox import AsyncInbox
from duly._core import patience
from duly._core.keys import GroupKeys, QueueKeys
from duly._sync.delivery import Delivery
from duly.worker.wake_state import WakeState

if TYPE_CHECKING:
    from duly.worker.queue_runtime import QueueRuntime

AnyDelivery = AsyncDelivery | Delivery


class Source:
    """One store of messages. All times are of the monotonic clock.

    Only the event loop writes here; the renewer's thread takes a copy of `held`. All but `held` is the fetcher's.
    """

    def __init__(self, runtime: "QueueRuntime", queue: AsyncInbox) -> None:
        self.runtime = runtime
        self.queue = queue
        self.weight = runtime.weight
        self.keys: QueueKeys = queue._keys
        self.wake_key = self.keys.key("wake")
        self.link: Any = queue._link
        self.held: set[AnyDelivery] = set()
        """Claimed and not settled: what the renewer keeps."""

        self.period = patience.looking_period(runtime.lease)
        """Seconds after which it is looked at although no wake-up came."""
        self.is_watched = False
        """Whether everything was seen, and a token will come when there is more."""
        self.is_idle = False
        """Whether the last claim saw that nothing is to come: one look serves many such queues."""
        self.has_timer = False
        """Whether this worker took the token, or keeps a due time or the end of a lease: it claims or passes it on."""
        self.claims_at = math.inf
        """When the last claim said that there may be more, by the server's clock and in microseconds."""
        self.fruitless = 0
        self.wake_state = WakeState(self.keys) if isinstance(self.keys, GroupKeys) else None
        """Of a group, whose members all hear of what comes; None: a token comes to one consumer."""
        self.polled_at = time.monotonic()

    @property
    def wants_watch(self) -> bool:
        """Whether a wake-up is of use: everything was seen, and more could be claimed."""
        return self.is_watched and (not self.runtime.busy or self.runtime.room > 0)
