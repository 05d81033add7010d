"""Reads the messages of a fanout exchange for one queue that lives as long as its connection.

Such an exchange is a topic of Duly: remote control, events, broadcasts. Its entries are kept for ten minutes. The
position is in memory: a consumer continues there after an outage of the server, and no queue of a process that has died
grows. Another connection begins at the end of the topic.
"""

import re
import threading
from typing import Final

import duly
from duly.kombu.envelope import Broadcast
from duly.kombu.fetcher import Fetcher
from duly.kombu.mailbox import Consumed, Mailbox

KEEP: Final = duly.Keep(count=10_000, age=600)
ROUTING_KEY: Final = "routing_key"
"""The header of an entry that has the routing key of its message."""
_WAIT: Final = 5.0
"""Seconds of one wait for entries, or for room in the mailbox."""
_PAGE: Final = 100
"""Entries per read."""


class Feed:
    """The position of a queue in the topic of an exchange, from its binding on."""

    def __init__(self, topic: duly.Topic[bytes], position: str, routing_key: str) -> None:
        self._topic = topic
        self._position = position
        self._pattern = _pattern_of(routing_key)

    def read(self, limit: int, wait: float) -> list[Broadcast]:
        """Return the next messages that match the routing key of the binding."""
        entries = self._topic.read(after=self._position, limit=limit, wait=wait)
        if entries:
            self._position = entries[-1].id
        return [Broadcast(entry) for entry in entries if self._matches(entry)]

    def _matches(self, entry: duly.Entry) -> bool:
        return self._pattern is None or self._pattern.fullmatch(entry.headers.get(ROUTING_KEY, "")) is not None


class Subscription:
    """A thread that reads a feed into the mailbox of a channel, until it is stopped."""

    def __init__(self, feed: Feed, fetcher: Fetcher, mailbox: Mailbox, consumed: Consumed) -> None:
        self._feed = feed
        self._fetcher = fetcher
        self._mailbox = mailbox
        self._consumed = consumed
        self._is_stopping = False
        threading.Thread(target=self._work, name="duly-kombu-fanout", daemon=True).start()

    def stop(self) -> None:
        """Read no more. The thread ends after its wait, or when the app is closed."""
        self._is_stopping = True

    def _work(self) -> None:
        while not self._is_stopping:
            try:
                self._read()
            except duly.Unavailable:
                continue  # the client has logged it, and has waited
            except duly.DulyError:
                return  # the app is closed

    def _read(self) -> None:
        changed = self._fetcher.changed
        with changed:
            room = _PAGE if self._consumed.no_ack else self._mailbox.room
            if not room:
                changed.wait(_WAIT)
                return
        found = self._feed.read(min(room, _PAGE), _WAIT)
        if not found:
            return
        with changed:
            if self._is_stopping:
                return
            self._mailbox.add(self._consumed, [*found])
        self._fetcher.signal()


def _pattern_of(routing_key: str) -> re.Pattern[str] | None:
    """Return the pattern of a routing key with wildcards. As in the redis transport, they hold for fanout as well."""
    if not {"*", "#"} & set(routing_key) or routing_key == "#":
        return None
    words = (r"[^.]+" if word == "*" else r".*" if word == "#" else re.escape(word) for word in routing_key.split("."))
    return re.compile(r"\.".join(words))
