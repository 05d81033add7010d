"""The dashboard, the HTTP API and the metrics, as one ASGI app. Needs the `web` extra."""

try:
    import jinja2 as _jinja2
    import prometheus_client as _prometheus_client
    import starlette as _starlette
except ImportError as _error:
    raise ImportError(f"{_error.name} is missing: the dashboard needs pip install 'duly[web]'") from _error

from duly.web.access import Role
from duly.web.application import create_app

__all__ = ["Role", "create_app"]

del _jinja2, _prometheus_client, _starlette
