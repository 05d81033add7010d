"""The extension of Flask: its server comes from the configuration."""

import pytest
from flask import Flask

import duly
from duly.flask import FlaskDuly


def test_queues_are_defined_before_the_server_is_known() -> None:
    jobs = FlaskDuly(namespace="shop")
    orders = jobs.queue("orders")
    with pytest.raises(duly.UsageError, match="connect"):
        orders.send(1)
    web = Flask("shop")
    web.config["DULY_URL"] = "memory://"

    jobs.init_app(web)

    assert orders.get(orders.send(1)) is not None
    assert web.extensions["duly"] is jobs


def test_two_flask_apps_share_a_server_and_not_two() -> None:
    first, other = Flask("first"), Flask("other")
    first.config["DULY_URL"] = "redis://localhost:1/0"
    other.config["DULY_URL"] = "redis://localhost:2/0"
    jobs = FlaskDuly(first)

    jobs.init_app(first)

    with pytest.raises(duly.UsageError):
        jobs.init_app(other)
