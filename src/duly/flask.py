"""Duly as an extension of Flask: an app that gets its server from the configuration of a Flask app.

jobs = FlaskDuly()
orders = jobs.queue("orders")

def create_app() -> Flask:
    web = Flask("shop")
    web.config["DULY_URL"] = "redis://localhost:6379/0"
    jobs.init_app(web)
    return web
"""

from typing import Any, Protocol

import duly


class FlaskApp(Protocol):
    """The parts of `flask.Flask` that the extension uses."""

    config: Any
    extensions: dict[str, Any]


class FlaskDuly(duly.Duly):
    """A `duly.Duly` that is connected by `init_app`. Its options are those of `duly.Duly`."""

    def __init__(self, web: FlaskApp | None = None, **options: Any) -> None:
        super().__init__(connect=False, **options)
        if web is not None:
            self.init_app(web)

    def init_app(self, web: FlaskApp) -> None:
        """Choose the server: DULY_URL of the Flask app, else of the environment, else the embedded server.

        No call is made. Safe to repeat, also with another Flask app of the same server. Raises UsageError if the server
        is another one.
        """
        self.connect(web.config.get("DULY_URL"))
        web.extensions["duly"] = self
