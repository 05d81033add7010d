"""Workers on the list, and how long they have been silent."""

from duly._core.keys import RegistryKeys
from duly.doctor.facts import SilentWorker
from duly.doctor.keyspace.walking import FEW, Walk
from duly.doctor.reading import number


def silent_workers(walk: Walk, server_us: int) -> tuple[SilentWorker, ...]:
    """List the workers that are known, with their silence. Who beats is not among them for long."""
    registry = RegistryKeys(walk.namespace)
    if ("workers", registry.name) not in walk.owners:
        return ()
    beats = walk.ask("workers", "ZRANGE", registry.key("beats"), 0, FEW - 1, "WITHSCORES")
    page = walk.ask("workers", "HSCAN", registry.key("workers"), 0, "COUNT", FEW)
    if "workers" in walk.untold:
        return ()
    last = {name: number(score) for name, score in zip(beats[0::2], beats[1::2], strict=True)}
    found = [SilentWorker(name, max((server_us - beat) / 1_000_000, 0)) for name, beat in last.items()]
    rows = page[1][0::2] if len(last) < FEW else []  # with more beats than were read, a row may have one of the others
    return (*found, *(SilentWorker(name, None) for name in rows if name not in last and _never_beat(walk, name)))


def _never_beat(walk: Walk, worker: bytes) -> bool:
    """Look again: it may have come, or gone, since the beats were read. Both add and remove beat and row at once."""
    registry = RegistryKeys(walk.namespace)
    if walk.ask("workers", "ZSCORE", registry.key("beats"), worker) is not None:
        return False
    return bool(walk.ask("workers", "HEXISTS", registry.key("workers"), worker) == 1)
