"""The prompt inspector: exactly what a model was told for a reply, what was left out, and why. S13, S16

Secrets are masked in it, as everywhere. S29
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from coterie.modes.story import PromptBook
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.negotiation import Pages
from coterie.surfaces.web.paper import page
from coterie.surfaces.web.shapes import PartShape, PromptShape
from coterie.surfaces.web.typeset import inline

router = Pages(prefix="/chats")
_TIERS = {"must": "Always there", "should": "There if it fits", "nice": "There while there is room"}


@dataclass(frozen=True)
class Slice:
    """Parts of one sort: `memory abc` and `memory def` are both memories."""

    label: str
    tokens: int
    tier: str


@router.get("/{chat}/prompt/{reply}")
async def inspect(house: Here, request: Request, chat: str, reply: str) -> Response:
    found = house.story.chats.chat(f"room:{chat}")
    told = PromptShape.of(PromptBook(house.store).inspect(found.room, reply))
    names = house.story.prompter.names(found)
    turn = house.story.timeline.turn(found.room, reply)
    return page(
        request,
        "prompt.html",
        chat=found,
        told=told,
        slices=_slices(told.parts),
        tiers=_TIERS,
        speaker=house.story.prompter.name(names, turn.speaker),
        turn=turn,
        said=inline(turn.text, 200),
        most=max((value for why in told.why for value in why.parts.values()), default=1.0) or 1.0,
    )


def _slices(parts: list[PartShape]) -> list[Slice]:
    found: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (_sort(part.name), part.tier)
        found[key] = found.get(key, 0) + part.tokens
    order = list(_TIERS)
    made = [Slice(label, tokens, tier) for (label, tier), tokens in found.items()]
    return sorted(made, key=lambda one: order.index(one.tier))


def _sort(name: str) -> str:
    """The part's name without the id of what it is about."""
    first, _, rest = name.partition(" ")
    return first if any(c.isdigit() for c in rest) else name
