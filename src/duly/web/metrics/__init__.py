"""`/metrics`: the numbers of all queues, topics, workers and schedules, for Prometheus.

What can be told is a table, METRICS. The server is looked at once, for all who ask at the same time or within a second,
and the rows of the table take from that scrape what they tell. Nothing is kept between looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from duly.web.cache import Cached
from duly.web.metrics.definitions import METRICS, Metric
from duly.web.metrics.scrape import Scrape, run_scrape
from duly.web.problems import BEARER_CHALLENGE
from duly.web.site import Site, denial_reason

_MAX_LABEL: Final = 256
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"


def route(site: Site, *, is_open: bool) -> Route:
    """Make the route of a dashboard. `is_open`: nobody is asked for a token."""
    scrapes = _ScrapeCache(site)

    async def metrics(request: Request) -> Response:
        reason = None if is_open else denial_reason(request, "viewer", changes=False)
        if reason is not None:
            return PlainTextResponse(f"{reason}\n", 401, BEARER_CHALLENGE)
        return await scrapes.respond(request.headers.get("accept", ""))

    return Route("/metrics", metrics, methods=["GET"], name="metrics")


class _ScrapeCache:
    """Scrapes of one dashboard: however many ask, one looks at a time, and writes what it saw once."""

    def __init__(self, site: Site) -> None:
        self._scrape = Cached(lambda: run_scrape(site))
        self._plain = Cached(lambda: self._render(generate_latest))
        self._open = Cached(lambda: self._render(openmetrics.generate_latest))

    async def respond(self, accept: str) -> Response:
        """Answer in the form that is asked for."""
        if _accepts_openmetrics(accept):
            return Response(await self._open.get(), headers={"Content-Type": openmetrics.CONTENT_TYPE_LATEST})
        return Response(await self._plain.get(), headers={"Content-Type": _TEXT})

    async def _render(self, write: Callable[..., bytes]) -> bytes:
        # In a thread: of a thousand queues it is a megabyte of text, and others wait for answers as well.
        return await asyncio.to_thread(write, _Families(await self._scrape.get()))


def _accepts_openmetrics(accept: str) -> bool:
    """Tell whether it is among what is accepted. Prometheus names it first, with the plain text behind it."""
    return any(each.partition(";")[0].strip().lower() == _OPENMETRICS for each in accept.split(","))


class _Families(Collector):
    """The metrics of one scrape, as the client library of Prometheus writes them."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Make each row of the table a family."""
        return map(self._family, METRICS)

    def _family(self, metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.description, labels=metric.labels)
        # Two names that are cut may be the same then, and a sample that comes twice spoils a scrape.
        samples = {tuple(map(_shortened, labels)): number for labels, number in metric.samples(self._scrape)}
        for labels, number in samples.items():
            family.add_metric(labels, number)
        return family


def _shortened(text: str) -> str:
    """Shorten a name that another program gave, which may be of any length."""
    return text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "…"
