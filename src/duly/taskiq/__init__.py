"""taskiq on Duly: a broker, a source of schedules, and a backend of results. It needs the extra `taskiq`.

    broker = DulyBroker("redis://localhost:6379/0").with_result_backend(DulyResultBackend("redis://localhost:6379/0"))
    scheduler = TaskiqScheduler(broker, [DulyScheduleSource("redis://localhost:6379/0")])

The labels `delay` and `priority` are kept by the server. A message keeps its lease while its worker lives, and is
redelivered after the worker has died. `broker.queue` is the queue of Duly.
"""

from duly.taskiq.broker import DulyBroker
from duly.taskiq.results import DulyResultBackend
from duly.taskiq.schedules import DulyScheduleSource

__all__ = ["DulyBroker", "DulyResultBackend", "DulyScheduleSource"]
