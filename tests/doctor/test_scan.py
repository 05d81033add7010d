"""The owner of a key: every key of every family is known, and no other key."""

import pytest

from duly import _lua
from duly._core.keys import GroupKeys, LockKeys, OnceKeys, QueueKeys, RegistryKeys, ScheduleKeys, TopicKeys
from duly.doctor.scan import parse_key, tails_of

TOPIC = TopicKeys("duly", "events")
STORES = [
    (QueueKeys("duly", "orders"), "queue", "orders"),
    (TOPIC, "topic", "events"),
    (GroupKeys(TOPIC, "archive", frees=False), "group", "events/archive"),
    (RegistryKeys("duly"), "workers", "~workers"),
    (ScheduleKeys("duly"), "schedules", "~schedules"),
    (LockKeys("duly", "stock:{42}"), "lock", "~lock:stock:%7B42%7D"),
    (OnceKeys("duly", "mail"), "once", "~once:mail"),
]


@pytest.mark.parametrize(("keys", "family", "owner"), STORES, ids=[family for _, family, _ in STORES])
def test_every_key_of_a_family_is_known_with_its_owner(keys: QueueKeys, family: str, owner: str) -> None:
    for tail in tails_of(family):
        found = parse_key("duly", keys.key(tail))

        assert found is not None
        assert (found.family, found.owner, found.tail, found.prefix) == (family, owner, tail, keys.prefix)
        assert found.is_known
    call = parse_key("duly", keys.call(b"00ff"))
    assert call is not None
    assert (call.family, call.is_known) == (family, True)


@pytest.mark.parametrize("script", _lua.names())
def test_every_key_of_every_script_is_known_somewhere(script: str) -> None:
    """A key of a new script must not be reported as an orphan."""
    everywhere = {tail for _, family, _ in STORES for tail in tails_of(family)}

    for kind in ("queue", "topic", "group", "freeing"):
        keys = set(_lua.script(script, kind).keys) - {"call", "others*", "waiting*"}
        assert keys <= everywhere


@pytest.mark.parametrize(
    "key",
    [
        b"duly:{orders}:bodies",
        b"duly:{orders}:waiting10",
        b"duly:{orders}:call:",
        b"duly:{orders}:",
        b"duly:{~workers}:meta",
        b"duly:{~lock:a}:msgs",
        b"duly:{~other}:wake",
        b"duly:{@events}:group:archive",
        b"duly:{@events}:group:archive:bodies",
        b"duly:{}:meta",
        b"duly:{\xff}:meta",
        b"duly:{q;touch x;}:msgs",
        b"duly:{q\nFLUSHALL\n#}:msgs",
        b"duly:{" + b"q" * 129 + b"}:msgs",
        b"duly:{@t;touch x;}:stream",
        b"duly:{@}:stream",
        b"duly:{@t}:group:g$(touch x):meta",
    ],
)
def test_other_names_are_not_known(key: bytes) -> None:
    found = parse_key("duly", key)

    assert found is not None
    assert not found.is_known


@pytest.mark.parametrize("key", [b"duly:orders", b"other:{orders}:meta", b"dulyx:{orders}:meta", b"duly:{orders"])
def test_a_key_of_another_namespace_is_ignored(key: bytes) -> None:
    assert parse_key("duly", key) is None
