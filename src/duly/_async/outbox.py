"""Concurrent sends to one queue, or publishes to one topic, share script calls.

While a call is in progress, further ones are collected; its reply starts the next call with all of them. A single one
is written at once, in the turn of its caller. A call of many does not wait for the reply to the one before it, so that
the server works while this process encodes other messages and passes on answers.

The sync counterpart of this file is written by hand.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

from duly._async.begun_call import AsyncBegunCall
from duly._async.link import AsyncLink
from duly._async.primitives import in_background
from duly._async.wire import UNREACHABLE
from duly._core import ops, publishing, topic_ops
from duly._core.call import Call
from duly._core.keys import QueueKeys, TopicKeys
from duly._core.outgoing import Outgoing, batches
from duly._core.replies import SendOutcome
from duly._core.resp import ReplyError
from duly._core.topic_ops import Publication
from duly.errors import Unavailable
from duly.options import MAX_BATCH, Keep, QueueOptions

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")

_MANY: Final = 50
"""This many items do not wait for the end of the turn, or for the reply to the call before them.

Fewer would hardly repay the fixed cost of a call.
"""


class _JointCalls(Generic[T, R, A]):
    """Collects items, and sends them in at most two calls at a time, on one connection."""

    def __init__(
        self,
        link: AsyncLink,
        bounded: Callable[[list[T]], list[list[T]]],
        call_of: Callable[[list[T]], Call[R]],
        answers_of: Callable[[R], list[A]],
        cut_off: str,
    ) -> None:
        """`bounded` cuts items into calls, `answers_of` lists their answers, `cut_off` is the error of a cut."""
        self._link = link
        self._bounded = bounded
        self._call_of = call_of
        self._answers_of = answers_of
        self._cut_off = cut_off
        self.loop: asyncio.AbstractEventLoop | None = None
        self._collected: list[tuple[T, asyncio.Future[A]]] = []
        self._busy: asyncio.Future[None] | None = None
        """Ends with the last call, so that a close waits for all of them. None: no call is in progress."""
        self._is_joint = False
        """Whether the last call had several items. Then the next one waits for others of this turn."""
        self._calls = 0
        """Calls in progress: at most two."""
        self._last: AsyncBegunCall[R] | None = None
        """The last call, if it was begun at once and has no reply yet. Another one may be written behind it."""
        self._repeat: asyncio.Future[R] | None = None
        """The last call that was repeated in a task."""

    def in_running_loop(self) -> "_JointCalls[T, R, A]":
        """Return new calls for another event loop. A reply in the old loop does not affect them."""
        calls = _JointCalls(self._link, self._bounded, self._call_of, self._answers_of, self._cut_off)
        calls.loop = asyncio.get_running_loop()
        return calls

    def add(self, item: T) -> asyncio.Future[A]:
        """Carry out a call with this item and others that were collected. The future ends with its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        self._collected.append((item, answer))
        if self._busy is None:
            self._busy = in_background(loop.create_future())
            if self._is_joint:
                loop.call_soon(self._start)
            else:
                self._start()
        elif len(self._collected) == _MANY and self._is_joint:
            self._start()
        return answer

    def _start(self) -> None:
        """Begin the next call: in this turn of the event loop if a connection is free.

        A second call is written behind the first one, or waits for its end. So the order of the items is kept, with the
        exceptions that decision 28 names.
        """
        if not self._collected or (self._calls and not self._may_follow()):
            return
        collected = self._collected[:MAX_BATCH]
        batch = self._bounded([item for item, _ in collected])[0]
        begun: AsyncBegunCall[R] | Awaitable[R] | Exception
        try:
            call = self._call_of(batch)
            if self._last is not None and self._last.call.script is not call.script:
                return  # a server that knows only the second script would carry out the second call first
            at_once = self._link.begin(call) if self._last is None else self._last.follow(call)
            begun = at_once or self._link.run_now(call)
        except Exception as error:  # noqa: BLE001 - raised in each waiting call
            begun = error
        answers = [answer for _, answer in collected[: len(batch)]]
        del self._collected[: len(batch)]
        self._is_joint = len(batch) > 1
        self._calls += 1
        if isinstance(begun, Exception):
            # In another turn, since many calls in a row may fail.
            asyncio.get_running_loop().call_soon(self._end, answers, begun)
        elif isinstance(begun, AsyncBegunCall):
            self._last = begun
            begun.reading.add_done_callback(partial(self._read, begun, answers))
        else:
            self._run(begun, answers)

    def _may_follow(self) -> bool:
        is_worth_it = len(self._collected) >= _MANY
        return is_worth_it and self._calls == 1 and self._last is not None and self._last.may_be_followed

    def _read(self, begun: AsyncBegunCall[R], answers: list[asyncio.Future[A]], _: object) -> None:
        """Pass on the answers of a call that was begun at once. Repeat it if the server did not refuse it."""
        if self._last is begun:
            self._last = None
        try:
            found = begun.result()
        except (UNREACHABLE, ReplyError) as error:
            refusal = self._link.refusal_of(begun, error)
            if refusal is None:
                self._repeat = self._run(self._repeated(begun, self._repeat), answers)
            else:
                self._end(answers, refusal)
        except Exception as error:  # noqa: BLE001 - raised in each waiting call
            self._end(answers, error)
        else:
            self._end(answers, found)

    async def _repeated(self, begun: AsyncBegunCall[R], before: asyncio.Future[R] | None) -> R:
        """Send a call again, after the one before it: both fail if their connection is cut."""
        failing_since = time.monotonic()  # so that it does not retry for longer than the one before it
        if before is not None:
            await asyncio.wait({before})
        return await self._link.repeat(begun, failing_since)

    def _run(self, work: Awaitable[R], answers: list[asyncio.Future[A]]) -> asyncio.Future[R]:
        """Carry out a call in a task, with retries."""
        task = in_background(work)
        task.add_done_callback(lambda _: self._note_end(task, answers))
        return task

    def _note_end(self, task: asyncio.Future[R], answers: list[asyncio.Future[A]]) -> None:
        if task.cancelled():
            self._collected = [each for each in self._collected if not each[1].done()]
            self._end(answers, Unavailable(self._cut_off))
        elif isinstance(error := task.exception(), Exception):
            self._end(answers, error)
        else:
            self._end(answers, Unavailable(self._cut_off) if error else task.result())

    def _end(self, answers: list[asyncio.Future[A]], found: R | Exception) -> None:
        """Pass on the answers, or the error, and begin the next call if there are further items."""
        if isinstance(found, Exception):
            _fail(answers, found)
        else:
            for answer, value in zip(answers, self._answers_of(found), strict=True):
                if not answer.done():
                    answer.set_result(value)
        self._calls -= 1
        if self._collected:
            self._start()
        elif self._busy is not None and not self._calls:
            self._busy.set_result(None)
            self._busy = None


