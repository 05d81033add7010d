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

EXAMPLES = 1000

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
        "commit",
        "if not lease or lease.fence ~= fence then",
        "if not lease then",
        id="commit takes a stale fence",
    ),
    pytest.param("commit", "if this > last then", "if this >= last then", id="a repeated commit is a new one"),
    pytest.param("commit", "  carry_out(plan)\n", "", id="commit loses what it sends"),
    pytest.param(
        "commit",
        "  if plan.is_refused then",
        "  if plan.is_refused then\n    sweep(plan)",
        id="a refused commit drops what is past its ttl",
    ),
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
    pytest.param(
        "claim",
        "read_counts(stored_counts)[CRASHES] >= crash_limit - 1",
        "read_counts(stored_counts)[CRASHES] >= crash_limit",
        id="a suspect is taken for one of many",
    ),
    pytest.param("claim", "return { due[1] }", "return { due[1], due[2] }", id="a suspect goes out with another"),
    pytest.param(
        "claim",
        "redis.call('ZREM', waiting, unpack(candidates))",
        "redis.call('ZREM', waiting, unpack(due))",
        id="suspects that are passed over are lost",
    ),
    pytest.param(
        "claim",
        "if has_passed_over then",
        "if false then",
        id="a suspect that was passed over makes its consumer spin",
    ),
    pytest.param("claim", "if state == PASSED_OVER then", "if false then", id="nobody is told of a suspect"),
    pytest.param(
        "claim",
        "(after == 'stay' and next_us ~= 0)",
        "(after == 'stay')",
        id="a claim that stays leaves no token at its limit",
    ),
    pytest.param(
        "claim",
        "(after == 'stay' and next_us ~= 0)",
        "(after == 'stay' and #ids == 0)",
        id="a claim that stays and took something keeps the token",
    ),
    pytest.param(
        "claim",
        "next_us, fence = until_next(), #ids > 0 and now or 0",
        "next_us, fence = #ids == 0 and until_next() or 0, #ids > 0 and now or 0",
        id="a claim that took something does not know when to look again",
    ),
    pytest.param(
        "tidy",
        "redis.call('ZRANGEBYSCORE', keys.expires, '-inf', now,",
        "redis.call('ZRANGEBYSCORE', keys.expires, '-inf', now + 1000000,",
        id="tidy drops what has a second to live",
    ),
    pytest.param("tidy", "redis.call('HDEL', keys.dedup, value)", "", id="tidy keeps the dedup value of what expired"),
    pytest.param(
        "tidy",
        "redis.call('HINCRBY', keys.meta, size_field, 0 - freed)",
        "",
        id="tidy does not count the bytes that it frees",
    ),
    pytest.param("tidy", "take_token_if_empty(keys.wake, keys.msgs)", "", id="tidy leaves a token in an empty queue"),
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
