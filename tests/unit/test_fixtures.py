import re

import redis


def test_every_engine_is_reached_by_its_url(backend: str, queue_name: str) -> None:
    if backend != "memory://":
        with redis.Redis.from_url(backend) as client:
            assert client.ping()
            assert not client.exists(queue_name)


def test_a_queue_name_is_one_that_the_product_accepts(queue_name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", queue_name)
