"""Pages about the house itself: what it is, how its parts look."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from coterie.surfaces.web.house import Here
from coterie.surfaces.web.paper import page_response
from coterie.surfaces.web.styleguide import styleguide_samples

about_router = APIRouter(include_in_schema=False)


@about_router.head("/about")
@about_router.get("/about")
async def about(house: Here, request: Request) -> Response:
    vendored = tomllib.loads(files("coterie.surfaces.web").joinpath("vendor.toml").read_text(encoding="utf-8"))
    return page_response(request, "about.html", rows=house.summary(), vendored=vendored)


@about_router.get("/styleguide")
async def styleguide(request: Request) -> Response:
    return page_response(request, "styleguide.html", **styleguide_samples())
