"""How `/metrics` is asked for and written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from duly.web.metrics.sight import Sight, scrape
from duly.web.metrics.table import METRICS, Metric
from duly.web.site import role_of, site_of

_LONGEST_LABEL: Final = 256
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"


def route(*, is_open: bool) -> Route:
    """Make the route. `is_open`: nobody is asked for a token."""

    async def metrics(request: Request) -> Response:
        site = site_of(request)
        why = None if is_open else site.access.refusal(role_of(request), "viewer", changes=False)
        if why is not None:
            return PlainTextResponse(f"{why}\n", 401, {"WWW-Authenticate": "Bearer"})
        # In a thread: of a thousand queues it is a megabyte of text, and others wait for answers as well.
        return await asyncio.to_thread(_written, await scrape(site), request.headers.get("accept", ""))

    return Route("/metrics", metrics, methods=["GET"], name="metrics")


def _written(sight: Sight, accept: str) -> Response:
    if _asks_for_openmetrics(accept):
        text: bytes = openmetrics.generate_latest(_Families(sight))  # type: ignore[no-untyped-call]
        return Response(text, headers={"Content-Type": openmetrics.CONTENT_TYPE_LATEST})
    return Response(generate_latest(_Families(sight)), headers={"Content-Type": _TEXT})


def _asks_for_openmetrics(accept: str) -> bool:
    """Tell whether it is among what is accepted. Prometheus names it first, with the plain text behind it."""
    return any(each.partition(";")[0].strip().lower() == _OPENMETRICS for each in accept.split(","))


class _Families(Collector):
    """The metrics of one sight, as the client library of Prometheus writes them."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Make each row of the table a family."""
        return map(self._family, METRICS)

    def _family(self, metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.says, labels=metric.labels)
        # Two names that are cut may be the same then, and a sample that comes twice spoils a scrape.
        samples = {tuple(map(_cut, labels)): number for labels, number in metric.samples(self._sight)}
        for labels, number in samples.items():
            family.add_metric(labels, number)
        return family


def _cut(text: str) -> str:
    """Shorten a name that another program gave, which may be of any length."""
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
