"""Runs a coroutine inside another one, step by step, in a context of its own.

A slot is one task that handles one message after another. Each message must find the context variables as
the worker started with them, not as the message before left them; and when its handler pauses, the next
slot should go on. A task for each message would give both, at five times the price.
"""

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any


class CoroutineDriver:
    """Awaits a coroutine in `context`, and says once when it pauses for the first time."""

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
            except BaseException as error:  # noqa: BLE001 - a cancellation, or what the awaited future raised
                go_on: Callable[[Any], Any] = coroutine.throw
                answer = error
            else:
                go_on = coroutine.send
            try:
                waited_for = step(go_on, answer)
            except StopIteration as end:
                return end.value
