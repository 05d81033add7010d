"""The script cache of a server: too many scripts, and scripts that are missing."""

import pytest
import redis

import duly
from duly import _lua
from duly.doctor import examine
from duly.doctor.checks.performance import MANY, REMEMBERED
from tests.binaries import Kind
from tests.doctor.fixes import run
from tests.servers import Server

pytestmark = pytest.mark.fault

EVICTING = ("valkey",)
"""Servers that evict scripts of EVAL."""


def built_from_data(client: redis.Redis, count: int) -> None:
    """Run a different script for each value, which is the mistake to find."""
    with client.pipeline(transaction=False) as pipeline:
        for number in range(count):
            pipeline.eval(f"return {number}", 0)
        pipeline.execute()


def test_scripts_that_are_built_from_data_are_found_and_the_fix_works(kind: Kind) -> None:
    with Server(kind) as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        app.queue("orders").send("x")
        before = examine(app).finding("script-cache")
        built_from_data(client, MANY + REMEMBERED)
        finding = examine(app).finding("script-cache")

        assert before.verdict == "ok", before
        assert finding.verdict == "warn", finding
        assert ("evicted" in finding.found) == (kind in EVICTING)
        assert "KEYS and ARGV" in finding.fix
        run(finding, server.url)
        assert examine(app).finding("script-cache").verdict == "ok"
        app.queue("orders").send("y")  # its script is not cached any more, and is sent again
        assert app.queue("orders").stats().ready == 2


def test_scripts_that_are_flushed_repeatedly_are_found_and_the_fix_works(kind: Kind) -> None:
    with Server(kind) as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        queue = app.queue("orders")
        for number in range(20):
            queue.send(number)
            client.script_flush()
        few = examine(app).finding("script-cache")
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(1000):
                pipeline.evalsha("0" * 40, 0)
            pipeline.execute(raise_on_error=False)
        finding = examine(app).finding("script-cache")

        assert few.verdict == "ok", few
        assert finding.verdict == "warn", finding
        assert "did not find their script in the cache" in finding.found
        assert "SCRIPT FLUSH" in finding.fix
        run(finding, server.url)
        assert examine(app).finding("script-cache").verdict == "ok"
        assert queue.stats().ready == 20


def test_functions_of_other_programs_are_reported_and_ok() -> None:
    library = "#!lua name=mine\nredis.register_function('mine', function() return 1 end)"
    with Server("valkey") as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        client.function_load(library)
        finding = examine(app).finding("script-cache")

    assert finding.verdict == "ok"
    assert "and 1 functions of other programs" in finding.found


def test_two_versions_of_duly_fit_into_the_cache_of_a_server() -> None:
    kinds: tuple[_lua.Kind, ...] = ("queue", "topic", "group", "freeing")
    texts = {_lua.script(name, kind).sha for name in _lua.names() for kind in kinds}

    assert 2 * len(texts) < REMEMBERED < MANY
