"""Celery on Duly: safe settings, and control of tasks that wait or are dead.

    app = Celery("shop", broker="duly+redis://localhost:6379/0")
    tasks = duly.celery.setup(app)

`setup` changes settings that lose tasks if a worker dies. `tasks.cancel(id)` cancels a task before a worker gets it,
`tasks.dead()` lists tasks that were rejected or have killed their workers, and `tasks.redrive()` runs them again.
"""

from duly.celery.settings import setup
from duly.celery.tasks import TaskMessage, Tasks

__all__ = ["TaskMessage", "Tasks", "setup"]
