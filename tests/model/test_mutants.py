"""The machine is worth what it catches: scripts and clients with a mistake in them, each of which must be found.

Only the real side gets the mistake of a script. Each is one replacement in its text, and the finding must be a
check of the machine: a script that merely fails proves nothing.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from duly import _lua
from duly._lua import constants
from tests.conftest import need
from tests.model.machine import QueueMachine, machine_in
from tests.model.mistaken_clients import StreamPerConnection
from tests.model.world import Broken, started_world

# The hardest is found after some 200 examples on the average, now after 10 and now after 600: a change of the machine
# or of Hypothesis makes others of them.
EXAMPLES = 4000

MUTANTS = [
    pytest.param(
        "ack",
        "if text and fence == given_fence and not seen[id] then",
        "if text and not seen[id] then",
        id="ack does not check the fence",
    ),
    pytest.param(
        "claim",
        "redis.call('HSET', LEASES, unpack(claim.leases))",
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
        "{ fence = tonumber(ARGV[at + 1]), size = 0, flags = 0, text = '', rest_at = 1, "
        "priority = tonumber(string.sub(ARGV[2], 1, 1)) })",
        id="retry restores an acked message",
    ),
    pytest.param("send", "if this <= last then", "if this < last then", id="a repeated send is stored twice"),
    pytest.param("claim", "if this > last then", "if this >= last then", id="a repeated claim takes more"),
    pytest.param("ack", "if this < last then", "if false then", id="an overtaken ack is answered"),
    pytest.param("commit", "if this > last then", "if this >= last then", id="a repeated commit is a new one"),
    pytest.param(
        "retry",
        "redis.call('SET', CALL, sequence .. cmsgpack.pack(reply), 'PX', kept_ms)",
        "",
        id="a retry is not recorded with its effects",
    ),
    pytest.param("commit", "  carry_out(plan)\n", "", id="commit loses what it sends"),
    pytest.param(
        "commit",
        "  if plan.is_refused then",
        "  if plan.is_refused then\n    sweep(plan)",
        id="a refused commit drops messages past their ttl",
    ),
    pytest.param(
        "claim",
        "    claim.is_full = claim.is_full or is_alone\n",
        "",
        id="a share delivers others with a suspect",
    ),
    pytest.param(
        "claim",
        "if credit < 1 then",
        "if credit < 2 then",
        id="a share gives retries too little",
    ),
    pytest.param(
        "cancel",
        "redis.call('ZREM', key, member)",
        "",
        id="cancel leaves the index",
    ),
    pytest.param(
        "cancel",
        "(place == 'leased' and not running)",
        "false",
        id="cancel takes a message from its holder",
    ),
    pytest.param(
        "cancel",
        "redis.call('HDEL', keys.dedup, value)",
        "",
        id="cancel keeps the dedup value",
    ),
    pytest.param(
        "claim",
        "counts[CRASHES] = counts[CRASHES] + 1",
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
        "progress",
        "if lease and lease.fence == tonumber(ARGV[at + 1]) then",
        "if lease then",
        id="progress takes a stale fence",
    ),
    pytest.param(
        "progress",
        "if lease.flags < FLAG_HAS_COUNTS then",
        "if false then",
        id="progress leaves rows that an ack does not remove",
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
        "local had_turn = take(",
        "if #due > 0 then redis.call('ZREM', waiting, unpack(due)) end local had_turn = take(",
        id="suspects that are passed over are lost",
    ),
    pytest.param(
        "claim",
        "local head = claim.has_skipped_suspects and ",
        "local head = false and ",
        id="a suspect that was passed over makes its consumer spin",
    ),
    pytest.param("claim", "if state == PASSED_OVER then", "if false then", id="no consumer learns of a suspect"),
    pytest.param(
        "claim",
        "is_watching = next_us ~= 0 and (",
        "is_watching = (",
        id="a claim that stays leaves no token at its limit",
    ),
    pytest.param(
        "claim",
        "next_us ~= 0 and (after == 'stay' or",
        "next_us ~= 0 and ((after == 'stay' and taken == 0) or",
        id="a claim that stays and took something keeps the token",
    ),
    pytest.param(
        "claim",
        "next_us, fence = until_next(claim, in_use, next_at), taken > 0 and now or 0",
        "next_us, fence = taken == 0 and until_next(claim, in_use, next_at) or 0, taken > 0 and now or 0",
        id="a claim that took something does not know when to claim again",
    ),
    pytest.param(
        "tidy",
        "redis.call('ZRANGEBYSCORE', keys.expires, '-inf', now,",
        "redis.call('ZRANGEBYSCORE', keys.expires, '-inf', now + 1000000,",
        id="tidy drops a message with a second to live",
    ),
    pytest.param("tidy", "redis.call('HDEL', keys.dedup, value)", "", id="tidy keeps the dedup value of what expired"),
    pytest.param(
        "tidy",
        "redis.call('HINCRBY', keys.meta, size_field, 0 - freed)",
        "",
        id="tidy does not count the bytes that it frees",
    ),
    pytest.param(
        "cancel",
        "add_row_bytes(keys, place, 0 - redis.call('HSTRLEN', keys.why, id))",
        "",
        id="cancel does not count the row of a dead letter that it removes",
    ),
    pytest.param(
        "finish",
        "add_row_bytes(keys, 'done', row)",
        "add_row_bytes(keys, 'done', row + 1)",
        id="finish counts more bytes of a row than it stores",
    ),
    pytest.param(
        "tidy",
        "take_wake_token_if_empty(keys.wake, keys.msgs, keys.meta)",
        "",
        id="tidy leaves a token in an empty queue",
    ),
    # The history.
    pytest.param(
        "send",
        "until_point <= 0 or until_point > MINUTE_US",
        "until_point <= 0 - MINUTE_US",
        id="a send takes the point of a minute too late",
    ),
    pytest.param(
        "claim",
        "type(parked) == 'number' and parked or 0",
        "0",
        id="a point does not count parked messages",
    ),
    pytest.param("measure", "(sums[i] or 0) + (more[i] or 0)", "more[i] or 0", id="times replace earlier ones"),
    # Lanes.
    pytest.param(
        "claim", "new_owner = key and not held_by and NONE_PARKED .. id", "new_owner = nil", id="a lane is not taken"
    ),
    pytest.param(
        "claim",
        "new_owner = byte(held_by) == NONE_PARKED_BYTE and SOME_PARKED .. sub(held_by, 2)",
        "new_owner = nil",
        id="a lane does not know of a parked message",
    ),
    pytest.param(
        "claim",
        "parked_member(key, found[i], id)",
        "member_of(key, 9 - byte(found[i], PRIORITY_AT), (struct.unpack('<d', found[i], DUE_AT)), id)",
        id="the lowest of a lane comes first",
    ),
    pytest.param(
        "finish",
        "#held.owners > 0 and hand_on(keys, held.lanes, held.owners, now)",
        "false",
        id="finish keeps the lane",
    ),
    pytest.param(
        "finish",
        "hand_on(keys, held.lanes, held.owners, now) then\n    leave_wake_token(keys.wake)",
        "hand_on(keys, held.lanes, held.owners, now) then",
        id="no consumer is woken when finish passes a lane on",
    ),
    pytest.param(
        "finish",
        "redis.call('ZRANGEBYLEX', parked, '[' .. key .. '\\0', '(' .. key .. '\\1', ",
        "redis.call('ZREVRANGEBYLEX', parked, '(' .. key .. '\\1', '[' .. key .. '\\0', ",
        id="the last that is parked comes next",
    ),
    pytest.param(
        "finish",
        "(has_more and SOME_PARKED or NONE_PARKED) .. id",
        "NONE_PARKED .. id",
        id="a message that gets a lane forgets those behind",
    ),
    pytest.param("recycle", "hand_on(keys, { held.lease.key }, { held.id }, clock)", "", id="recycle keeps the lane"),
    pytest.param(
        "reject",
        "return key and not is_waited_for and hand_on(keys, { key }, { id }, now) or false",
        "return false",
        id="reject keeps the lane",
    ),
    pytest.param(
        "reject",
        "local is_waited_for = keys.blocks and not flaw_of(record)",
        "local is_waited_for = false",
        id="a dead letter does not block",
    ),
    pytest.param("reject", "if may_block and", "if false and", id="a trimmed dead letter blocks its lane forever"),
    pytest.param(
        "cancel",
        "if leave_lane(keys, id, record, tick(meta[1]), lease) then",
        "if false then",
        id="cancel keeps the lane",
    ),
    pytest.param(
        "purge",
        "has_next = leave_lane(keys, id, record, now, lease) or has_next",
        "",
        id="purge keeps the lanes",
    ),
    pytest.param(
        "reschedule",
        "hand_on(keys, { key }, { id }, now)",
        "",
        id="a rescheduled message keeps a lane that it has not begun",
    ),
    pytest.param(
        "redrive",
        "if is_before(record, owner, owner_record) then",
        "if false then",
        id="a redriven message is not first",
    ),
    pytest.param(
        "list",
        "after_priority = state == 'parked' and after_priority or 0",
        "after_priority = 0",
        id="a page of parked messages begins at the wrong place",
    ),
    # Limits.
    pytest.param(
        "claim", "redis.call('HSET', META, 'tat', next_on_time)", "", id="a delivery does not count for the rate"
    ),
    pytest.param("claim", "(now - pace_from) / interval) + 1", "(now - pace_from) / interval) + 2", id="one too early"),
    pytest.param(
        "claim",
        "was_kept_by_rate and now - TOLERANCE_US or now",
        "now - TOLERANCE_US",
        id="messages that were not held back catch up",
    ),
    pytest.param(
        "claim",
        "was_kept_by_rate and now - TOLERANCE_US or now",
        "was_kept_by_rate and 0 or now",
        id="there is no end to what catches up",
    ),
    pytest.param(
        "claim", "(is_at_limit or was_kept_by_rate)", "is_at_limit", id="who wants no more ends the catching up"
    ),
    pytest.param("claim", "if in_flight >= 0 then", "if false then", id="there is no bound to messages in flight"),
    pytest.param("claim", "redis.call('HDEL', META, 'limited')", "", id="a limit is never over"),
    pytest.param(
        "ack", "if limited ~= UNTIL_A_LEASE_ENDS then", "if true then", id="no consumer is woken for room in flight"
    ),
    pytest.param("send", "if not meta[2] and not is_limited then", "if not meta[2] then", id="a limited queue wakes"),
    # The history of a message.
    pytest.param(
        "retry", "add_event(history, clock, 'retry', held.lease, error)", "", id="a retry is not in the timeline"
    ),
    pytest.param("recycle", "counted[CYCLES] = counted[CYCLES] + 1", "", id="a cycle is not counted"),
]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("script", "original", "mistake"), MUTANTS)
def test_the_machine_finds(script: str, original: str, mistake: str) -> None:
    need("valkey")
    text = _lua.script(script).text
    values = constants.values_of(_lua.source(script))
    original, mistake = constants.replaced(original, values), constants.replaced(mistake, values)
    assert text.count(original) == 1, "the mistake is not made where it should be"
    with started_world(texts={script: text.replace(original, mistake)}) as world, pytest.raises(Broken):
        _search(machine_in(world))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_machine_finds_a_client_with_a_stream_for_each_connection() -> None:
    need("valkey")
    with started_world() as world, pytest.raises(Broken, match="I6 a call was carried out twice"):
        _search(machine_in(world, StreamPerConnection))


def _search(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(
        machine,
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
