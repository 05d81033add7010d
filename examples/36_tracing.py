"""OpenTelemetry: one trace from a request over two queues. Needs `pip install "duly[otel]" opentelemetry-sdk`.

The exporter of this example keeps spans in memory. Yours sends them to a collector.
"""

import asyncio
import os

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import duly
import duly.otel

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
duly.otel.instrument(app, tracer_provider=provider)
orders, parcels = app.queue("example-traced-orders"), app.queue("example-traced-parcels")


@orders.handler
async def on_order(order: int) -> None:
    await parcels.send({"order": order})


@parcels.handler
async def on_parcel(parcel: dict[str, int]) -> None:
    print("packed", parcel)


async def main() -> None:
    with provider.get_tracer("shop").start_as_current_span("POST /orders"):
        await orders.send(17)
    async with duly.Worker(app):
        while (await orders.stats()).live or not (await parcels.stats()).acked:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    spans = exporter.get_finished_spans()
    for span in spans:
        print(span.name)
    assert len({span.context.trace_id for span in spans}) == 1
    assert {span.name for span in spans} == {
        "POST /orders",
        "send example-traced-orders",
        "process example-traced-orders",
        "send example-traced-parcels",
        "process example-traced-parcels",
    }
    await orders.delete()
    await parcels.delete()
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
