"""`/metrics`: metrics of all queues, topics, workers and schedules, for Prometheus.

METRICS is the table of all metrics. Each row reads its samples from a scrape. Requests at the same time or within a
second share one scrape. Nothing else is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from duly.message import Histogram
from duly.web.cache import Cached
from duly.web.metrics.definitions import METRICS, Metric
from duly.web.metrics.scrape import Scrape, run_scrape
from duly.web.problems import BEARER_CHALLENGE
from duly.web.site import Site, denial_reason

_MAX_LABEL: Final = 256
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"


def route(site: Site, *, is_open: bool) -> Route:
    """Create the route of a dashboard. `is_open`: no token is required."""
    scrapes = _ScrapeCache(site)

    async def metrics(request: Request) -> Response:
        reason = None if is_open else denial_reason(request, "viewer", changes=False)
        if reason is not None:
            return PlainTextResponse(f"{reason}\n", 401, BEARER_CHALLENGE)
        return await scrapes.respond(request.headers.get("accept", ""))

    return Route("/metrics", metrics, methods=["GET"], name="metrics")


class _ScrapeCache:
    """The cached scrape of a dashboard, and its text in both formats."""

    def __init__(self, site: Site) -> None:
        self._scrape = Cached(lambda: run_scrape(site))
        self._plain = Cached(lambda: self._render(generate_latest))
        self._open = Cached(lambda: self._render(openmetrics.generate_latest))

    async def respond(self, accept: str) -> Response:
        """Respond in the accepted format."""
        if _accepts_openmetrics(accept):
            return Response(await self._open.get(), headers={"Content-Type": openmetrics.CONTENT_TYPE_LATEST})
        return Response(await self._plain.get(), headers={"Content-Type": _TEXT})

    async def _render(self, write: Callable[..., bytes]) -> bytes:
        # In a thread: the text for a thousand queues is a megabyte, and other requests must not wait for it.
        return await asyncio.to_thread(write, _Families(await self._scrape.get()))


def _accepts_openmetrics(accept: str) -> bool:
    """Return whether the client accepts OpenMetrics. Prometheus prefers it over plain text."""
    return any(each.partition(";")[0].strip().lower() == _OPENMETRICS for each in accept.split(","))


class _Families(Collector):
    """The metrics of one scrape, for the client library of Prometheus."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterable[_Family]:
        """Create a metric family for each row of the table."""
        return map(self._family, METRICS)

    def _family(self, metric: Metric) -> _Family:
        family: _Family = _FAMILIES[metric.kind](metric.name, metric.description, labels=metric.labels)
        # Two shortened names may be equal, and Prometheus rejects a scrape with a repeated sample.
        samples = {tuple(map(_shortened, labels)): number for labels, number in metric.samples(self._scrape)}
        add: Any = family.add_metric
        for labels, number in samples.items():
            if isinstance(number, Histogram):
                add(labels, _buckets(number), number.total)
            else:
                add(labels, number)
        return family


_Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
_FAMILIES: Final[dict[str, Callable[..., Any]]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the bounds and the number of times up to each."""
    bounds = (*map(str, map(float, Histogram.BOUNDS)), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _shortened(text: str) -> str:
    """Shorten a name from another program, which may be of any length."""
    return text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "…"
