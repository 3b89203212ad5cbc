"""The home page, the about page and the style guide."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response, status
from fastapi.responses import RedirectResponse

from coterie.characters import Workspaces
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.home.overview import InboxDep, RecentActivityDep
from coterie.surfaces.web.shared.access import CurrentPerson
from coterie.surfaces.web.shared.dependencies import CharactersDep, Summary, VisitsDep, WorkspacesDep
from coterie.surfaces.web.shared.labels import reply_error
from coterie.surfaces.web.shared.prose import clean_line
from coterie.surfaces.web.shared.templates import page_response
from coterie.surfaces.web.story.live import Swipes, TurnView

router = APIRouter(include_in_schema=False)
_FACES = 12


@dataclass(frozen=True)
class CharacterLink:
    id: str
    name: str
    portrait: str


@router.head("/")
@router.get("/")
async def home(
    characters: CharactersDep,
    visits: VisitsDep,
    workspaces: WorkspacesDep,
    inbox: InboxDep,
    recent: RecentActivityDep,
    request: Request,
    who: CurrentPerson,
) -> Response:
    """A new owner is sent to the profile first, then to the first character."""
    if not characters.has_owner_profile():
        return RedirectResponse("/settings", status.HTTP_303_SEE_OTHER)
    known = characters.all()
    if not known:
        return RedirectResponse("/characters/new", status.HTTP_303_SEE_OTHER)
    since = visits.previous_visit_end(who.id)
    return page_response(
        request,
        "home/home.html",
        you=clean_line(who.name),
        since=since,
        inbox=await inbox.items(who, since),
        modes=await recent.modes(),
        faces=[_character_link(workspaces, character.id, character.name) for character in known[:_FACES]],
        others=max(0, len(known) - _FACES),
    )


def _character_link(workspaces: Workspaces, character_id: str, name: str) -> CharacterLink:
    return CharacterLink(character_id, clean_line(name), portrait_url(workspaces, character_id))


# Sample data for the style guide: every state of a component once.


_OPENING = (
    "*The lamp turns once, and the rain shows for a moment like a curtain of wire.*\n\n"
    '"You came up all those stairs without a light," Maren says. "That was brave, or it was foolish."\n\n'
    "> The sea keeps no diary. That is what the keeper is for."
)


def styleguide_samples() -> dict[str, Any]:
    turns = [
        TurnView(
            "sample-1",
            1,
            "Maren",
            _OPENING,
            by_person=False,
            state="done",
            swipes=Swipes(("a", "sample-1"), "sample-1"),
        ),
        TurnView(
            "sample-2",
            2,
            "You",
            '*shakes off the rain* "A bit of both." ((keep it slow))',
            by_person=True,
            state="done",
        ),
        TurnView("sample-3", 3, "Teodor", "He looks up from the", by_person=False, state="open"),
        TurnView(
            "sample-4",
            4,
            "Io",
            "Before the second bell",
            by_person=False,
            state="truncated",
            error=reply_error("The model is limiting how often it may be asked. Wait a little.", 429),
        ),
    ]
    return {
        "turns": turns,
        "moment": datetime(2026, 6, 1, 21, 40, tzinfo=UTC),
        "parts": [("identity", 820, "must"), ("last turns", 1900, "must"), ("edges", 310, "should"),
                  ("memories", 640, "should"), ("older dialogue", 1450, "nice")],
        "spend": [0.02, 0.05, 0.01, 0.0, 0.08, 0.11, 0.04, 0.06, 0.02, 0.09, 0.13, 0.07],
        "drift": [12, 14, 13, 18, 17, 21, 19, 24, 23, 22, 26],
        "changes": [(" ", "Keeps a lighthouse."), ("-", "Says little."), ("+", "Says little, and means it.")],
    }  # fmt: skip


# About and style guide


about_router = APIRouter(include_in_schema=False)


@about_router.head("/about")
@about_router.get("/about")
async def about(summary: Summary, request: Request) -> Response:
    vendored = tomllib.loads(files("coterie.surfaces.web").joinpath("vendor.toml").read_text(encoding="utf-8"))
    return page_response(request, "home/about.html", rows=summary(), vendored=vendored)


@about_router.get("/styleguide")
async def styleguide(request: Request) -> Response:
    return page_response(request, "home/styleguide.html", **styleguide_samples())
