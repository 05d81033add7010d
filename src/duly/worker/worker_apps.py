"""The worker's own connections: handlers that use up the connections of the app do not block the worker."""

from typing import Any

from duly._async.app import AsyncDuly
from duly._async.memory import AsyncMemoryLink
from duly._sync.app import Duly
from duly._sync.memory import MemoryLink


def open_apps(app: Duly | AsyncDuly) -> tuple[AsyncDuly, Duly]:
    """Open two more apps on the server of an app: one for the event loop, one for threads."""
    options: dict[str, Any] = {
        "namespace": app.namespace,
        "max_message_bytes": app._max_message_bytes,
        "allow_eviction": app._allow_eviction,
        "patience": app._patience,
    }
    async_app, sync_app = AsyncDuly(app._address, **options), Duly(app._address, **options)
    async_app._definitions.observer = sync_app._definitions.observer = app._definitions.observer
    if app._address.kind == "memory":
        async_app._link = AsyncMemoryLink(app._link.engine)
        sync_app._link = MemoryLink(app._link.engine)
    else:
        async_app._link.connections.rebind_loop()  # now: the first call would give the consumer another name
        async_app._link.connections.role = sync_app._link.connections.role = "worker"
        sync_app._link.is_quiet = True  # the async link already logs an outage
    return async_app, sync_app
