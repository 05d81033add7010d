"""The processor time and the memory of the server, as far as its user may read them."""

from dataclasses import dataclass

from duly import Duly, UsageError
from duly._core.server import read_info
from duly.doctor.client import Client, connected

_BYTES_BESIDE_A_BODY = 400
"""An estimate on the safe side of the server's memory for a waiting message."""
_SHARE = 0.5
"""The part of the free memory that a run may fill."""


@dataclass(frozen=True)
class Use:
    """The resources that a server had used at one moment."""

    cpu: float
    memory: int


def read(app: Duly) -> Use | None:
    """Read the use. None if the user may not run INFO, and for a cluster, where several nodes would count."""
    info = _info(app)
    if not {"used_cpu_user", "used_cpu_sys", "used_memory"} <= info.keys():
        return None
    return Use(float(info["used_cpu_user"]) + float(info["used_cpu_sys"]), int(info["used_memory"]))


def check_room(app: Duly, messages: int, body_bytes: int) -> None:
    """Raise if the messages of one round would fill more than half of the memory that is free."""
    info = _info(app)
    most = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    if not most:
        return
    needed = messages * (body_bytes + _BYTES_BESIDE_A_BODY)
    free = max(0, most - int(info["used_memory"]))
    if needed > free * _SHARE:
        raise UsageError(
            f"{messages:,} messages need about {needed // 1_000_000:,} MB, and the server has {free // 1_000_000:,} MB "
            "free. Choose fewer --messages or smaller --body-bytes: a run may use half of the free memory"
        )


def _info(app: Duly) -> dict[str, str]:
    if app._address.topology == "cluster":
        return {}
    with connected(app._address) as wire:
        reply = Client(wire, app.namespace).ask("INFO")
    return read_info(reply) if isinstance(reply, bytes) else {}
