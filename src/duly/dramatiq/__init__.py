"""Dramatiq on Duly: a broker, and a backend of results. It needs the extra `dramatiq`.

    broker = DulyBroker("redis://localhost:6379/0")
    dramatiq.set_broker(broker)

Messages with a delay wait on the server. A message keeps its lease while its worker lives, and is redelivered after the
worker has died. A message that Dramatiq gives up is a dead letter of Duly. `broker.queues["default"]` is a queue of
Duly, which lists, cancels and redrives.
"""

from duly.dramatiq.broker import DulyBroker
from duly.dramatiq.lost_leases import LostLease
from duly.dramatiq.results import DulyBackend

__all__ = ["DulyBackend", "DulyBroker", "LostLease"]
