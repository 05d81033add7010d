"""The worker: runs handlers, through crashes, restarts and bad messages.

`Worker` is for programs with an event loop of their own, `run` for those without.
"""

from duly.worker.options import WorkerOptions
from duly.worker.running import arun, run
from duly.worker.worker import Worker

__all__ = ["Worker", "WorkerOptions", "arun", "run"]
