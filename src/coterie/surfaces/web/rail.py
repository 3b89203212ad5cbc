"""The places of the house, in the order in which the rail, the palette and the shortcuts name them.

Every mode has its line here. The rail shows the places that have a page, so that a mode appears when its router does.
A phone has room for a few: the others are behind one button.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.routing import APIRoute

ON_A_PHONE = 4


@dataclass(frozen=True)
class Place:
    path: str
    label: str
    icon: str
    key: str
    """`g`, then this key, goes there."""
    mode: bool = False
    """Whether one is with characters there; the rest of the house serves that."""


PLACES = (
    Place("/chats", "Stories", "book-open", "c", mode=True),
    Place("/draft", "Drafts", "file-text", "d", mode=True),
    Place("/crowd", "Crowd", "radio", "w", mode=True),
    Place("/desk", "Desk", "lamp-desk", "t", mode=True),
    Place("/bots", "Characters", "users-round", "p"),
    Place("/memory", "Memory", "brain", "m"),
    Place("/ops", "Workshop", "activity", "o"),
    Place("/settings", "Settings", "settings", "s"),
)


def rail(pages: Iterable[APIRouter]) -> tuple[Place, ...]:
    """The places that these routers have a page for."""
    served = {route.path for router in pages for route in router.routes if isinstance(route, APIRoute)}
    return tuple(place for place in PLACES if place.path in served)
