"""Reads the messages of a fanout exchange for one queue that lives as long as its connection.

Such an exchange is a topic of Duly: remote control, events, broadcasts. Its entries are kept for ten minutes. The
position is in memory: a consumer continues there after an outage of the server, and no queue of a process that has died
grows. Another connection begins at the end of the topic.
"""

import contextlib
import re
import threading
from typing import Final, NamedTuple

import duly
from duly.kombu.envelope import Broadcast
from duly.kombu.fetcher import Fetcher
from duly.kombu.mailbox import Consumed, Mailbox

KEEP: Final = duly.Keep(count=10_000, age=600)
REPEATS: Final = 60.0
"""Seconds for which a publish that kombu repeats is stored once. Each publish takes a row on the server for as long."""
ROUTING_KEY: Final = "routing_key"
"""The header of an entry that has the routing key of its message."""
_WAIT: Final = 5.0
"""Seconds of one wait for entries, or for room in the mailbox."""
_PAGE: Final = 100
"""Entries per read."""


class Page(NamedTuple):
    """Entries that follow a position."""

    position: str
    entries: list[duly.Entry]


class Feed:
    """The position of a queue in the topic of an exchange, from its binding on."""

    def __init__(self, topic: duly.Topic[bytes], position: str, routing_key: str) -> None:
        self._topic = topic
        self._position = position
        self._pattern = _pattern_of(routing_key)

    def read(self, limit: int, wait: float) -> list[Broadcast]:
        """Return the next messages that match the routing key of the binding."""
        return self.advance(self.page(limit, wait)) or []

    def page(self, limit: int, wait: float) -> Page:
        """Read the next entries. The position stays."""
        position = self._position
        return Page(position, self._topic.read(after=position, limit=limit, wait=wait))

    def advance(self, page: Page) -> list[Broadcast] | None:
        """Continue after a page, and return its messages. None: another thread has advanced since it was read."""
        if page.position != self._position:
            return None
        if page.entries:
            self._position = page.entries[-1].id
        return [Broadcast(entry) for entry in page.entries if self._matches(entry)]

    def _matches(self, entry: duly.Entry) -> bool:
        return self._pattern is None or self._pattern.fullmatch(entry.headers.get(ROUTING_KEY, "")) is not None


class Subscription:
    """A thread that reads a feed into the mailbox of a channel, until it is stopped.

    The fetcher reads it as well, before it delivers messages of queues that were sent since its last read: a worker
    gets a revoke before a task that was sent after it.
    """

    def __init__(self, feed: Feed, fetcher: Fetcher, mailbox: Mailbox, consumed: Consumed) -> None:
        self._feed = feed
        self._fetcher = fetcher
        self._mailbox = mailbox
        self._consumed = consumed
        self._is_stopping = False
        fetcher.add_source(self.catch_up)
        threading.Thread(target=self._work, name="duly-kombu-fanout", daemon=True).start()

    def stop(self) -> None:
        """Read no more. The thread ends after its wait, or when the app is closed."""
        self._is_stopping = True
        self._fetcher.remove_source(self.catch_up)

    def catch_up(self) -> bool:
        """Put all messages that were published so far into the mailbox. False: there is no room for all."""
        with contextlib.suppress(duly.DulyError):  # messages of queues do not wait for a topic that cannot be read
            while (room := self._room()) and not self._is_stopping:
                page = self._feed.page(room, 0)
                if self._place(page) and len(page.entries) < room:
                    return True
        return False

    def _work(self) -> None:
        while not self._is_stopping:
            try:
                self._read()
            except duly.Unavailable:
                continue  # the client has logged it, and has waited
            except duly.DulyError:
                self.stop()  # the app is closed

    def _read(self) -> None:
        changed = self._fetcher.changed
        with changed:
            room = self._room()
            if not room:
                changed.wait(_WAIT)
                return
        self._place(self._feed.page(room, _WAIT))

    def _room(self) -> int:
        return _PAGE if self._consumed.no_ack else min(self._mailbox.room, _PAGE)

    def _place(self, page: Page) -> bool:
        """Put a page into the mailbox. False: another thread has advanced since it was read."""
        with self._fetcher.changed:
            if self._is_stopping:
                return True
            found = self._feed.advance(page)
            if found:
                self._mailbox.add(self._consumed, [*found])
        if found:
            self._fetcher.signal()
        return found is not None


def _pattern_of(routing_key: str) -> re.Pattern[str] | None:
    """Return the pattern of a routing key with wildcards. As in the redis transport, they hold for fanout as well."""
    if not {"*", "#"} & set(routing_key) or routing_key == "#":
        return None
    words = (r"[^.]+" if word == "*" else r".*" if word == "#" else re.escape(word) for word in routing_key.split("."))
    return re.compile(r"\.".join(words))
