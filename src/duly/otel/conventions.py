"""Names and attributes by the semantic conventions of OpenTelemetry for messaging, version 1.44.

The conventions are in development, and their Python package marks these names as private. So they are written here.
"""

from collections.abc import Mapping
from typing import Any, Final

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
GROUP: Final = "messaging.consumer.group.name"
MESSAGE_ID: Final = "messaging.message.id"
BATCH: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
ERROR: Final = "error.type"

NAMESPACE: Final = "messaging.duly.namespace"
ATTEMPT: Final = "messaging.duly.attempt"
OUTCOME: Final = "messaging.duly.outcome"
KEY: Final = "messaging.duly.key"
SCHEDULE: Final = "messaging.duly.schedule"
"""Attributes of Duly. The conventions require the name of the system in them."""

FAILED: Final = "_OTHER"
"""The error of a handler that failed without an exception."""

Attributes = dict[str, Any]


def attributes_of(place: Any, operation: str) -> Attributes:
    """Return the attributes that spans and metrics of an operation on a queue, topic or group share."""
    label: str = getattr(place, "label", place.name)  # that of a group has its topic and its name
    destination, slash, group = label.partition("/")
    found: Attributes = {
        SYSTEM: "duly",
        OPERATION: operation,
        OPERATION_TYPE: "send" if operation == "publish" else operation,
        DESTINATION: destination,
        **_server_of(place._app._address.options),
    }
    if slash:
        found[GROUP] = group
    if place._app.namespace != "duly":
        found[NAMESPACE] = place._app.namespace
    return found


def _server_of(options: Mapping[str, Any]) -> Attributes:
    """Return the server. With sentinels, in a cluster and in memory there is no single one."""
    if (path := options.get("path")) is not None:
        return {"server.address": path}
    if (host := options.get("host")) is not None:
        return {"server.address": host, "server.port": options["port"]}
    return {}


def error_type(error: BaseException | str) -> str:
    """Return the value of `error.type`."""
    if isinstance(error, str):
        return FAILED
    kind = type(error)
    is_known = kind.__module__ in ("builtins", "duly.errors")
    return kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}"
