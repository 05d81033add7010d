"""Random requests that follow openapi.json, and random ones that do not: each response is one that it describes.

A request may follow the description and still be refused with 422, for rules that a schema cannot state: that one of
two fields is required, that a cron expression exists, or that bodies of several messages have one durability.
"""

import asyncio
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

import duly
from duly.web import create_app
from duly.web.api.requests import MAX_WAIT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOKEN: Final = "a-token-for-random-requests"
APP: Final = duly.AsyncDuly("memory://")
CONFIG: Final = schemathesis.Config.from_dict(
    {"checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 401, 403, 404, 409, 413, 422, 429]}}}
)
SCHEMA: Final[Any] = schemathesis.openapi.from_asgi(
    "/api/v1/openapi.json",
    create_app(APP, tokens=TOKEN),
    config=CONFIG,
    headers={"Host": "localhost", "Authorization": f"Bearer {TOKEN}"},
).exclude(path_regex="/events$")  # a stream has no end


@pytest.fixture(scope="module", autouse=True)
def filled() -> None:
    """Create a queue and a group, so that not every name is unknown."""

    async def fill() -> None:
        await APP.queue("orders").send_many(range(5))
        await APP.topic("events").group("archive").receive(1, wait=0)

    asyncio.run(fill())


def _is_short(body: Any) -> bool:
    """Return whether a receive does not wait, or is refused: no message would come."""
    wait = body.get("wait", MAX_WAIT) if isinstance(body, dict) else MAX_WAIT
    return not isinstance(wait, int | float) or not 0 < wait <= MAX_WAIT


@SCHEMA.parametrize()  # type: ignore[untyped-decorator]
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_response_is_described(case: Any) -> None:
    if case.path.endswith("/receive") and not _is_short(case.body):
        return
    case.call_and_validate(headers={"Host": "localhost", "Authorization": f"Bearer {TOKEN}"})
