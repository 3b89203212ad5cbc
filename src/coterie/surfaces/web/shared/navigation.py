"""The places of the house, in the order in which the rail, the palette and the shortcuts name them.

Every mode has its line here. The rail shows the places that have a page, so that a mode appears when its router does.
A phone has room for a few: the others are behind one button.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.routing import APIRoute

PHONE_ITEMS = 4


@dataclass(frozen=True)
class NavigationItem:
    path: str
    label: str
    icon: str
    key: str
    """`g`, then this key, goes there."""
    mode: bool = False
    """Whether one is with characters there; the rest of the house serves that."""


NAVIGATION_ITEMS = (
    NavigationItem("/chats", "Stories", "book-open", "c", mode=True),
    NavigationItem("/draft", "Drafts", "file-text", "d", mode=True),
    NavigationItem("/crowd", "Crowd", "radio", "w", mode=True),
    NavigationItem("/desk", "Desk", "lamp-desk", "t", mode=True),
    NavigationItem("/characters", "Characters", "users-round", "p"),
    NavigationItem("/memory", "Memory", "brain", "m"),
    NavigationItem("/ops", "System status", "activity", "o"),
    NavigationItem("/settings", "Settings", "settings", "s"),
)


def available_items(pages: Iterable[APIRouter]) -> tuple[NavigationItem, ...]:
    """The places that these routers have a page for."""
    served = {route.path for router in pages for route in router.routes if isinstance(route, APIRoute)}
    return tuple(place for place in NAVIGATION_ITEMS if place.path in served)
