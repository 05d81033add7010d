"""A claim in memory that stops where a script has stopped, so that both sides hold the same afterwards.

The memory engine takes the due messages whose turn it is, exactly. A script reads ahead by a bounded number: it may
take fewer, and skip a suspect that comes behind others, if it reports more. The messages that it takes and parks
must be the beginning of the exact order: else the answers or the states differ.
"""

from typing import Any, NamedTuple
from unittest.mock import patch

from duly._core import replies
from duly._core.call import Call
from duly.memory.claims import Round, carried_out
from duly.memory.engine import GROUP_FORMS, TRANSITIONS, Engine
from duly.memory.group_claims import GroupRound
from duly.memory.message import StoredMessage
from duly.memory.ordered import ScoredIds
from tests.lua.harness import State

_LIMIT_AT, _THEN_AT = 1, 5


class Done(NamedTuple):
    """The answer of a script, and the state of the queue before and after."""

    answer: Any
    before: State
    after: State

    def left(self) -> set[bytes]:
        """Name the messages that a claim has left waiting."""
        return {id_.encode() for ids in self.after.waiting.values() for id_ in ids if not self._was_parked(id_)}

    def _was_parked(self, id_: str) -> bool:
        """Return whether a message that waits as before was parked in between: a lane was passed on to it."""
        keys = [key for key, lane in self.after.lanes.items() if lane[1:] == id_]
        owners = [self.before.lanes[key][1:] for key in keys if key in self.before.lanes]
        return owners not in ([], [id_]) and any(id_ in ids for ids in self.before.waiting.values())


def call(engine: Engine, call: Call[Any], stream: bytes, sequence: int, done: Done) -> Any:
    """Carry a call out in memory that a script has carried out."""
    answer = done.answer
    if call.script.name != "claim" or not isinstance(answer, list):
        return engine.call(call, stream, sequence)
    claimed = replies.claimed(answer)
    left = done.left()
    is_below_limit = len(claimed.ids) < int(str(call.args[_LIMIT_AT])) or call.args[_THEN_AT] == "behind"
    may_be_more = claimed.next_in == 0 and is_below_limit

    class Following(Round):
        """One claim that leaves what the script has left."""

        def take_due(self) -> None:
            super().take_due()
            self._is_full = self._is_full or may_be_more
            # It may have read behind the last message that it took. The machine checks that a suspect is there.
            self._has_passed_over = self._has_passed_over or claimed.passed_over

        def _take_by_share(self, waiting: ScoredIds) -> None:
            due = [self.queue.messages[id_] for _, id_ in waiting.up_to(self.now)]
            stopped_at = [message for message in due if not self._is_skipped(message)]
            if may_be_more and stopped_at and all(message.id in left for message in stopped_at):
                self._is_full = True  # the script has stopped before this priority
            else:
                super()._take_by_share(waiting)

        def _is_skipped(self, message: StoredMessage) -> bool:
            return claimed.passed_over and self._is_isolating and self._is_suspect(message)

        def _passes_over(self, message: StoredMessage) -> bool:
            if message.id in left and not self._is_skipped(message):
                self._is_full = True  # so the answer must report more
                return False
            return super()._passes_over(message)

        def _may_go_alone(self, message: StoredMessage) -> bool:
            return super()._may_go_alone(message) and message.id not in left

    class FollowingGroup(Following, GroupRound):
        """The same for a group."""

    forms = {"claim": lambda queue, args: carried_out(Following.of(queue, args))}
    group_forms = {"claim": lambda queue, args: carried_out(FollowingGroup.of(queue, args))}
    with patch.dict(TRANSITIONS, forms), patch.dict(GROUP_FORMS, group_forms):
        return engine.call(call, stream, sequence)
