"""Fetches the messages of all channels of a connection, in one thread, with one wait over all queues.

It fetches as many messages as the prefetch count of their channel allows. Leases are renewed from then on, so a message
that waits for a worker process, or runs for hours, is not redelivered.
"""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import duly
from duly import _port
from duly.kombu.envelope import Leased
from duly.kombu.mailbox import Consumed, Mailbox, Settle

_LOG: Final = logging.getLogger("duly.kombu")
_ROUND: Final = 3.0
"""Seconds after which a wait ends, so that bindings are extended."""
_MOST: Final = 250
"""Messages per claim."""
_REFUSED_PAUSE: Final = 5.0
"""Seconds before the next claim after one that the server refused."""
_HELD_BACK_PAUSE: Final = 0.05
"""Seconds between two checks whether a program that holds back messages wants one."""


CatchUp = Callable[[], bool]
"""Returns whether all messages that were published so far are in the mailbox."""


class Fetcher:
    """The thread that fetches, and what the threads of a connection share."""

    def __init__(self, app: duly.Duly, lease: float, on_round: Callable[[], None]) -> None:
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self._mailboxes: dict[Mailbox, Callable[[], bool] | None] = {}
        """Each with a function of the program that holds back messages, if there is one."""
        self.on_ready: Callable[[], None] | None = None
        """Is called when there are messages to deliver."""
        self._catch_up: list[CatchUp] = []
        """Functions that put all messages of a fanout exchange into a mailbox."""
        self._caught_up: dict[str, int] = {}
        """By queue, the fence of the last claim after which all exchanges were read."""
        self._several = _port.Several(app, lease)
        self._on_round = on_round
        self._unsettled: deque[tuple[Settle, duly.Delivery[Any]]] = deque()
        self._thread: threading.Thread | None = None
        self._is_claiming = False
        self._claims = 0
        """Claims that have ended."""
        self._is_stopping = False
        self._error: BaseException | None = None
        """Why the thread has ended."""
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process made it. After a fork, the messages are those of the parent."""
        return self._pid == os.getpid()

    def add(self, mailbox: Mailbox, may_fetch: Callable[[], bool] | None = None) -> None:
        """Fetch for a channel. `may_fetch` is a function of the program that holds back messages."""
        with self.changed:
            self._mailboxes[mailbox] = may_fetch

    def remove(self, mailbox: Mailbox) -> None:
        """Forget a channel."""
        with self.changed:
            self._mailboxes.pop(mailbox, None)

    def add_source(self, catch_up: CatchUp) -> None:
        """Call a function before messages of queues are delivered that were sent since its last call."""
        with self.changed:
            self._catch_up.append(catch_up)
            self._caught_up.clear()

    def remove_source(self, catch_up: CatchUp) -> None:
        """Call a function no more."""
        with self.changed, contextlib.suppress(ValueError):
            self._catch_up.remove(catch_up)

    def start(self) -> None:
        """Start the thread, unless it runs. Fetch from queues that were added."""
        if not self.is_ours:
            raise duly.UsageError(
                "the connection was opened before a fork: open another one in this process to consume"
            )
        with self.changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="duly-kombu", daemon=True)
                self._thread.start()
        self.poke()

    def poke(self) -> None:
        """Notice that queues or prefetch counts have changed."""
        with self.changed:
            self.changed.notify_all()
        self._several.interrupt()

    def signal(self) -> None:
        """Notice that there are messages to deliver."""
        with self.changed:
            self.changed.notify_all()
        if self.on_ready is not None:
            self.on_ready()

    def forget(self, mailbox: Mailbox, consumed: Consumed) -> None:
        """Stop fetching from a queue, and return its messages that were not delivered."""
        with self.changed:
            if mailbox.consumed.get(consumed.name) is consumed:
                del mailbox.consumed[consumed.name]
            claim = self._claims
        self.poke()
        with self.changed:
            while self._is_claiming and self._claims == claim and self._runs:  # it may bring messages of the queue
                self.changed.wait(1)
        mailbox.cancel(consumed)

    def stop(self) -> None:
        """End the thread."""
        if not self.is_ours:
            return
        self._is_stopping = True
        self.poke()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    def settle_later(self, settle: Settle, delivery: duly.Delivery[Any]) -> bool:
        """Repeat a settle when the server answers again. Until then, the lease is renewed. False: no thread runs."""
        if not self._runs or self._is_stopping:
            return False
        _LOG.warning("the server does not answer: message %s is settled later", delivery.id)
        self._unsettled.append((settle, delivery))
        self.poke()
        return True

    def deliver(self, timeout: float | None) -> int:
        """Call the consumers with messages, and wait up to `timeout` seconds for the first. Return their number."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while True:
            with self.changed:
                broadcasts_first = sorted(self._mailboxes, key=lambda mailbox: not mailbox.has_broadcasts)
                waiting = [(mailbox, mailbox.waiting) for mailbox in broadcasts_first]
            count = sum(mailbox.deliver(limit) for mailbox, limit in waiting)
            if count:
                return count
            with self.changed:
                if self._error is not None:
                    raise self._error
                left = None if give_up_at is None else give_up_at - time.monotonic()
                if left is not None and left <= 0:
                    return 0
                if not any(mailbox.waiting for mailbox in self._mailboxes):
                    self.changed.wait(left)

    @property
    def _runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - `deliver` raises it
            _LOG.exception("messages are no longer fetched")
            self._error = error
            self.signal()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._on_round()
                self._settle_rest()
                self._fetch()
            except duly.Unavailable:
                continue  # the client has logged it, and has waited
            except duly.UsageError:
                break  # the app is closed
            except duly.DulyError as error:
                _LOG.error("messages cannot be fetched, trying again: %s", error)
                self._pause(_REFUSED_PAUSE)
        with contextlib.suppress(duly.DulyError):
            self._settle_rest()
            self._several.leave()
        with self.changed:
            self.changed.notify_all()

    def _settle_rest(self) -> None:
        while self._unsettled:
            settle, delivery = self._unsettled[0]
            try:
                settle(delivery)
            except duly.LeaseLost as error:
                _LOG.warning("%s", error)
            self._unsettled.popleft()

    def _fetch(self) -> None:
        with self.changed:
            wanted, is_held_back = self._wanted()
            self._is_claiming = bool(wanted)
        if not wanted:
            self._several.leave()
            self._wait_for_room(_HELD_BACK_PAUSE if is_held_back else _ROUND)
            return
        limits = {consumed.queue: limit for consumed, (_, limit) in wanted.items() if consumed.queue is not None}
        found: list[duly.Delivery[Any]] = []
        try:
            found = self._several.receive(limits, _HELD_BACK_PAUSE if is_held_back else _ROUND)
            if found:
                self._read_broadcasts_before(found)
        finally:
            self._place(found, wanted)

    def _read_broadcasts_before(self, found: list[duly.Delivery[Any]]) -> None:
        """Read the exchanges, unless that was done after all of these messages became due.

        A backlog is claimed message by message, and a read for each of them would take longer than its claim. Fences
        and due times are by the same clock, that of the queue. So a message that was due at an earlier fence was there
        before the exchanges were read.
        """
        queue = found[0].queue
        if max(map(_port.due_us, found)) <= self._caught_up.get(queue, 0):
            return
        with self.changed:
            sources = list(self._catch_up)
        outcomes = [catch_up() for catch_up in sources]
        with self.changed:
            if all(outcomes) and sources == self._catch_up:
                self._caught_up[queue] = found[0].fence

    def _place(self, found: list[duly.Delivery[Any]], wanted: dict[Consumed, tuple[Mailbox, int]]) -> None:
        """Put messages into the mailbox of their channel."""
        with self.changed:
            for consumed, (mailbox, _) in wanted.items():
                if consumed.queue is not None and found and consumed.queue.name == found[0].queue:
                    mailbox.add(consumed, [Leased(delivery) for delivery in found])
            self._is_claiming = False
            self._claims += 1
            self.changed.notify_all()
        if found:
            self.signal()

    def _wanted(self) -> tuple[dict[Consumed, tuple[Mailbox, int]], bool]:
        """Return the queues to fetch from, with their limits, and whether the program holds back messages."""
        wanted: dict[Consumed, tuple[Mailbox, int]] = {}
        names: set[str] = set()
        is_held_back = False
        for mailbox, may_fetch in self._mailboxes.items():
            room = mailbox.room
            if may_fetch is not None and mailbox.consumed:
                is_held_back = True  # no event announces when it wants messages again
                room = int(room > 0 and not mailbox.waiting and may_fetch())
            for consumed in mailbox.consumed.values():
                if consumed.queue is not None and room and consumed.queue.name not in names:
                    names.add(consumed.queue.name)  # of two channels with the same queue, one fetches
                    wanted[consumed] = mailbox, min(room, _MOST)
        return wanted, is_held_back

    def _wait_for_room(self, seconds: float) -> None:
        """Wait until there is a queue to fetch from. That may have happened since the last check."""
        with self.changed:
            if not (self._is_stopping or self._unsettled or self._wanted()[0]):
                self.changed.wait(seconds)

    def _pause(self, seconds: float) -> None:
        with self.changed:
            if not self._is_stopping:
                self.changed.wait(seconds)
