"""One path, two readers: a browser that asks for HTML gets the page, a script gets JSON from the route behind it.

Routes of a `Pages` router are asked first, and do not match a request that does not name text/html; it then goes on to
the API's route of the same path. So every address that people know is also the address that scripts use.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope


def accepts_html(headers: Headers) -> bool:
    """Whether the request names HTML; what takes anything (`*/*`: curl, scripts) does not."""
    kinds = (part.partition(";") for part in headers.get("accept", "").lower().split(","))
    return any(kind.strip() == "text/html" and more.strip() != "q=0" for kind, _, more in kinds)


class HtmlRoute(APIRoute):
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is not Match.FULL or not accepts_html(Headers(scope=scope)):
            return Match.NONE, {}
        return match, child


class PageRouter(APIRouter):
    """Pages that share their paths with the API, which describes them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=HtmlRoute, include_in_schema=False, **options)
