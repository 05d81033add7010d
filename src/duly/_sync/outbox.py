"""Sends to one queue and publishes to one topic, one call each. Concurrent threads have separate connections.

The async counterpart of this file is written by hand. There, concurrent sends become one call.
"""

from duly._core import ops, topic_ops
from duly._core.keys import QueueKeys, TopicKeys
from duly._core.outgoing import Outgoing
from duly._core.topic_ops import Publication
from duly._sync.link import Link
from duly.options import Keep, QueueOptions


class Outbox:
    """The way of single sends to the server."""

    def __init__(self, link: Link, keys: QueueKeys, options: QueueOptions) -> None:
        self._link = link
        self._keys = keys
        self._options = options
        self._on_refusal: ops.OnRefusal = "drop" if options.on_full == "drop_oldest" else "each"

    def send(self, message: Outgoing) -> str | None:
        """Store a message and return its id; None: there was no room."""
        outcome = self._link.run(ops.send(self._keys, [message], self._options, self._on_refusal))
        return None if outcome.full else outcome.ids[0]


class Publishes:
    """The way of single publishes to the server."""

    def __init__(self, link: Link, keys: TopicKeys, keep: Keep | None) -> None:
        self._link = link
        self._keys = keys
        self._keep = keep

    def publish(self, entry: Publication) -> str:
        """Add an entry to the stream and return its id."""
        return self._link.run(topic_ops.publish(self._keys, [entry], self._keep))[0]
