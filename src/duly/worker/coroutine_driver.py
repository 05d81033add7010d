"""Runs a coroutine inside another one, step by step, in its own context.

A slot is one task that handles one message after another. Each handler must see the context variables as they were when
the worker started, not as the previous handler left them. And when a handler pauses, the next slot should continue. A
task for each message would do both, at five times the cost.
"""

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any


class CoroutineDriver:
    """Awaits a coroutine in `context`, and calls `on_pause` when it pauses for the first time."""

    __slots__ = ("_context", "_coroutine", "_on_pause")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: Context, on_pause: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._context = context
        self._on_pause = on_pause

    def __await__(self) -> Generator[Any, Any, Any]:
        step, coroutine = self._context.run, self._coroutine
        try:
            waited_for = step(coroutine.send, None)
        except StopIteration as end:
            return end.value
        self._on_pause()
        while True:
            try:
                answer = yield waited_for
            except GeneratorExit:
                step(coroutine.close)
                raise
            except BaseException as error:  # noqa: BLE001 - a cancellation, or the error of the awaited future
                go_on: Callable[[Any], Any] = coroutine.throw
                answer = error
            else:
                go_on = coroutine.send
            try:
                waited_for = step(go_on, answer)
            except StopIteration as end:
                return end.value
