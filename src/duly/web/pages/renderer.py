"""Renders pages from templates. All values are escaped, so that texts from a queue cannot run in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from duly._port import size_text
from duly.web.access import Role, sees_payloads
from duly.web.pages import attempts, charts, text, trends
from duly.web.pages.language import LANGUAGES, Language, language_of
from duly.web.pages.way_back import requested_page
from duly.web.sessions import root_path_of
from duly.web.site import Site

_TEMPLATES: Final = Path(__file__).parents[1] / "templates"


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a template with values and with the common context: links, role and permissions."""
    language = language_of(request)
    page = _ENVIRONMENTS[language.code].get_template(template)
    return HTMLResponse(page.render({**_context(request), **values}), status, {"Content-Language": language.tag})


def path_of(request: Request, *parts: str) -> str:
    """Return the URL of a page, independent of where the dashboard is mounted. Parts may be any text."""
    return root_path_of(request.scope) + "/" + "/".join(quote(each, safe="") for each in parts)


def _context(request: Request) -> dict[str, Any]:
    # An error outside the guards is rendered without site and role.
    site: Site | None = getattr(request.state, "site", None)
    role: Role | None = getattr(request.state, "role", None)

    def path(*parts: str) -> str:
        return path_of(request, *parts)

    def may(needs: Role) -> bool:
        return site is not None and site.access.denial_reason(role, needs, changes=True) is None

    return {
        "path": path,
        "may": may,
        "role": role,
        "sees_payloads": sees_payloads(role),
        "is_open": site is None or site.access.is_open,
        "read_only": site is not None and site.access.read_only,
        "now": datetime.now(UTC),
        "this_page": requested_page(request),
    }


def _utc(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _utc_milliseconds(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _exact_span(language: Language, seconds: float | None) -> str:
    """Format a duration with milliseconds, if it is shorter than a minute."""
    if seconds is not None and 1 <= seconds < 60:
        return language.units(f"{seconds:.3f}s")
    return language.span(seconds)


def _from_now(language: Language, at: datetime | None, now: datetime) -> str:
    """Format a time relative to now: in 5m 20s, 3h ago."""
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    seconds = seconds if abs(seconds) < 1 else round(seconds)
    if seconds > 0:
        return language.text("in {duration}", duration=language.span(seconds))
    return language.text("{duration} ago", duration=language.span(-seconds))


def _rate(value: float) -> str:
    return f"{value:,.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def _finalize(value: Any) -> Any:
    return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _link(url: str, label: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(url, text.visible(label))


def _code(command: str) -> Markup:
    return Markup("<code>{}</code>").format(text.visible(command))


def _environment(language: Language) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,  # every rendered value passes here, so none can be forgotten
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., Any]] = {
        "span": language.span, "units": language.units, "size": size_text,
        "clock": _utc, "exact_clock": _utc_milliseconds,
        "from_now": partial(_from_now, language), "exact_span": partial(_exact_span, language),
        "rate": _rate, "count": "{:,}".format,
        "lines": text.lines, "body": text.body, "body_line": text.body_line, "value": text.value,
        "as_typed": text.as_typed,
        "trend": trends.trend, "json": json.dumps,
    }  # fmt: skip
    environment.filters.update(filters)
    environment.globals.update(t=language.text, plural=language.plural, term=language.term, sentence=language.sentence)
    environment.globals.update(language=language, languages=list(LANGUAGES.values()), link=_link, code=_code)
    environment.globals.update(trend_axis=trends.axis(), trend_minutes=trends.MINUTES)
    environment.globals.update(bar_width=attempts.WIDTH, bar_height=attempts.HEIGHT)
    environment.globals.update(history_spans=charts.SPANS, chart_width=charts.WIDTH, chart_height=charts.HEIGHT)
    return environment


_ENVIRONMENTS: Final = {code: _environment(language) for code, language in LANGUAGES.items()}
