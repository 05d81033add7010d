"""Executes calls in memory, one at a time, and wakes the waiters whose messages, entries or results have arrived.

The modules sends, claims, settles, inspection, management, cleanup, audits, locks, once, schedules,
registry, topics and groups implement the calls.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Final

from duly._core.call import Call
from duly._core.effects import Effect
from duly._core.keys import (
    GroupKeys,
    LockKeys,
    OnceKeys,
    QueueKeys,
    TopicKeys,
    head_of,
    queue_of_key,
    queue_pattern,
    topic_of_key,
)
from duly.memory import (
    audits,
    claims,
    cleanup,
    commits,
    forks,
    group_claims,
    groups,
    inspection,
    locks,
    management,
    moves,
    occupancy,
    once,
    points,
    registry,
    schedules,
    sends,
    settles,
    topics,
    wire,
)
from duly.memory.calls import CallLog, ErrorReply, Kept
from duly.memory.clock import Clock
from duly.memory.state import QueueState
from duly.memory.stream import Id, read_id
from duly.memory.topic_state import GroupState, TopicState
from duly.memory.trial import Trial
from duly.memory.user_keys import UserKeys
from duly.memory.waiters import Callback, Waiters

__all__ = ["Engine", "ErrorReply"]

Transition = Callable[[Any, list[bytes]], Any]

TRANSITIONS: Final[dict[str, Transition]] = {
    "send": sends.send,
    "send_checked": sends.send_checked,
    "claim": claims.claim,
    **settles.TRANSITIONS,
    "cancel": management.cancel,
    "reschedule": management.reschedule,
    "redrive": management.redrive,
    "purge": management.purge,
    "pause": management.pause,
    "resume": management.resume,
    "wake": management.wake,
    "tidy": cleanup.tidy,
    "measure": points.measure,
    "delete": management.delete,
    "get": inspection.get,
    "await_end": inspection.await_end,
    "list": inspection.list_,
    "stats": inspection.stats,
    "forecast": inspection.forecast,
    "pending": inspection.pending,
    "audit": audits.audit,
    "correct": audits.correct,
    "lock": locks.lock,
    "unlock": locks.unlock,
    "prolong": locks.prolong,
    "wake_lock": management.wake,
    "once": once.once,
    **schedules.TRANSITIONS,
    "publish": topics.publish,
    "read_topic": topics.read_topic,
    "topic_stats": topics.topic_stats,
    "tidy_topic": topics.tidy_topic,
    "delete_topic": topics.delete_topic,
    "seek_group": groups.seek_group,
    "foreign_pending": groups.foreign_pending,
    "leave_group": groups.leave_group,
}
"""The function of each script that works on a single state, by script name."""

GROUP_FORMS: Final[dict[str, Transition]] = {
    "claim": group_claims.claim,
    "stats": groups.stats,
    "delete": groups.delete,
}
"""The functions that replace those of a queue for groups."""


class _Queue:
    """A queue, the calls that it has answered, and its waiters."""

    def __init__(self, state: QueueState, topic: "_Queue | None" = None) -> None:
        self.state = state
        self.topic = topic
        """Of a group."""
        self.groups: list[_Queue] = []
        """Of a topic."""
        self.calls = CallLog()
        self.waiters = Waiters(state)
        self.end_waiters: defaultdict[bytes, list[Callback]] = defaultdict(list)
        """By the id of the message for whose end they wait."""


class Engine:
    """The queues of one server. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._queues: dict[bytes, _Queue] = {}
        self._registries: dict[bytes, registry.Registry] = {}
        self._user_keys = UserKeys()
        forks.renew(self)

    def call(self, call: Call[Any], stream: bytes, sequence: int) -> Any:
        """Execute a call atomically and answer as a server does. A repeat of a stream's last call is recognised."""
        if call.script.name in registry.TRANSITIONS:
            return self._call_registry(call)
        if call.script.name in commits.TRANSITIONS:
            return self._call_reaching(call, stream, sequence)
        if call.script.name in moves.TRANSITIONS:
            return self._call_moving(call, stream, sequence)
        if call.script.name in occupancy.TRANSITIONS:
            return self._call_over_queues(call, stream, sequence)
        forms = GROUP_FORMS if isinstance(call.keys, GroupKeys) else {}
        transition = forms.get(call.script.name) or TRANSITIONS.get(call.script.name)
        if transition is None:
            raise ErrorReply(f"ERR the script {call.script.name!r} is not known in memory://")
        args = wire.arguments(call.args)
        with self._lock:
            queue = self._queue(call.keys)
            reply = self._carried_out(queue, transition, args, (stream, sequence) if call.writes else None)
            waiters = self._waiters_to_call([queue])
        for waiter in waiters:
            waiter()
        return reply

    def shown_us(self, most: int) -> int:
        """Return the latest time that a queue has shown, of the times up to `most`; 0: there is none."""
        with self._lock:
            shown = [queue.state.clock or 0 for queue in self._queues.values()]
        return max((us for us in shown if us <= most), default=0)

    def queues(self, namespace: str) -> list[str]:
        """Name the queues that have been used."""
        with self._lock:
            keys = [prefix + b"meta" for prefix, queue in self._queues.items() if queue.state.is_known]
        return _names(keys, queue_pattern(namespace), lambda key: queue_of_key(namespace, key))

    def topics(self, namespace: str) -> list[str]:
        """Name the topics that have been used."""
        with self._lock:
            states = [(prefix, queue.state) for prefix, queue in self._queues.items()]
        topics = [(prefix, state) for prefix, state in states if isinstance(state, TopicState)]
        keys = [prefix + b"meta" for prefix, topic in topics if topic.is_known or topic.stream.is_there]
        names = [topic_of_key(namespace, key) for key in keys if key.startswith(head_of(namespace))]
        return sorted(name for name in names if name is not None)

    def subscribe(self, keys: QueueKeys, callback: Callback, polls_at: float | None = None) -> float:
        """Call `callback` once, perhaps now, from any thread, when a claim may find something before `polls_at`.

        At `polls_at`, by the queue's clock, the caller claims anyway. By default, that is after the number of seconds
        that this returns. Only one waiter is called. It must claim, or call `pass_on`.
        """
        return self._subscribe(keys, callback, polls_at, None)

    def subscribe_behind(self, keys: TopicKeys, entry: bytes, callback: Callback) -> float:
        """Call `callback` once, perhaps now, when a topic has something behind an entry. All waiters are called."""
        return self._subscribe(keys, callback, None, read_id(entry))

    def _subscribe(self, keys: QueueKeys, callback: Callback, polls_at: float | None, entry: Id | None) -> float:
        with self._lock:
            queue = self._queue(keys)
            queue.state.set_time(self.clock.now_us())
            is_waiting = queue.waiters.add(callback, polls_at, entry)
            seconds = max(queue.waiters.moment(entry) - queue.state.tick(), 0) / 1_000_000
        if not is_waiting:
            callback()
        return seconds

    def unsubscribe(self, keys: QueueKeys, callback: Callback) -> bool:
        """Stop waiting; False: too late, `callback` has been chosen to claim."""
        with self._lock:
            return self._queue(keys).waiters.remove(callback)

    def watch_end(self, keys: QueueKeys, id_: str, callback: Callback) -> None:
        """Call `callback`, from any thread, when the end of a message is announced."""
        with self._lock:
            self._queue(keys).end_waiters[id_.encode()].append(callback)

    def unwatch_end(self, keys: QueueKeys, id_: str, callback: Callback) -> None:
        """Undo `watch_end`."""
        with self._lock:
            queue, watched = self._queue(keys), id_.encode()
            if callback in queue.end_waiters[watched]:
                queue.end_waiters[watched].remove(callback)
            if not queue.end_waiters[watched]:
                del queue.end_waiters[watched]

    def has_something(self, keys: QueueKeys) -> bool:
        """Return whether a claim may find something now."""
        with self._lock:
            state = self._queue(keys).state
            state.set_time(self.clock.now_us())
            return state.has_something

    def pass_on(self, keys: QueueKeys) -> None:
        """Wake another consumer if there is something: one waiter is removed, and perhaps called."""
        with self._lock:
            waiters = self._woken(self._queue(keys))
        for waiter in waiters:
            waiter()

    def lose_body(self, keys: QueueKeys, id_: str) -> None:
        """Remove a stored record without any bookkeeping, for tests of a lost record."""
        with self._lock:
            self._queue(keys).state.lose_body(id_.encode())

    def damage(self, keys: QueueKeys, id_: str, record: bytes) -> None:
        """Overwrite a stored record without any bookkeeping. A record without a flaw must keep all but its envelope."""
        with self._lock:
            self._queue(keys).state.damage(id_.encode(), record)

    def forget_all_but_queues(self, namespace: str) -> None:
        """Free the locks of a namespace, forget its effects and workers, and remove all keys of the user."""
        head = head_of(namespace)
        with self._lock:
            found = [queue for prefix, queue in self._queues.items() if prefix.startswith(head)]
            for state in [queue.state for queue in found]:
                if isinstance(state, locks.Lock):
                    state.free()
                elif isinstance(state, once.Once):
                    state.allow()
            self._registries = {prefix: row for prefix, row in self._registries.items() if not prefix.startswith(head)}
            self._user_keys.clear()
            waiters = self._waiters_to_call(found)
        for waiter in waiters:
            waiter()

    def renew_after_fork(self) -> None:
        """Replace the lock and drop the waiters in a child process: their threads exist only in the parent."""
        self._lock = threading.Lock()
        for queue in self._queues.values():
            queue.waiters.clear()
            queue.end_waiters.clear()

    def read_key(self, key: bytes) -> Any:
        """Copy the value of a user's key; None: it has none."""
        with self._lock:
            value = self._user_keys.find(key, self.clock.now_us() // 1000)
            return None if value is None else copy(value.content)

    def change_key(self, effect: Effect) -> str | None:
        """Execute a command on a user's key, or return why this is impossible."""
        with self._lock:
            now_ms = self.clock.now_us() // 1000
            problem = Trial(self._user_keys, now_ms).problem(effect)
            if problem is None:
                self._user_keys.run(effect, now_ms)
            return problem

    def _call_reaching(self, call: Call[Any], stream: bytes, sequence: int) -> Any:
        """Execute a call that changes several queues, and keys of the user."""
        args = wire.arguments(call.args)
        keys = commits.split_keys(args, call.extra_keys)
        with self._lock:
            queue = self._queue(call.keys)
            stores, topics = (list(map(self._reached, prefixes)) for prefixes in (keys.targets, keys.topics))
            for each in (*stores, *topics):
                each.state.set_time(self.clock.now_us())
            found = [topic.state for topic in topics if isinstance(topic.state, TopicState)]
            reach = commits.Reach([store.state for store in stores], found, keys.of_user, self._user_keys)
            commit = commits.TRANSITIONS[call.script.name]
            reply = self._carried_out(queue, lambda state, args: commit(state, args, reach), args, (stream, sequence))
            waiters = self._waiters_to_call(dict.fromkeys((queue, *stores, *topics)))
        for waiter in waiters:
            waiter()
        return reply

    def _call_over_queues(self, call: Call[Any], stream: bytes, sequence: int) -> Any:
        """Execute a call that reads several queues and wakes no consumer."""
        transition, args = occupancy.TRANSITIONS[call.script.name], wire.arguments(call.args)
        with self._lock:
            states = [
                self._queues.setdefault(prefix, _Queue(QueueState())).state
                for prefix in occupancy.prefixes(call.extra_keys)
            ]
            numbered = (stream, sequence) if call.writes else None
            return self._carried_out(self._queue(call.keys), lambda _, args: transition(states, args), args, numbered)

    def _call_registry(self, call: Call[Any]) -> Any:
        transition = registry.TRANSITIONS[call.script.name]
        with self._lock:
            known = self._registries.setdefault(call.keys.prefix, registry.Registry())
            return transition(known, wire.arguments(call.args), self.clock.now_us())

    def _call_moving(self, call: Call[Any], stream: bytes, sequence: int) -> Any:
        """Execute a call that reaches into another queue."""
        transition, args = moves.TRANSITIONS[call.script.name], wire.arguments(call.args)
        with self._lock:
            here = self._queue(call.keys)
            there = self._queues.setdefault(moves.other_prefix(call.extra_keys), _Queue(QueueState()))
            there.state.set_time(self.clock.now_us())
            reply = self._carried_out(
                here, lambda state, args: transition(state, args, there.state), args, (stream, sequence)
            )
            waiters = self._waiters_to_call([here, there])
        for waiter in waiters:
            waiter()
        return reply

    def _queue(self, keys: QueueKeys) -> _Queue:
        queue = self._queues.get(keys.prefix)
        if queue is None:
            queue = self._group(keys) if isinstance(keys, GroupKeys) else _Queue(_state(keys))
            self._queues[keys.prefix] = queue
        if isinstance(queue.state, GroupState):
            queue.state.frees = keys.kind == "freeing"
        return queue

    def _reached(self, prefix: bytes) -> _Queue:
        """Return the queue or topic that a call of another one reaches, by the prefix of its keys."""
        if prefix not in self._queues:
            self._queues[prefix] = _Queue(TopicState() if b":{@" in prefix else QueueState())
        return self._queues[prefix]

    def _group(self, keys: GroupKeys) -> _Queue:
        topic = self._queue(keys.topic)
        assert isinstance(topic.state, TopicState)
        group = _Queue(GroupState(topic.state, keys.group.encode()), topic)
        topic.groups.append(group)
        return group

    def _carried_out(
        self, queue: _Queue, transition: Transition, args: list[bytes], numbered: tuple[bytes, int] | None
    ) -> Any:
        state = queue.state
        state.set_time(self.clock.now_us())
        server_ms = state.server_us // 1000
        renews = transition is sends.send
        if numbered is not None and queue.calls.is_answered(*numbered, server_ms, renews=renews):
            return queue.calls.answer_again(numbered[0], state, server_ms)
        reply = transition(state, args)
        if not isinstance(reply, Kept):
            return reply
        if numbered is not None:
            queue.calls.keep(*numbered, reply, server_ms)
        return reply.reply

    def _waiters_to_call(self, queues: Iterable[_Queue]) -> list[Callback]:
        """List the waiters that have to claim, and those whose message has ended."""
        found: list[Callback] = []
        for queue in queues:
            found += self._woken(queue)
            found += [each for id_ in queue.state.take_ended() for each in queue.end_waiters.get(id_, ())]
        return found

    def _woken(self, queue: _Queue) -> list[Callback]:
        """Remove and return the waiters that have to claim. The caller calls them after it has released the lock.

        A change to a topic or to one of its groups may bring an entry to all of them.
        """
        topic = queue.topic or queue
        found: list[Callback] = []
        for each in (topic, *topic.groups):
            if each.waiters:
                each.state.set_time(self.clock.now_us())
                found += each.waiters.take_late()
        return found


def _names(keys: Iterable[bytes], pattern: str, name_of: Callable[[bytes], str | None]) -> list[str]:
    """Return the names in those keys that match a pattern."""
    head, tail = pattern.encode().split(b"*")
    names = [name_of(key) for key in keys if key.startswith(head) and key.endswith(tail)]
    return sorted(name for name in names if name is not None)


def _state(keys: QueueKeys) -> QueueState:
    if keys.name.startswith("@"):  # even if the keys were made directly
        return TopicState()
    if isinstance(keys, LockKeys):
        return locks.Lock()
    return once.Once() if isinstance(keys, OnceKeys) else QueueState()
