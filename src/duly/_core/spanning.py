"""Calls that name several queues or keys. On a cluster these must be in one slot: others are refused unsent."""

from typing import Any, Final

from duly._core.keys import QueueKeys
from duly._core.topology import slot_of
from duly.errors import UsageError

_BRACES: Final = (
    "A namespace in braces, like Duly(url, namespace='{shop}'), keeps all of its queues, topics and locks in one slot"
)


def check_target(link: Any, what: str, keys: QueueKeys, target: QueueKeys) -> None:
    """Raise if a call on a queue or topic would also write to one in another slot of a cluster."""
    if link.is_spread and target.slot != keys.slot:
        raise UsageError(
            f"{what} on {keys.title} cannot go to {target.title}: their keys are in two slots of the cluster, and one "
            f"call changes one slot. {_BRACES}"
        )


def check_key(link: Any, what: str, keys: QueueKeys, key: bytes) -> None:
    """Raise if a commit would change a key of the user in another slot of a cluster."""
    if link.is_spread and slot_of(key) != keys.slot:
        tag = _tag_of(keys)
        raise UsageError(
            f"{what} of a commit on {keys.title} names a key in another slot of the cluster, and one call changes one "
            f"slot. Put {tag} into the name of the key, as in stock:{tag}:1. {_BRACES}"
        )


def _tag_of(keys: QueueKeys) -> str:
    """Return the hash tag of the keys, in its braces."""
    text = keys.prefix.decode()
    return text[text.index("{") : text.index("}") + 1]
