"""Workers: who is at work, as seen from outside."""

from datetime import UTC, datetime

from duly import AsyncDuly, WorkerInfo
from duly._core import ops
from duly._core.keys import RegistryKeys
from duly._core.registry import Info, written_info
from tests.client.place import Place

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def heartbeat(host: str = "box", last_poll: float | None = None) -> bytes:
    """Write the heartbeat of a worker."""
    return written_info(
        Info(
            host=host,
            pid=7,
            queues=("orders",),
            concurrency=10,
            in_flight=3,
            handled=12,
            started_at=STARTED,
            last_poll=last_poll,
            version="1.2",
        )
    )


async def beat(app: AsyncDuly, consumer: str, info: bytes, forget_after: float = 60) -> None:
    await app._link.run(ops.beat(RegistryKeys(app.namespace), consumer, info, forget_after))


async def test_without_workers_none_are_shown(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, namespace=queue_name) as app:
        assert await app.workers() == []


async def test_a_worker_is_shown_with_its_heartbeat_and_the_time_since(clock: Place, queue_name: str) -> None:
    async with AsyncDuly(clock.url, namespace=queue_name) as app:
        began = clock.now()
        await beat(app, "box:7:abc", heartbeat(last_poll=0.25))

        clock.advance(5)
        (worker,) = await app.workers()

        assert 5 <= worker.last_beat <= clock.now() - began
        assert worker == WorkerInfo(
            id="box:7:abc",
            host="box",
            pid=7,
            queues=("orders",),
            concurrency=10,
            in_flight=3,
            handled=12,
            started_at=STARTED,
            last_poll=worker.last_beat + 0.25,
            last_beat=worker.last_beat,
            version="1.2",
        )


async def test_a_worker_that_is_silent_for_long_is_forgotten(clock: Place, queue_name: str) -> None:
    async with AsyncDuly(clock.url, namespace=queue_name) as app:
        await beat(app, "dead", heartbeat())
        clock.advance(61)
        await beat(app, "alive", heartbeat())

        assert [worker.id for worker in await app.workers()] == ["alive"]


async def test_data_of_another_program_is_not_shown(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, namespace=queue_name) as app:
        await beat(app, "stranger", b"\xff")
        await beat(app, "ours", heartbeat())

        assert [worker.id for worker in await app.workers()] == ["ours"]


async def test_the_registry_of_workers_is_not_shown_as_a_queue(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, namespace=queue_name) as app:
        await app.queue("orders").send("body")
        await beat(app, "worker", heartbeat())

        assert await app.queues() == ["orders"]


async def test_namespaces_do_not_see_the_workers_of_each_other(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, namespace="a" + queue_name) as a, AsyncDuly(backend, namespace="b" + queue_name) as b:
        await beat(a, "worker", heartbeat())

        assert await b.workers() == []
