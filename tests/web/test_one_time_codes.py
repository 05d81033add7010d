"""One-time links: a code logs in one browser, once, within five minutes."""

from __future__ import annotations

import httpx
import pytest

import duly
from duly.web import create_app
from duly.web.application import sign_in_link
from duly.web.one_time_codes import LIFE_SECONDS, OneTimeCodes
from tests.web.conftest import client_of

TOKEN = "a-token-of-an-admin"


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_code_stands_for_its_token_until_it_is_spent() -> None:
    codes = OneTimeCodes()
    code, other = codes.issue(TOKEN), codes.issue("another-token")
    assert code != other
    assert [codes.token_of(code), codes.token_of(code)] == [TOKEN, TOKEN]
    codes.spend(code)
    assert codes.token_of(code) is None
    assert codes.token_of(other) == "another-token"


@pytest.mark.parametrize("guess", ["", "once-", "once-" + "x" * 43, "\udcff", TOKEN])
def test_other_texts_are_refused(guess: str) -> None:
    codes = OneTimeCodes()
    codes.issue(TOKEN)
    assert codes.token_of(guess) is None


def test_a_code_expires() -> None:
    clock = Clock()
    codes = OneTimeCodes(clock)
    early, late = codes.issue(TOKEN), codes.issue(TOKEN)
    clock.now += LIFE_SECONDS - 1
    assert codes.token_of(early) == TOKEN
    clock.now += 1
    assert codes.token_of(late) is None


def test_only_the_newest_codes_are_kept() -> None:
    codes = OneTimeCodes()
    made = [codes.issue(TOKEN) for _ in range(20)]
    assert [codes.token_of(each) for each in made] == [None] * 4 + [TOKEN] * 16


async def log_in(client: httpx.AsyncClient, code: str) -> httpx.Response:
    return await client.post("/login", data={"token": code, "next": "/workers"}, headers={"Origin": "http://localhost"})


async def test_a_link_logs_in_one_browser(site_app: duly.AsyncDuly) -> None:
    site = create_app(site_app, tokens=TOKEN)
    link = sign_in_link(site, "http://localhost", TOKEN)
    address, _, code = link.partition("#")
    assert address == "http://localhost/login"
    async with client_of(site) as first, client_of(site) as second:
        answer = await log_in(first, code)
        assert (answer.status_code, answer.headers["Location"]) == (303, "/workers")
        assert code not in answer.headers["Set-Cookie"]
        assert (await first.get("/workers")).status_code == 200
        refused = await log_in(second, code)
        assert refused.status_code == 401
        assert "this link has been used or has expired" in refused.text
        assert code not in refused.text


async def test_an_address_that_is_locked_out_does_not_spend_its_link(site_app: duly.AsyncDuly) -> None:
    site = create_app(site_app, tokens=TOKEN)
    code = sign_in_link(site, "http://localhost", TOKEN).partition("#")[2]
    async with client_of(site) as client:
        for number in range(10):
            assert (await log_in(client, f"wrong-token-{number}")).status_code == 401
        assert (await log_in(client, code)).status_code == 429
    transport = httpx.ASGITransport(app=site, client=("198.51.100.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as elsewhere:
        assert (await log_in(elsewhere, code)).status_code == 303
        assert (await log_in(elsewhere, code)).status_code == 401


async def test_the_api_refuses_a_code(site_app: duly.AsyncDuly) -> None:
    site = create_app(site_app, tokens=TOKEN)
    code = sign_in_link(site, "http://localhost", TOKEN).partition("#")[2]
    async with client_of(site) as client:
        answer = await client.get("/api/v1/queues", headers={"Authorization": f"Bearer {code}"})
        assert answer.status_code == 401
        assert (await log_in(client, code)).status_code == 303  # it was not spent


async def test_codes_are_not_logged(site_app: duly.AsyncDuly, caplog: pytest.LogCaptureFixture) -> None:
    site = create_app(site_app, tokens=TOKEN)
    code = sign_in_link(site, "http://localhost", TOKEN).partition("#")[2]
    with caplog.at_level(0):
        async with client_of(site) as client:
            await log_in(client, code)
            await log_in(client, code)
    assert code not in caplog.text
