"""The connections of a worker: its own, so that what handlers do with theirs does not stand in its way."""

from typing import Any

from duly._async.app import AsyncDuly
from duly._async.memory import AsyncMemoryLink
from duly._sync.app import Duly
from duly._sync.memory import MemoryLink


def own_apps(app: Duly | AsyncDuly) -> tuple[AsyncDuly, Duly]:
    """Open the server of an app twice more: for the event loop, and for threads."""
    options: dict[str, Any] = {
        "namespace": app.namespace,
        "max_message_bytes": app._max_message_bytes,
        "allow_eviction": app._allow_eviction,
        "patience": app._patience,
    }
    own, threaded = AsyncDuly(app._address, **options), Duly(app._address, **options)
    if app._address.kind == "memory":
        own._link = AsyncMemoryLink(app._link.engine)
        threaded._link = MemoryLink(app._link.engine)
    else:
        own._link.connections.rebind_loop()  # here, or the first call would give the consumer another name
        own._link.connections.role = threaded._link.connections.role = "worker"
        threaded._link.is_quiet = True  # an outage is one line in the log of a worker, not one for each link
    return own, threaded
