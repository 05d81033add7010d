"""Import: move the messages of other queues on Redis and Valkey to queues of Duly.

A source knows the keys of one kind of queue: `CeleryQueue`, `RqQueue`, `Delayqueue`, `RmqQueue`, `RedissonQueue`,
`PlainList` and `PlainSortedSet`. `move` sends what it finds there, and returns a report. `duly import` calls it.

You can stop a move at any point and start it again: each message arrives once. It works while the old producers and
consumers run. A message that cannot be moved stays where it is, and the report has the reason.
"""

from duly.importing.celery import CeleryQueue
from duly.importing.delayqueue import Delayqueue
from duly.importing.moving import Report, move
from duly.importing.plain import PlainList, PlainSortedSet
from duly.importing.redisson import RedissonQueue
from duly.importing.rmq import RmqQueue
from duly.importing.rq import RqQueue
from duly.importing.source import BodyFormat, Source

__all__ = [
    "BodyFormat",
    "CeleryQueue",
    "Delayqueue",
    "PlainList",
    "PlainSortedSet",
    "RedissonQueue",
    "Report",
    "RmqQueue",
    "RqQueue",
    "Source",
    "move",
]
