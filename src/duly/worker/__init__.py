"""The worker: runs handlers, through crashes, restarts and bad messages.

`Worker` is for programs that already run an event loop. `run` starts one.
"""

from duly.worker.event_loop import arun, run
from duly.worker.worker import Worker
from duly.worker.worker_options import WorkerOptions

__all__ = ["Worker", "WorkerOptions", "arun", "run"]
