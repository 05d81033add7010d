"""Who waits for the end of a message, and the ends that were told: `awaited` and `ends` of a queue."""

from typing import TYPE_CHECKING, Any, Final

from duly.memory import wire

if TYPE_CHECKING:
    from duly.memory.message import StoredMessage
    from duly.memory.state import QueueState

ENDS_KEPT_MS: Final = 60_000
_FORGOTTEN_A_CALL: Final = 100


class Awaiting:
    """The ends that somebody waits for. Both keys of it expire."""

    def __init__(self) -> None:
        self._until: dict[bytes, int] = {}
        self._until_expires_ms = 0
        self._last = (0, 0)
        """The last entry of `ends`."""
        self._ends_expire_ms = 0
        self._untold: list[bytes] = []

    def lapse(self, server_ms: int) -> None:
        """Forget the keys whose time is over."""
        if server_ms >= self._until_expires_ms:
            self._until.clear()
        if server_ms >= self._ends_expire_ms:
            self._last = (0, 0)

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return bool(self._until) + (self._last > (0, 0))

    @property
    def last_end(self) -> bytes:
        """The entry behind which ends will be told."""
        return b"%d-%d" % self._last

    def add(self, id_: bytes, now: int, wait: int) -> None:
        """Have the end of a message told."""
        over = sorted((until, id_) for id_, until in self._until.items() if until <= now)
        for _, gone in over[:_FORGOTTEN_A_CALL]:
            del self._until[gone]
        self._until[id_] = max(self._until.get(id_, 0), now + wait)
        self._until_expires_ms = max(self._until_expires_ms, now // 1000 + -(-wait // 1000))

    def announce(self, ids: list[bytes], server_us: int) -> None:
        """Tell the ends of messages, those that are awaited."""
        server_ms = server_us // 1000
        for id_ in ids:
            if self._until.pop(id_, None) is not None:
                ms, number = self._last
                self._last = (server_ms, 0) if server_ms > ms else (ms, number + 1)
                self._ends_expire_ms = server_ms + ENDS_KEPT_MS
                self._untold.append(id_)

    def take_untold(self) -> list[bytes]:
        """Give the ends that were told since the last look: the engine wakes who waits for them."""
        untold, self._untold = self._untold, []
        return untold


def _is_expired(queue: "QueueState", message: "StoredMessage") -> bool:
    """Whether it waits, past its ttl: it is never handed out, and removed by the next call that looks."""
    if message.place not in ("waiting", "parked") or message.flaw:
        return False
    return message.expiry is not None and message.expiry <= queue.server_us


def await_end(queue: "QueueState", args: list[bytes]) -> list[Any]:
    """Show how a message ended; while it lives, have its end told."""
    id_, wait = args[1], int(args[2])
    message = queue.find(id_)
    if message is None or _is_expired(queue, message):
        return []
    if message.place in ("dead", "done") and not (message.why and message.why.result_until > queue.server_us):
        return [message.place.encode(), queue.score_of(message), wire.record(message), wire.why(message)]
    if wait > 0:
        queue.awaiting.add(id_, queue.server_us, wait)
    return [queue.awaiting.last_end]
