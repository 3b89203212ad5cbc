"""Pages: content negotiation, navigation, templates and their filters.

A page and an API route can share a path: a browser that asks for HTML gets the page, a script gets JSON.

Routes of a `Pages` router are asked first, and do not match a request that does not name text/html; it then goes on to
the API's route of the same path. So every address that people know is also the address that scripts use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.loaders import PrefixLoader
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from coterie import __version__
from coterie.base.values import clamp_time
from coterie.surfaces.web.shared import assets, messages
from coterie.surfaces.web.shared.labels import (
    job_label,
    memory_type_label,
    proposal_match_label,
    proposal_state_label,
    score_part_label,
    summary_label,
    trait_label,
)
from coterie.surfaces.web.shared.messages import N_, gettext
from coterie.surfaces.web.shared.prose import (
    clean_fragment,
    clean_line,
    excerpt,
    plain_fragment,
    render_prose,
    render_reply,
    show_invisible,
)

# Navigation, in the order of the side bar, the command palette and the shortcuts. An item is shown if a router serves
# its path. A phone shows the first few; the others are behind one button.


PHONE_ITEMS = 4


@dataclass(frozen=True)
class NavigationItem:
    path: str
    label: str
    icon: str
    key: str
    """The shortcut: `g`, then this key."""
    mode: bool = False
    """Whether it is one of the modes."""


NAVIGATION_ITEMS = (
    NavigationItem("/chats", N_("Stories"), "book-open", "c", mode=True),
    NavigationItem("/draft", N_("Drafts"), "file-text", "d", mode=True),
    NavigationItem("/crowd", N_("Crowd"), "radio", "w", mode=True),
    NavigationItem("/desk", N_("Desk"), "lamp-desk", "t", mode=True),
    NavigationItem("/characters", N_("Characters"), "users-round", "p"),
    NavigationItem("/memory", N_("Memory"), "brain", "m"),
    NavigationItem("/ops", N_("Status & costs"), "activity", "o"),
    NavigationItem("/settings", N_("Settings"), "settings", "s"),
)


def available_items(pages: Iterable[APIRouter]) -> tuple[NavigationItem, ...]:
    """The items that these routers have a page for."""
    served = {route.path for router in pages for route in router.routes if isinstance(route, APIRoute)}
    return tuple(place for place in NAVIGATION_ITEMS if place.path in served)


def accepts_html(headers: Headers) -> bool:
    """Whether the request names HTML; `*/*`, as curl sends it, does not count."""
    kinds = (part.partition(";") for part in headers.get("accept", "").lower().split(","))
    return any(kind.strip() == "text/html" and more.strip() != "q=0" for kind, _, more in kinds)


class HtmlRoute(APIRoute):
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is not Match.FULL or not accepts_html(Headers(scope=scope)):
            return Match.NONE, {}
        return match, child


class PageRouter(APIRouter):
    """Pages that share their paths with API routes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=HtmlRoute, include_in_schema=False, **options)


# Templates are always autoescaped. Text of people, models and files reaches a page only escaped, or through `prose`,
# which escapes as well; `trusted_html` is only for the output of another template.


HUE_COUNT = 24
find_portrait: ContextVar[Callable[[str], str]] = ContextVar("find_portrait", default=lambda name: "")
"""The address of the portrait of a character by its name, during a request; empty if there is none."""