class AsyncOutbox:
    """Collects the sends of one queue."""

    def __init__(self, link: AsyncLink, keys: QueueKeys, options: QueueOptions) -> None:
        self._keys = keys
        self._options = options
        self._on_refusal: ops.OnRefusal = "drop" if options.on_full == "drop_oldest" else "each"
        cut_off = f"a send to queue {keys.name!r} was cut off: it may or may not be stored"
        self._calls: _JointCalls[Outgoing, SendOutcome, str | None] = _JointCalls(
            link, batches, self._call_of, _ids_in, cut_off
        )

    def send(self, message: Outgoing) -> asyncio.Future[str | None]:
        """Store a message. The future ends with its id; None: there was no room.

        The caller awaits the future itself: a coroutine in between would cost each send a step in and a step out.
        """
        if self._calls.loop is not asyncio.get_running_loop():
            self._calls = self._calls.in_running_loop()
        return self._calls.add(message)

    def _call_of(self, batch: list[Outgoing]) -> Call[SendOutcome]:
        return ops.send(self._keys, batch, self._options, self._on_refusal)


class AsyncPublishes:
    """Collects the publishes of one topic that are not delayed."""

    def __init__(self, link: AsyncLink, keys: TopicKeys, keep: Keep | None) -> None:
        self._keys = keys
        self._keep = keep
        cut_off = f"a publish to topic {keys.name!r} was cut off: it may or may not be stored"
        self._calls: _JointCalls[Publication, list[str], str] = _JointCalls(
            link, publishing.batches, self._call_of, list, cut_off
        )

    def publish(self, entry: Publication) -> asyncio.Future[str]:
        """Add an entry to the stream. The future ends with its id."""
        if self._calls.loop is not asyncio.get_running_loop():
            self._calls = self._calls.in_running_loop()
        return self._calls.add(entry)

    def _call_of(self, batch: list[Publication]) -> Call[list[str]]:
        return topic_ops.publish(self._keys, batch, self._keep)


def _ids_in(outcome: SendOutcome) -> list[str | None]:
    """Return the id of each message. None: there was no room."""
    if not outcome.full:
        return list(outcome.ids)
    full = set(outcome.full)
    return [None if position in full else id_ for position, id_ in enumerate(outcome.ids)]


def _fail(answers: list[asyncio.Future[A]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
