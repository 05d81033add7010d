"""Calls of two versions other than the verbs: `a` stores or changes something, and `b` continues with it."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.versions.pair import Pair, Peer, Refused
from tests.waiting import wait_until

Scenario = Callable[[Pair, Peer, Peer, str], None]

LEASE: Final = 300
LATER: Final = 600


def ids_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def bodies_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"] for row in rows]


# Storing


def dedup_values_and_ids(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    first = a.run("box.send('first', dedup='x', dedup_for=3600)")
    assert b.run("box.send('second', dedup='x')") == first
    assert b.run("box.send('newer', dedup='x', replace=True)") == first
    assert a.run("box.send('one', id='mine')") == b.run("box.send('two', id='mine')") == "mine"
    pair.agree()
    assert bodies_of(a.run("claim()")) == ["newer", "one"]
    assert b.run("box.send('after the claim', dedup='x')") == first
    assert b.run("box.cancel(id, running=True)", id=first)
    assert a.run("box.send('free again', dedup='x')") != first
    assert pair.agree()["stats"]["duplicates"] == 3


def bounds(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("[app.queue(name, max_length=2).send(n) for n in range(2)]", name=name)
    with pytest.raises(Refused, match="QueueFull"):
        b.run("app.queue(name, max_length=2).send('too many')", name=name)
    with pytest.raises(Refused, match="QueueFull"):
        b.run("app.queue(name, max_bytes=10).send('too many')", name=name)
    b.run("app.queue(name, max_length=2, on_full='drop_oldest').send('last')", name=name)
    assert pair.agree()["stats"]["dropped"] == 1
    assert bodies_of(a.run("claim()")) == ["1", "last"]


def expiry(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send_many([duly.Send('mortal', ttl=60), duly.Send('later mortal', ttl=60, delay=600), 'lasting'])")
    pair.place.advance(100)
    assert bodies_of(b.run("claim()")) == ["lasting"]
    assert pair.agree()["stats"]["expired"] == 1
    pair.place.advance(1000)
    assert a.run("claim()") != []  # the lease of the other ran out
    assert pair.agree()["stats"]["expired"] == 2


def trimmed_letters(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("keeping queue", name)
    for peer, left in ((a, 3), (b, 2), (a, 1)):
        peer.run("box.send_many(range(4))")
        peer.run("claim()")
        kept = "app.queue(name, dead=duly.Keep(count=left), done=duly.Keep(count=left))"
        peer.run(f"[d.reject('no use') for d in {kept}.receive(limit=1, wait=0)]", name=name, left=left)
        peer.run("[d.ack() for d in [*held.values()][:2]], [d.reject('no use') for d in [*held.values()][2:]]")
        peer.run("box.send_many(range(2))")
        end = "one.ack(), other_one.reject('no use')"
        peer.run(f"[({end}) for one, other_one in [{kept}.receive(limit=2, wait=0)]]", name=name, left=left)
        seen = pair.agree()
        assert (len(seen["dead"]), len(seen["done"])) == (left, left)


def budgets(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("keeping queue", name)
    bounded = "app.queue(name, max_bytes=500, dead=duly.Keep(bytes=400), done=duly.Keep(bytes=400))"
    for peer in (a, b, a, b):
        peer.run(f"{bounded}.send_many(['.' * 120] * 3)", name=name)
        with pytest.raises(Refused, match="QueueFull"):
            pair.other_than(peer).run(f"{bounded}.send('.' * 300)", name=name)
        end = "first.ack(), second.reject('no use'), third.reject('no use')"
        peer.run(f"[({end}) for first, second, third in [{bounded}.receive(limit=3, wait=0)]]", name=name)
        stats = pair.agree()["stats"]
        assert stats["bytes"] == 0
        assert 0 < stats["dead_bytes"] <= 400
        assert 0 < stats["done_bytes"] <= 400
    stats = pair.agree()["stats"]
    assert stats["trimmed"] + stats["dead"] == 8
    assert stats["done_trimmed"] + stats["done"] == 4


def budgets_of_rows(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    """A budget includes reasons, errors and results, but none that the other version has removed."""
    pair.open("keeping queue", name)
    bounded = f"app.queue({name!r}, dead=duly.Keep(bytes=6000), done=duly.Keep(bytes=6000))"
    end = "one.ack(result='.' * 1500), other_one.reject('.' * 1500)"

    def end_two(peer: Peer) -> None:
        peer.run(f"{bounded}.send_many(range(2))")
        peer.run(f"[({end}) for one, other_one in [{bounded}.receive(limit=2, wait=0)]]")

    for _ in range(2):
        end_two(a)
    for _ in range(6):
        b.run("[box.cancel(id) for id in [message.id for message in box.find_dead()][:1]]")
        b.run("box.purge('done')")
        end_two(a)
    stats = pair.agree()["stats"]
    assert (stats["trimmed"], stats["dead"], stats["done"]) == (0, 2, 1)
    for peer in (a, b, a, b, pair.new):
        end_two(peer)
    stats = pair.new.run("look()")["stats"]
    for place in ("dead", "done"):
        assert 4000 < stats[f"{place}_bytes"] + stats[f"{place}_why_bytes"] <= 6000
        assert stats[place] >= 3


def forecasts(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send_many([duly.Send(n, delay=600) for n in range(3)])")
    b.run("box.send('urgent', delay=600, priority=9)")
    for peer in (a, b):
        assert sum(peer.run("[bucket.count for bucket in box.forecast(3600)]")) == 4
    pair.new.run("box.send_many(range(20), spread=300)")
    assert len(pair.agree()["delayed"]) > 4


# Delivering


def lanes(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send_many([duly.Send(f'{key}{n}', key=key) for n in range(3) for key in 'kl'])")
    assert bodies_of(a.run("claim()")) == ["k0", "l0"]
    assert b.run("claim()") == []
    a.run("[d.retry(60) if d.key == 'k' else d.ack() for d in held.values()]")
    assert bodies_of(b.run("claim()")) == ["l1"]
    pair.agree()
    pair.place.advance(100)
    assert bodies_of(b.run("claim()")) == ["k0"]
    b.run("[d.ack() for d in held.values()]")
    assert sorted(bodies_of(a.run("claim()"))) == ["k1", "l2"]
    pair.agree()


def policies_of_messages(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    patient = "duly.Send('patient', retry=duly.Retry(attempts=2, first=120, factor=3, jitter=0))"
    again = "duly.Send('again', delay=0, repeat=duly.Repeat(first=60, factor=2, times=2))"
    a.run(f"box.send_many([{patient}, {again}])")
    settle = "[d.retry() if d.body == 'patient' else d.ack() for d in held.values() if not d.is_settled]"
    b.run("claim()")
    b.run(settle)
    pair.place.advance(100)
    assert a.run("claim()") == []
    pair.place.advance(30)
    assert sorted(bodies_of(a.run("claim()"))) == ["again", "patient"]
    a.run(settle)
    seen = pair.agree()
    assert (bodies_of(seen["dead"]), seen["stats"]["acked"], seen["delayed"]) == (["patient"], 1, [])


def crashes_and_suspects(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    (id_,) = a.run("box.send_many(['unlucky'])")
    for crashes, peer in enumerate((a, b, a)):
        (delivery,) = peer.run("claim()")
        assert (delivery["crashes"], delivery["attempt"]) == (crashes, crashes + 1)
        pair.place.advance(LEASE + 1)
        pair.agree()
    assert b.run("claim()") == []
    (dead,) = pair.agree()["dead"]
    assert (dead["id"], dead["reason"], dead["crashes"]) == (id_, "poison", 3)
    with pytest.raises(Refused, match="LeaseLost"):
        a.run("held[id].ack()", id=id_)


def limits(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send_many(range(9))")
    slow = "[d.id for d in app.queue(name, rate='1/m', lease=3600).receive(limit=9, wait=0)]"
    assert len(a.run(slow, name=name)) == 1
    assert b.run(slow, name=name) == []
    pair.place.advance(61)
    assert len(b.run(slow, name=name)) == 1
    narrow = "[d.id for d in app.queue(name, max_in_flight=3, lease=3600).receive(limit=9, wait=0)]"
    assert len(a.run(narrow, name=name)) == 1
    assert b.run(narrow, name=name) == []
    pair.agree()


def shares(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    """A version that does not know `retry_share` delivers by due time, and what claims remember does not mislead it."""
    pair.open("queue", name)
    a.run("box.send_many(range(8))")
    assert len(b.run("claim(8)")) == 8
    b.run("settle('retry')")
    pair.place.advance(601)
    a.run("box.send_many(['new'] * 8)")
    shared = (
        "[held.update({d.id: d}) or text_of(d.body) for d in app.queue(name, lease=3600, "
        "**({'retry_share': 0.5} if hasattr(duly.QueueOptions, 'retry_share') else {})).receive(limit=2, wait=0)]"
    )
    got = [body for peer in (a, b, a, b, a, b, a, b) for body in peer.run(shared, name=name)]
    assert len(got) == 16
    assert sorted(got) == sorted([*map(str, range(8)), *["new"] * 8])
    pair.agree()


def limits_and_tokens(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    """A token wakes a consumer. While a limit keeps messages back, it could do nothing, so a send leaves none."""
    pair.open("queue", name)
    a.run("box.send_many(range(2))")
    narrow = "[held.update({d.id: d}) for d in app.queue(name, max_in_flight=1, lease=3600).receive(limit=1, wait=0)]"
    assert len(b.run(narrow, name=name)) == 1
    assert a.run(narrow, name=name) == []
    pair.place.corrupt(name, "DEL", "wake")
    b.run("box.send('another')")
    assert "wake" not in pair.own_keys(name)
    b.run("settle('ack')")
    assert "wake" in pair.own_keys(name)
    pair.agree()


def a_clock_that_steps_back(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send('first')")
    (one,) = a.run("claim()")
    a.run("settle('release')")
    pair.place.advance(-60)
    try:
        b.run("box.send('second')")
        again, second = b.run("claim()")
        assert (again["body"], second["body"]) == ("first", "second")
        assert one["fence"] < again["fence"]
        assert one["sent_at"] < second["sent_at"]
        pair.agree()
    finally:
        pair.place.advance(60)


def waking(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    b.begin("[d.ack() or d.body for d in box.receive(limit=1, wait=50)]")
    wait_until(lambda: pair.place.blocked() == 1)
    a.run("box.send('wake up')")
    assert b.answer() == ["wake up"]
    a.run("box.send('a token is left')")
    pair.agree()
    b.run("box.delete()")
    assert pair.own_keys(name) == []


# Steering


def steering(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    ids = a.run("store_all_forms()")
    assert b.run("box.promote(id)", id=ids["later"])
    assert b.run("box.reschedule(id, delay=600)", id=ids["plain"])
    assert b.run("box.cancel(id)", id=ids["bytes"])
    pair.agree()
    claimed = set(bodies_of(a.run("claim()")))
    assert claimed == set(ids) - {"plain", "bytes", "second of its key"}
    assert not b.run("box.cancel(id)", id=ids["urgent"])
    assert b.run("box.cancel(id, running=True)", id=ids["urgent"])
    with pytest.raises(Refused, match="LeaseLost"):
        a.run("held[id].ack()", id=ids["urgent"])
    assert b.run("box.cancel(id, running=True)", id=ids["first of its key"])
    assert bodies_of(b.run("claim()")) == ["second of its key"]
    assert all(b.run("[bool(box.explain(id)) for id in ids]", ids=[*ids.values()]))
    pair.agree()


def steering_of_a_group(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("group", name)
    a.run("store_all_forms()")
    ids = {delivery["body"]: delivery["id"] for delivery in a.run("claim()")}
    a.run("settle('retry')")
    assert b.run("box.promote(id)", id=ids["plain"])
    assert b.run("box.reschedule(id, delay=6000)", id=ids["bytes"])
    assert b.run("box.cancel(id)", id=ids["single"])
    pair.agree()
    assert bodies_of(a.run("claim()")) == ["plain"]
    assert b.run("box.cancel(id, running=True)", id=ids["plain"])
    with pytest.raises(Refused, match="LeaseLost"):
        a.run("held[id].ack()", id=ids["plain"])
    pair.place.advance(LATER + 1)
    assert set(bodies_of(b.run("claim()"))) == {"large", "first of its key", "with headers", "later"}
    assert all(b.run("[bool(box.explain(id)) for id in ids]", ids=[*ids.values()]))
    pair.agree()


def pauses(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    for kind in ("queue", "group"):
        pair.open(kind, f"{name}-{kind}")
        a.run("store_all_forms()")
        a.run("box.pause()")
        assert b.run("claim()") == []
        assert pair.agree()["stats"]["paused"]
        b.run("box.resume()")
        assert a.run("claim()") != []
        assert pair.agree()["stats"]["paused"] is None


def dead_letters(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    for kind in ("queue", "group"):
        pair.open(kind, f"{name}-{kind}")
        a.run("store_all_forms()")
        a.run("claim()")
        a.run("settle('reject')")
        found = set(b.run("[message.id for message in box.find_dead()]"))
        assert found == set(ids_of(pair.agree()["dead"]))
        assert b.run("box.redrive(limit=1)") == 1
        pair.agree()
        edit = "box.redrive(where={'headers': {'trace': 't'}}, edit=lambda message: 'edited')"
        assert b.run(edit) == 1
        assert b.run("box.redrive(where={'key': 'k'}, to=other)") == 1
        pair.agree()
        assert a.run("[d.body for d in other.receive(wait=0)]") == ["first of its key"]
        assert b.run("box.purge('dead', where=lambda message: message.body == 'single')") == 1
        assert b.run("box.cancel(id)", id=next(id_ for id_ in pair.agree()["dead"])["id"])
        a.run("box.redrive(rate='1000/s')")
        pair.place.advance(LATER)
        assert "edited" in bodies_of(a.run("claim()"))
        assert a.run("other.audit().explanation") == b.run("other.audit().explanation") == []
        assert pair.agree()["stats"]["dead"] == 0


def purges(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    for kind in ("keeping queue", "group"):
        pair.open(kind, f"{name}-{kind[:5]}")
        a.run("store_all_forms()")
        a.run("claim(3)")
        a.run("[VERBS[verb](d) for d, verb in zip(held.values(), ('ack', 'reject', 'retry'))]")
        a.run("claim(2)")
        states = ("leased", "parked", "dead", "done", "delayed", "ready")
        for state in states:
            b.run("box.purge(state)", state=state)
            assert pair.agree()[state] == [] or state == "parked"
        b.run("box.purge()")
        assert pair.agree()["stats"]["ready"] == 0


def repairs(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    ids = a.run("store_all_forms()")
    a.run("claim(5)")
    before = pair.agree()
    for peer in (a, b):
        assert peer.run("box.audit(repair=True).explanation") == []
        assert pair.agree() == before
    pair.place.corrupt(name, "HDEL", "msgs", ids["plain"])
    pair.place.corrupt(name, "HINCRBY", "meta", "sent", "5")
    found = [sorted(peer.run("[[fault.id, fault.what] for fault in box.audit().faults]")) for peer in (a, b)]
    assert found[0] == found[1] != []
    b.run("box.audit(repair=True)")
    assert pair.agree()["stats"]["corrected"] == -5


# Other data than messages


def schedules(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    mine = "[schedule for schedule in app.schedules() if schedule.name == name]"

    def ticks_after_a_slot(peer: Peer) -> list[str]:
        pair.place.advance(3600)
        return list(peer.run("[d.ack() or d.body for d in box.receive(wait=0)]"))

    put = "app.schedule(name, box, duly.Send('tick', priority=2, headers={'a': 'b'}), every=3600)"
    assert a.run(put, name=name)
    assert not b.run(put, name=name)
    assert a.run(mine, name=name) == b.run(mine, name=name) != []
    assert ticks_after_a_slot(b) == ticks_after_a_slot(a) == ["tick"]
    assert a.run(mine, name=name) == b.run(mine, name=name)
    assert b.run("app.pause_schedule(name)", name=name)
    assert ticks_after_a_slot(a) == ticks_after_a_slot(b) == []
    assert a.run("app.resume_schedule(name)", name=name)
    assert ticks_after_a_slot(b) == ["tick"]
    assert b.run("app.schedule(name, box, 'tock', cron='0 * * * *', tz='Asia/Shanghai')", name=name)
    assert ticks_after_a_slot(a) == ["tock"]
    pair.agree()
    assert a.run("app.unschedule(name)", name=name)
    assert b.run(mine, name=name) == []
    assert ticks_after_a_slot(b) == []
    pair.agree()


def locks(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    first = a.run("take_lock(name)", name=name)
    with pytest.raises(Refused, match="LockBusy"):
        b.run("take_lock(name)", name=name)
    a.run("locks[name].extend(600)", name=name)
    b.begin("take_lock(name, wait=50)", name=name)
    wait_until(lambda: pair.place.blocked() == 1)
    assert a.run("free_lock(name)", name=name) is False
    second = b.answer()
    pair.place.advance(LEASE + 1)
    third = a.run("take_lock(name)", name=name)
    assert first < second < third
    with pytest.raises(Refused, match="LockLost"):
        b.run("locks[name].extend(600)", name=name)
    assert b.run("free_lock(name)", name=name) is True
    assert a.run("free_lock(name)", name=name) is False
    pair.place.advance(-60)
    try:
        assert b.run("take_lock(name)", name=name) > third
    finally:
        pair.place.advance(60)


def effects_that_happen_once(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send_many(['pay', 'pay'])")
    one, another = ids_of(a.run("claim()"))
    ask = "duly.once(held[id], name, ttl=86400)"
    assert a.run(ask, id=one, name=name) is True
    assert a.run(ask, id=another, name=name) is False
    a.run("[d.release() for d in held.values()]")
    assert ids_of(b.run("claim()")) == [one, another]
    assert b.run(ask, id=another, name=name) is False
    assert b.run(ask, id=one, name=name) is True
    pair.place.advance(LEASE + 1)
    a.run("claim()")
    assert a.run(ask, id=one, name=name) is False


def results(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("keeping queue", name)
    kept, failed, to_come = a.run("box.send_many(['kept', 'failed', 'to come'])")
    b.begin("box.result(id, wait=50)", id=kept)
    wait_until(lambda: pair.place.blocked() == 1)
    a.run("claim()")
    a.run("held[id].ack(result={'total': 1})", id=kept)
    assert "ends" in pair.own_keys(name)  # b waits for the end there, and would poll after 5 s
    assert b.answer() == {"total": 1}
    b.begin("box.result(id, wait=50)", id=failed)
    a.run("held[id].reject('no use')", id=failed)
    with pytest.raises(Refused, match="HandlerFailed"):
        b.answer()
    with pytest.raises(Refused, match="NotFinished"):
        b.run("box.result(id, wait=0)", id=to_come)
    a.run("held[id].commit(result=[1, 2])", id=to_come)
    assert a.run("box.result(id, wait=0)", id=to_come) == b.run("box.result(id, wait=0)", id=to_come) == [1, 2]
    pair.agree()


def commits(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("queue", name)
    a.run("box.send('order')")
    b.run("claim()")
    b.run("settle('commit')")
    assert a.run("[d.ack() or d.body for d in other.receive(wait=0)]") == ["effect"]
    assert a.run("[entry.body for entry in topic.read()]") == ["effect"]
    pair.place.advance(LATER + 1)
    assert a.run("[d.ack() or d.body for d in other.receive(wait=0)]") == ["later effect"]
    assert a.run("[d.ack() or d.body for d in topic.group('archive').receive(wait=0)]") == ["effect", "later effect"]
    assert a.run("other.audit().explanation") == b.run("other.audit().explanation") == []
    assert a.run("topic.audit().explanation") == b.run("topic.audit().explanation") == []
    assert pair.place.value(f"{{{name}}}:counter") == b"2"
    pair.agree()


# Topics


def delayed_publishes(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("group", name)
    a.run("box.create()")
    ids = a.run("topic.publish_many([duly.Send(text, delay=600) for text in ('now', 'never', 'later', 'in time')])")
    assert b.run("topic.promote(id)", id=ids[0])
    assert b.run("topic.cancel(id)", id=ids[1])
    assert b.run("topic.reschedule(id, delay=6000)", id=ids[2])
    pair.agree()
    assert bodies_of(a.run("claim()")) == ["now"]
    a.run("settle('ack')")
    pair.place.advance(601)
    assert bodies_of(b.run("claim()")) == ["in time"]
    assert b.run("[topic.get(id).body, topic.explain(id) != '']", id=ids[2]) == ["later", True]
    pair.place.advance(6000)
    assert "later" in bodies_of(a.run("claim()"))
    pair.agree()


def positions_of_groups(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("group", name)
    ids = a.run("topic.publish_many(range(5))")
    assert bodies_of(b.run("claim(2)")) == ["0", "1"]
    a.run("box.seek(id)", id=ids[3])
    assert bodies_of(b.run("claim()")) == ["4"]
    b.run("box.seek('beginning')")
    pair.agree()
    assert bodies_of(a.run("claim()")) == ["2", "3"]
    late = "topic.group('late', start='new', headers={'for': 'late'})"
    a.run(f"{late}.create()")
    b.run("topic.publish_many([duly.Send('wanted', headers={'for': 'late'}), 'filtered'])")
    assert b.run(f"[d.ack() or d.body for d in {late}.receive(wait=0)]") == ["wanted"]
    assert a.run(f"[{late}.stats().filtered, {late}.audit().explanation]") == [1, []]
    pair.agree()
    b.run("topic.group('late').delete()")
    assert [group["name"] for group in pair.agree()["groups"]] == ["archive"]


def entries_that_are_freed(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("freeing group", name)
    second = "topic.group('second')"
    a.run(f"[box.create(), {second}.create()]")
    a.run("topic.publish_many(range(4))")
    assert len(a.run("claim(3)")) == 3
    a.run("settle('ack')")
    assert pair.agree()["topic"]["length"] == 4
    b.run(f"[d.ack() for d in {second}.receive(limit=2, wait=0)]")
    assert pair.agree()["topic"]["length"] == 2
    b.run("claim()")
    b.run("settle('ack')")
    a.run(f"[d.ack() for d in {second}.receive(limit=9, wait=0)]")
    assert pair.agree()["topic"]["length"] == 0


def entries_that_are_trimmed(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("group", name)
    b.run("box.create()")
    a.run("app.topic(name, keep=duly.Keep(count=2)).publish_many(range(5))", name=name)
    seen = pair.agree()
    assert (seen["topic"]["length"], seen["topic"]["published"], seen["stats"]["missed"]) == (2, 5, 3)
    b.run("app.topic(name, keep=duly.Keep(count=2)).publish('last')", name=name)
    assert pair.agree()["stats"]["missed"] == 4
    assert bodies_of(a.run("claim()")) == ["4", "last"]


def waking_of_a_group(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    pair.open("group", name)
    b.run("box.create()")
    for publish in ("topic.publish('wake up')", "topic.promote(topic.publish('wake up', delay=600))"):
        b.begin("[d.ack() or d.body for d in box.receive(limit=1, wait=50)]")
        wait_until(lambda: pair.place.blocked() == 1)
        a.run(publish)
        assert b.answer() == ["wake up"]
    pair.agree()


def progress(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    seen = "[[each.progress.fraction, each.progress.text] for each in box.list('leased')]"
    for kind in ("queue", "group"):
        pair.open(kind, f"{name}-{kind}")
        a.run("store_all_forms()")
        leased = len(a.run("claim()"))
        a.run("[d.progress(0.4, 'loading') for d in held.values()]")
        assert b.run(seen) == [[0.4, "loading"]] * leased
        pair.agree()
        a.run("settle('release')")
        assert len(b.run("claim()")) == leased
        assert b.run("[each.progress for each in box.list('leased')]") == [None] * leased
        pair.agree()


def history(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    """A version without history sends, claims and deletes; the points of the other stay true, and end."""
    sent = "sum(point.sent for point in box.stats(history='1h').history)"
    for kind in ("queue", "group"):
        pair.open(kind, f"{name}-{kind}")
        for peer in (pair.new, a, b):
            peer.run("store_all_forms()")
            peer.run("claim()")
            peer.run("settle('ack')")
            pair.place.advance(61)
        pair.new.run("claim()")
        assert pair.new.run(sent) == pair.agree()["stats"]["sent"]
        b.run("box.delete()")
        assert pair.new.run("box.stats(history='1h').history") == []
        left = pair.place.keys(f"@{name}-{kind}" if kind == "group" else f"{name}-{kind}")
        assert all(expires > 0 for key, expires in left.items() if key.endswith("history"))
        pair.new.run("store_all_forms()")
        pair.new.run("claim()")
        assert pair.new.run(sent) == pair.agree()["stats"]["sent"]


def history_of_an_outage(pair: Pair, a: Peer, b: Peer, name: str) -> None:
    """Sends of both versions add points with the backlog of a queue with keys, while no worker runs."""
    pair.open("queue", name)
    a.run("box.send('first', key='k')")
    for peer in (b, a, b, a):
        pair.place.advance(61)
        peer.run("box.send('more', key='k')")
    ages = pair.new.run("[point.oldest_age for point in box.stats(history='1h').history]")
    assert ages == sorted(ages)
    assert 180 < ages[-1] < 300
    depths = [peer.run("[point.depth for point in box.stats(history='1h').history]") for peer in (a, b)]
    # A minute without a send repeats the depth before it.
    grown = [list(dict.fromkeys(depth for depth in each if depth)) for each in depths]
    assert grown == [[1, 2, 3, 4]] * 2
    pair.agree()


SCENARIOS: Final[tuple[Scenario, ...]] = (
    dedup_values_and_ids,
    bounds,
    expiry,
    trimmed_letters,
    budgets,
    budgets_of_rows,
    forecasts,
    lanes,
    policies_of_messages,
    crashes_and_suspects,
    limits,
    limits_and_tokens,
    shares,
    a_clock_that_steps_back,
    waking,
    steering,
    steering_of_a_group,
    pauses,
    dead_letters,
    purges,
    repairs,
    schedules,
    locks,
    effects_that_happen_once,
    results,
    commits,
    delayed_publishes,
    positions_of_groups,
    entries_that_are_freed,
    entries_that_are_trimmed,
    waking_of_a_group,
    progress,
    history,
    history_of_an_outage,
)
