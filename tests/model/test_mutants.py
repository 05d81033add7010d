"""The machine is worth what it catches: scripts with a mistake in them, each of which must be found.

Only the real side gets the mistake. Each is one replacement in a script's text, and the finding must be a
judgement of ours: a script that merely fails proves nothing.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from duly import _lua
from tests.conftest import need
from tests.model.machine import Broken, machine_in, started_world

EXAMPLES = 300

MUTANTS = [
    pytest.param(
        "ack",
        "if lease and lease.fence == fence and not seen[id] then",
        "if lease and not seen[id] then",
        id="ack does not check the fence",
    ),
    pytest.param(
        "claim",
        "redis.call('HSET', LEASES, unpack(leases))",
        "",
        id="claim does not record the lease",
    ),
    pytest.param(
        "retry",
        "if lease and lease.fence == tonumber(ARGV[at + 1]) then",
        "if lease then",
        id="retry takes a stale fence",
    ),
    pytest.param(
        "retry",
        "local lease = stored[position] and not seen[id] and read_lease(stored[position])",
        "local lease = not seen[id] and (stored[position] and read_lease(stored[position]) or "
        "{ fence = tonumber(ARGV[at + 1]), size = 0, flags = 0, consumer = '', "
        "priority = tonumber(string.sub(ARGV[2], 1, 1)) })",
        id="retry brings back what was acked",
    ),
    pytest.param("send", "if this <= last then", "if this < last then", id="a repeated send is stored twice"),
    pytest.param("claim", "if this > last then", "if this >= last then", id="a repeated claim takes more"),
    pytest.param("ack", "if this < last then", "if false then", id="an overtaken ack is answered"),
    pytest.param(
        "cancel",
        "redis.call('ZREM', key, id)",
        "",
        id="cancel leaves the index",
    ),
    pytest.param(
        "cancel",
        "redis.call('HDEL', keys.dedup, value)",
        "",
        id="cancel keeps the dedup value",
    ),
    pytest.param(
        "claim",
        "counted[CRASHES] = counted[CRASHES] + 1",
        "",
        id="a crash is not counted",
    ),
    pytest.param(
        "claim",
        "redis.call('ZRANGEBYSCORE', waiting, '-inf', now,",
        "redis.call('ZRANGEBYSCORE', waiting, '-inf', now + 1000000,",
        id="claim is a second early",
    ),
    pytest.param(
        "release",
        "counted[DUE] > 0 and counted[DUE] or due_of(record)",
        "due_of(record)",
        id="release forgets when a retry was due",
    ),
    pytest.param(
        "claim",
        "if last and tonumber(last) >= now then",
        "if false then",
        id="the queue's clock goes back with the server's",
    ),
    pytest.param(
        "reject",
        "redis.call('HINCRBY', keys.meta, counter, trimmed)",
        "",
        id="trimmed dead letters are not counted",
    ),
    pytest.param(
        "extend",
        "if lease and lease.fence == tonumber(ARGV[at + 1]) then",
        "if lease then",
        id="extend takes a stale fence",
    ),
    pytest.param(
        "send",
        "local before = redis.pcall('SET',",
        "redis.call('HDEL', MSGS, '') local before = redis.pcall('SET',",
        id="a full server takes sends",
    ),
    pytest.param("recycle", "counted[i] = 0", "counted[i] = counted[i]", id="recycle keeps the attempts"),
    pytest.param("redrive", "redis.call('ZREM', keys.dead, id)", "", id="redrive leaves the letter among the dead"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "original", "mistake"), MUTANTS)
def test_the_machine_finds(script: str, original: str, mistake: str) -> None:
    need("valkey")
    text = _lua.script(script).text
    assert text.count(original) == 1, "the mistake is not made where it should be"
    with started_world(texts={script: text.replace(original, mistake)}) as world, pytest.raises(Broken):
        run_state_machine_as_test(
            machine_in(world),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=50,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],  # the first finding will do
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
