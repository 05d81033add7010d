"""Bad input raises a typed error that names the mistake, before anything is sent."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, InvalidName, Keep, Repeat, Retry, Send, TooLarge, UsageError
from tests.client._async.given import counted, given_leased
from tests.client.place import Place

NAN, INFINITE = float("nan"), float("inf")
DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]


@dataclass
class Case:
    """Options of a send, and words of the expected error."""

    says: str
    options: dict[str, Any]


SENDS = [
    Case("delay.*-1", {"delay": -1}),
    Case("delay.*-0.001", {"delay": -0.001}),
    Case("delay.*nan", {"delay": NAN}),
    Case("delay.*inf", {"delay": INFINITE}),
    Case("delay.*-inf", {"delay": -INFINITE}),
    Case("delay.*ten years.*1e[+]?300", {"delay": 1e300}),
    Case("delay.*ten years.*1000000000000", {"delay": 10**12}),
    Case("delay.*ten years", {"delay": 10**400}),
    Case("delay.*days=-1", {"delay": timedelta(days=-1)}),
    Case("delay.*ten years.*40000", {"delay": timedelta(days=40000)}),
    Case("delay.*'30'", {"delay": "30"}),
    Case("delay.*True", {"delay": True}),
    Case("delay.*datetime", {"delay": datetime(2040, 1, 1, tzinfo=UTC)}),
    Case("time zone", {"at": datetime(2040, 1, 1)}),  # noqa: DTZ001
    Case("at.*ten years", {"at": datetime.max.replace(tzinfo=UTC)}),
    Case("at.*1970", {"at": datetime.min.replace(tzinfo=UTC)}),
    Case("at.*nan", {"at": NAN}),
    Case("at.*inf", {"at": INFINITE}),
    Case("at.*-5", {"at": -5}),
    Case("at.*ten years ahead$", {"at": 1e15}),
    Case("at.*ten years ahead: it seems to be in milliseconds, divide it by 1000$", {"at": 1_800_000_000_000}),
    Case("at", {"at": 10**400}),
    Case("at.*'2030-01-01'", {"at": "2030-01-01"}),
    Case("at.*True", {"at": True}),
    Case("delay=5 and at=0", {"delay": 5, "at": 0}),
    Case("delay=0 and at=0", {"delay": 0, "at": 0}),
    Case("priority.*-1", {"priority": -1}),
    Case("priority.*10", {"priority": 10}),
    Case("priority.*1.5", {"priority": 1.5}),
    Case("priority.*'5'", {"priority": "5"}),
    Case("priority.*True", {"priority": True}),
    Case("priority.*None", {"priority": None}),
    Case("id.*empty", {"id": ""}),
    Case("id.*5", {"id": 5}),
    Case("id.*b'x'", {"id": b"x"}),
    Case("id.*1024", {"id": "x" * 2000}),
    Case("id.*control", {"id": "a\x00b"}),
    Case("id.*control", {"id": "a\x7fb"}),
    Case("key.*control", {"key": "a\x85b"}),
    Case("dedup.*control", {"dedup": "a\x9fb"}),
    Case("id.*Unicode", {"id": "\ud800"}),
    Case("key.*empty", {"key": ""}),
    Case("key.*5", {"key": 5}),
    Case("key.*control", {"key": "a\nb"}),
    Case("key.*1024", {"key": "x" * 2000}),
    Case("dedup.*empty", {"dedup": ""}),
    Case("dedup.*5", {"dedup": 5}),
    Case("dedup.*1024", {"dedup": "中" * 500}),
    Case("dedup_for.*0", {"dedup": "d", "dedup_for": 0}),
    Case("dedup_for.*-1", {"dedup": "d", "dedup_for": -1}),
    Case("dedup_for.*'5'", {"dedup": "d", "dedup_for": "5"}),
    Case("dedup=", {"dedup_for": 5}),
    Case("dedup=", {"replace": True}),
    Case("replace.*'yes'", {"dedup": "d", "replace": "yes"}),
    Case("ttl.*0", {"ttl": 0}),
    Case("ttl.*-1", {"ttl": -1}),
    Case("ttl.*nan", {"ttl": NAN}),
    Case("ttl.*'5'", {"ttl": "5"}),
    Case("headers.*5", {"headers": 5}),
    Case("headers.*trace", {"headers": "trace"}),
    Case("headers.*'n'.*5", {"headers": {"n": 5}}),
    Case("headers.*5.*'n'", {"headers": {5: "n"}}),
    Case("header.*Unicode", {"headers": {"n": "\ud800"}}),
    Case("retry.*5", {"retry": 5}),
    Case("callable", {"retry": Retry(delay=lambda _: 1)}),
    Case("durable.*'disk'", {"durable": "disk"}),
    Case("durable.*0", {"durable": 0}),
    Case("durable.*True", {"durable": True}),
    Case("durable.*replicas, at most 1000, not 1001", {"durable": 1001}),
    Case("durable.*9223372036854775808", {"durable": 2**63}),
]


def name_of(case: Case) -> str:
    return re.sub(r"[^\w.,=-]+", "-", repr(case.options))[:50]


@pytest.mark.parametrize("case", SENDS, ids=name_of)
async def test_a_bad_option_of_a_send_is_named_and_nothing_is_written(
    queue: AsyncQueue, app: AsyncDuly, place: Place, case: Case
) -> None:
    with pytest.raises(UsageError, match=f"(?is){case.says}"):
        await queue.send("body", **case.options)

    assert place.keys(queue.name) == {}
    assert await counted(queue) == {}


@pytest.mark.parametrize("case", [case for case in SENDS if "durable" not in case.options], ids=name_of)
async def test_one_bad_message_of_many_stops_all_of_them(queue: AsyncQueue, place: Place, case: Case) -> None:
    with pytest.raises(UsageError, match=f"(?is){case.says}"):
        await queue.send_many(["good", Send("bad", **case.options)])

    assert place.keys(queue.name) == {}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (object(), "object"),
        (lambda: 1, "function"),
        ({"a": {1, object()}}, "object"),
        ({("a", "b"): 1}, "dict"),
        ("\ud800", "str"),
        (complex(1, 2), "complex"),
        (DEEP, "list"),
        ([Ellipsis], "ellipsis"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalnum() else "-",
)
async def test_a_body_that_cannot_be_encoded_is_refused(queue: AsyncQueue, place: Place, body: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"(?i){says}"):
        await queue.send(body)

    assert place.keys(queue.name) == {}


async def test_a_send_in_a_send_is_refused(queue: AsyncQueue, place: Place) -> None:
    """It would be stored as the fields that it has, and due now."""
    says = f"^queue '{queue.name}': a Send has a body and its options, and cannot be a body itself"
    nested = Send(Send(1, delay=300))

    with pytest.raises(UsageError, match=says):
        await queue.send(nested)
    with pytest.raises(UsageError, match=says):
        await queue.send_many(["good", nested])

    assert place.keys(queue.name) == {}


@pytest.mark.parametrize("body", [NAN, {"price": INFINITE}], ids=str)
async def test_a_number_that_json_cannot_hold_is_refused(queue: AsyncQueue, body: Any) -> None:
    with pytest.raises(UsageError, match=r"(?i)nan|inf"):
        await queue.send(body)


@pytest.mark.parametrize("body", [b"x" * 1_048_577, "x" * 1_048_577])
async def test_a_body_over_a_mebibyte_is_too_large(queue: AsyncQueue, place: Place, body: Any) -> None:
    with pytest.raises(TooLarge, match=r"10485\d\d bytes.*1048576.*" + queue.name):
        await queue.send(body)

    assert place.keys(queue.name) == {}


async def test_the_largest_body_is_an_option_of_app_and_queue(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, max_message_bytes=10) as app:
        await app.queue(queue_name).send(b"x" * 10)
        with pytest.raises(TooLarge, match="11 bytes"):
            await app.queue(queue_name).send(b"x" * 11)
        await app.queue(queue_name, max_message_bytes=11).send(b"x" * 11)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        ("receive", {"limit": 0}, "limit.*0"),
        ("receive", {"limit": -1}, "limit.*-1"),
        ("receive", {"limit": 1001}, "limit.*1001"),
        ("receive", {"limit": 1.0}, "limit.*1.0"),
        ("receive", {"limit": "1"}, "limit.*'1'"),
        ("receive", {"limit": None}, "limit.*None"),
        ("receive", {"wait": -1}, "wait.*-1"),
        ("receive", {"wait": NAN}, "wait.*nan"),
        ("receive", {"wait": None}, "wait.*None"),
        ("receive", {"lease": 0}, "lease.*0"),
        ("receive", {"lease": -1}, "lease.*-1"),
        ("receive", {"lease": INFINITE}, "lease.*inf"),
        ("receive", {"lease": "30"}, "lease.*'30'"),
        ("get", {"id": ""}, "id.*empty"),
        ("get", {"id": None}, "id.*None"),
        ("cancel", {"id": ""}, "id.*empty"),
        ("cancel", {"id": 5}, "id.*5"),
        ("cancel", {"id": "x", "running": "false"}, "running must be True or False, not 'false'"),
        ("promote", {"id": ""}, "id.*empty"),
        ("reschedule", {"id": "x"}, "delay= or at="),
        ("reschedule", {"id": "x", "delay": 1, "at": 1}, "delay=1 and at=1"),
        ("reschedule", {"id": "x", "delay": -1}, "delay.*-1"),
        ("reschedule", {"id": "", "delay": 1}, "id.*empty"),
        ("list", {"state": "lost"}, "'lost'.*ready"),
        ("list", {"state": None}, "None"),
        ("list", {"state": "ready", "limit": 0}, "limit.*0"),
        ("list", {"state": "ready", "limit": 1001}, "limit.*1001"),
        ("list", {"state": "ready", "after": 5}, "after.*not 5"),
        ("list", {"state": "ready", "after": ""}, "after.*empty"),
        ("pending", {"limit": -1}, "limit.*-1"),
        ("purge", {"state": "lost"}, "'lost'"),
        ("redrive", {"limit": 0}, "limit.*0"),
        ("redrive", {"limit": "1"}, "limit.*'1'"),
        ("audit", {"repair": "false"}, "repair must be True or False, not 'false'"),
        ("audit", {"repair": None}, "repair must be True or False, not None"),
        ("send_many", {"bodies": None}, "send_many takes a list of bodies, not NoneType"),
        ("send_many", {"bodies": 5, "spread": 5}, "send_many takes a list of bodies, not int"),
    ],
)
async def test_a_bad_argument_is_named_and_nothing_is_written(
    queue: AsyncQueue, place: Place, method: str, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=f"(?s){says}"):
        await getattr(queue, method)(**arguments)

    assert place.keys(queue.name) == {}


@pytest.mark.parametrize(
    ("verb", "arguments", "says"),
    [
        ("retry", {"delay": -1}, "delay.*-1"),
        ("retry", {"delay": "1"}, "delay.*'1'"),
        ("retry", {"delay": NAN}, "delay.*nan"),
        ("defer", {"delay": -1}, "delay.*-1"),
        ("defer", {"delay": None}, "delay.*None"),
        ("recycle", {"delay": -1}, "delay.*-1"),
        ("recycle", {"body": object()}, "object"),
        ("recycle", {"body": b"x" * 1_048_577}, "1048577"),
        ("extend", {"seconds": 0}, "seconds.*0"),
        ("extend", {"seconds": -1}, "seconds.*-1"),
        ("extend", {"seconds": "60"}, "seconds.*'60'"),
    ],
)
async def test_a_bad_argument_of_a_settle_is_named_and_the_delivery_is_still_held(
    queue: AsyncQueue, verb: str, arguments: dict[str, Any], says: str
) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=f"(?s){says}"):
        await getattr(delivery, verb)(**arguments)

    assert await counted(queue) == {"sent": 1, "delivered": 1, "leased": 1}
    await delivery.ack()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lease": 0}, "lease.*0"),
        ({"lease": -1}, "lease.*-1"),
        ({"lease": "30"}, "lease.*'30'"),
        ({"max_runtime": 0}, "max_runtime.*0"),
        ({"retry": 5}, "retry.*5"),
        ({"retry": None}, "retry.*None"),
        ({"crash_limit": 0}, "crash_limit.*0"),
        ({"crash_limit": 1.5}, "crash_limit.*1.5"),
        ({"max_length": 0}, "max_length.*0"),
        ({"max_bytes": -1}, "max_bytes.*-1"),
        ({"on_full": "explode"}, "on_full.*'explode'"),
        ({"on_dead": "ignore"}, "on_dead.*'ignore'"),
        ({"dedup_for": 0}, "dedup_for.*0"),
        ({"dead": None}, "dead.*None"),
        ({"dead": 5}, "dead.*5"),
        ({"done": True}, "done.*True"),
        ({"max_message_bytes": 0}, "max_message_bytes.*0"),
        ({"type": 5}, "type.*5"),
        ({"leese": 5}, "leese"),
        ({"leese": 5}, r"did you mean lease=\? Else there are type, lease, .*, max_message_bytes$"),
        ({"foo": 5}, "has no option foo=: there are type, lease, max_runtime, .*, max_message_bytes$"),
        ({"leese": 5, "lease": 5, "retries": 1}, "leese=.*retries="),
        ({"max_retries": 5}, r"max_retries=: use retry=duly\.Retry\(attempts=\.\.\.\)"),
        ({"visibility_timeout": 5}, "visibility_timeout=: use lease="),
        ({"concurrency": 5}, r"@queue\.handler\(concurrency=\.\.\.\)$"),
        ({"delay": 5}, r"queue\.send\(body, delay=\.\.\.\)$"),
        ({"ttl": 5}, r"queue\.send\(body, ttl=\.\.\.\)$"),
        ({"priority": 5}, r"queue\.send\(body, priority=\.\.\.\)$"),
        ({"shards": 2}, "shards=2 is not built yet$"),
    ],
    ids=str,
)
def test_a_bad_option_of_a_queue_is_named(app: AsyncDuly, queue_name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)^queue '{queue_name}': .*{says}") as refused:
        app.queue(queue_name, **options)
    assert str(refused.value).count(queue_name) == 1


def test_an_option_that_is_not_built_may_ask_for_nothing(app: AsyncDuly, queue_name: str) -> None:
    options: dict[str, Any] = {"shards": 1}

    assert app.queue(queue_name, **options).options == app.queue(queue_name).options


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "-a", ".a", "_a", "a/b", "a:b", "{a}", "a{", "ü", "订单", "x" * 129, "a\n", "a*", None, 5, b"a"],
    ids=lambda name: repr(name)[:12],
)
def test_a_bad_name_is_named(app: AsyncDuly, name: Any) -> None:
    with pytest.raises(InvalidName, match=re.escape(repr(name)) + r".*ASCII letters \(a-z, A-Z\)"):
        app.queue(name)


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-9", "x" * 128])
async def test_a_good_name_is_taken(app: AsyncDuly, name: str) -> None:
    assert app.queue(name).name == name


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Retry(attempts=0), "attempts.*0"),
        (lambda: Retry(attempts=1.5), "attempts.*1.5"),  # type: ignore[arg-type]
        (lambda: Retry(first=-1), "first.*-1"),
        (lambda: Retry(factor=-1), "factor.*-1"),
        (lambda: Retry(factor=NAN), "factor.*nan"),
        (lambda: Retry(factor="2"), "factor.*'2'"),  # type: ignore[arg-type]
        (lambda: Retry(max=-1), "max.*-1"),
        (lambda: Retry(attempts=2**53 + 1), "attempts.*9007199254740993"),
        (lambda: Retry(factor=10**400), "factor.*1000"),
        (lambda: Repeat(times=10**30), "times.*10000"),
        (lambda: Retry(delays=[1] * 1001), "delays.*1001"),
        (lambda: Retry(jitter=2), "jitter.*2"),
        (lambda: Retry(jitter=NAN), "jitter.*nan"),
        (lambda: Retry(delays=[]), "delays"),
        (lambda: Retry(delays=[1, -1]), "delays.*-1"),
        (lambda: Retry(delays=5), "delays.*5"),  # type: ignore[arg-type]
        (lambda: Retry(delay=5), "delay.*5"),  # type: ignore[arg-type]
        (lambda: Keep(count=-1), "count.*-1"),
        (lambda: Keep(age=-1), "age.*-1"),
        (lambda: Keep(bytes=1.5), "bytes.*1.5"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_policy_is_named(make: Any, says: str) -> None:
    """Needs no backend: a policy is a value that is checked when it is made."""
    with pytest.raises(UsageError, match=f"(?s){says}"):
        make()


@pytest.mark.parametrize(
    "options",
    [
        {"namespace": name}
        for name in ("a b", "", "{}", "{", "}", "{x", "x}", "a{x}", "{x}:", "{{x}}", "{x}{y}", "{~x}")
    ],
    ids=str,
)
def test_a_bad_namespace_is_named(backend: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidName, match="namespace"):
        AsyncDuly(backend, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_message_bytes": 0}, "max_message_bytes.*0"),
        ({"patience": -1}, "patience.*-1"),
        ({"allow_eviction": "false"}, "allow_eviction must be True or False, not 'false'"),
        ({"allow_eviction": 1}, "allow_eviction must be True or False, not 1"),
        ({"allow_eviction": NAN}, "allow_eviction must be True or False, not nan"),
        ({"allow_eviction": None}, "allow_eviction must be True or False, not None"),
    ],
    ids=str,
)
def test_a_bad_option_of_an_app_is_named(backend: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        AsyncDuly(backend, **options)
