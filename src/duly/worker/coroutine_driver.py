"""Runs a coroutine inside another one, step by step, in its own context.

A slot is one task that handles one message after another. Each handler must see the context variables as they were when
the worker started, not as the previous handler left them. And when a handler pauses, the next slot should continue. A
task for each message would do both, at five times the cost.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any


@types.coroutine
def run_in_context(
    coroutine: Coroutine[Any, Any, Any], context: Context, on_pause: Callable[[], None]
) -> Generator[Any, Any, Any]:
    """Await a coroutine in `context`, and call `on_pause` when it pauses for the first time."""
    step = context.run
    try:
        waited_for = step(coroutine.send, None)
    except StopIteration as end:
        return end.value
    on_pause()
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