@cache
def template_environment() -> Environment:
    """The environment of all templates."""
    package = "coterie.surfaces.web"
    features = {name: PackageLoader(package, f"{name}/templates") for name in assets.FEATURES}
    components = PackageLoader(package, "shared/components")
    jinja = Environment(
        loader=PrefixLoader({**features, "components": components}),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
        extensions=["jinja2.ext.i18n"],
    )
    jinja.install_gettext_callables(  # type: ignore[attr-defined]
        messages.catalogue_gettext,
        messages.catalogue_ngettext,
        newstyle=True,
        pgettext=messages.catalogue_pgettext,
        npgettext=messages.catalogue_npgettext,
    )
    jinja.globals.update(
        _=messages.gettext,
        _n=messages.ngettext,
        _p=messages.pgettext,
        language=messages.current_language,
        script_messages=messages.script_messages,
        asset=assets.asset_url,
        modules=assets.module_urls,
        on_a_phone=PHONE_ITEMS,
        version=__version__,
        portrait_of=lambda name: find_portrait.get()(name),
    )
    jinja.filters.update(
        hue_class=hue_class,
        initials=initials,
        clean=clean_line,
        clean_fragment=clean_fragment,
        plain_fragment=plain_fragment,
        prose=render_prose,
        reply=render_reply,
        excerpt=excerpt,
        show_invisible=show_invisible,
        iso_time=iso_timestamp,
        trusted_html=Markup,
        twice=lambda value: (value, value),
        json_data=lambda value: json.dumps(value, ensure_ascii=True),
    )
    labels: dict[str, Callable[..., Any]] = {
        "story_time": story_time,
        "full_day": full_day,
        "month_day": month_day,
        "kind_of_memory": lambda kind: (kind, memory_type_label(kind).capitalize()),
        "memory_type": memory_type_label,
        "proposal_match": proposal_match_label,
        "proposal_state": proposal_state_label,
        "summary_label": summary_label,
        "trait_label": trait_label,
        "score_part": score_part_label,
        "job_label": job_label,
    }
    jinja.filters.update({name: _at_each_rendering(label) for name, label in labels.items()})
    return jinja


def _at_each_rendering(label: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose result depends on the language. Without a context, Jinja would apply it to a constant only once,
    when it compiles the template."""

    @pass_context
    def apply(_context: Context, *arguments: Any) -> Any:
        return label(*arguments)

    return apply


def render(name: str, /, **context: Any) -> str:
    """A template, or a fragment of a page, as HTML."""
    return template_environment().get_template(name).render(**context)


def page_response(request: Request, name: str, /, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A whole page. `here` is the navigation item that is marked. For a guest, there is no navigation."""
    here = "/" + request.url.path.strip("/").partition("/")[0]
    is_guest = request.scope.get("state", {}).get("shares") is not None
    around = {"here": here, "path": request.url.path, "rail": request.app.state.rail, "guest": is_guest}
    html = render(name, **{**around, **context})
    return HTMLResponse(html, status, headers={"Cache-Control": "no-store", "Vary": "Accept"})


def fragment_response(name: str, /, **context: Any) -> HTMLResponse:
    """A part of a page, for htmx."""
    return HTMLResponse(render(name, **context), headers={"Cache-Control": "no-store", "Vary": "Accept"})


def hue_class(name: str) -> str:
    """The accent colour of a character, derived from its name."""
    return f"hue-{hashlib.sha256(name.casefold().encode()).digest()[0] % HUE_COUNT}"


def initials(name: str) -> str:
    """Shown in place of a missing portrait."""
    words = clean_line(name).split()
    return "".join(word[0] for word in (words[:1] + words[-1:] if len(words) > 1 else words)).upper() or "?"


def iso_timestamp(at: datetime) -> str:
    """For `<time datetime>`; a script shows it in the reader's zone."""
    return _showable(at).isoformat(timespec="seconds")


_WEEKDAYS = (
    *(N_("Monday"), N_("Tuesday"), N_("Wednesday"), N_("Thursday")),
    *(N_("Friday"), N_("Saturday"), N_("Sunday")),
)
_MONTHS = (
    *(N_("January"), N_("February"), N_("March"), N_("April"), N_("May"), N_("June")),
    *(N_("July"), N_("August"), N_("September"), N_("October"), N_("November"), N_("December")),
)


def story_time(at: datetime) -> str:
    """A time in the fiction, which has no time zone."""
    at = _showable(at)
    return gettext("%(weekday)s %(day)s %(month)s, %(time)s", **_day_names(at), time=f"{at:%H:%M}")


def full_day(day: date) -> str:
    return gettext("%(weekday)s %(day)s %(month)s %(year)s", **_day_names(day), year=day.year)


def month_day(day: date) -> str:
    return gettext("%(day)s %(month)s", **_day_names(day))


def _day_names(day: date) -> dict[str, object]:
    weekday, month = gettext(_WEEKDAYS[day.weekday()]), gettext(_MONTHS[day.month - 1])
    return {"weekday": weekday, "day": day.day, "month": month}


def _showable(at: datetime) -> datetime:
    """In UTC. A stored time that has no representation there is shown as the nearest supported one."""
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        return clamp_time(at)
