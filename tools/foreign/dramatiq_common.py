"""A module that Dramatiq's own tests import. Their source distribution lacks it. `tools/test_foreign.py` copies it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import dramatiq
import pika
import pytest

T = TypeVar("T", bound=Callable[..., Any])


@contextmanager
def worker(*args: Any, **kwargs: Any) -> Iterator[dramatiq.Worker]:
    started = dramatiq.Worker(*args, **kwargs)
    started.start()
    try:
        yield started
    finally:
        started.stop()


def _not_skipped(test: T) -> T:
    return test


skip_in_ci = skip_on_windows = skip_on_pypy = skip_with_gevent = _not_skipped
skip_without_gevent = pytest.mark.skip(reason="needs gevent")
skip_unless_rabbit_mq = pytest.mark.skip(reason="needs RabbitMQ")
RABBITMQ_CREDENTIALS = pika.PlainCredentials("guest", "guest")
