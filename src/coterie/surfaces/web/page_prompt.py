"""The prompt inspector: exactly what a model was told for a reply, what was left out, and why. S13, S16

Secrets are masked in it, as everywhere. S29
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from coterie.engine.errors import NoSuchTurn
from coterie.modes.story import Chat, PromptQueries
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.negotiation import PageRouter
from coterie.surfaces.web.paper import page_response
from coterie.surfaces.web.shapes import PromptPartResponse, PromptResponse
from coterie.surfaces.web.typeset import excerpt, show_invisible

prompt_pages = PageRouter(prefix="/chats")
_TIERS = {"must": "Always there", "should": "There if it fits", "nice": "There while there is room"}


@dataclass(frozen=True)
class PromptSlice:
    """Parts of one sort: `memory abc` and `memory def` are both memories."""

    label: str
    tokens: int
    tier: str


@prompt_pages.get("/{chat}/prompt/{reply}")
async def inspect(house: Here, request: Request, chat: str, reply: str) -> Response:
    found = house.story.chats.chat(f"room:{chat}")
    told = PromptResponse.of(PromptQueries(house.store).inspect(found.room, reply))
    names = house.story.participants.names(found)
    turn = house.story.timeline.turn(found.room, reply)
    labels = _Labels(house, found, names)
    parts = [part.model_copy(update={"name": show_invisible(labels.of(part.name))}) for part in told.parts]
    return page_response(
        request,
        "prompt.html",
        chat=found,
        told=told,
        parts=parts,
        slices=_slices(parts),
        tiers=_TIERS,
        speaker=house.story.participants.name(names, turn.speaker),
        turn=turn,
        said=excerpt(turn.text, 160).strip('"“”'),
        most=max((abs(v) for why in told.why for name, v in why.parts.items() if name != "start"), default=1.0) or 1.0,
    )


class _Labels:
    """What a person would call a part: a speaker's name for the id of a turn, a character's for its own."""

    def __init__(self, house: House, chat: Chat, names: dict[str, str]) -> None:
        self._house = house
        self._chat = chat
        self._names = names

    def of(self, name: str) -> str:
        first, _, rest = name.partition(" ")
        if first == "turn" and rest:
            return f"turn · {self._speaker(rest)}"
        if first in ("memory", "pinned") and rest:
            return "memory" if first == "memory" else "pinned memory"
        return " ".join(self._names.get(word, word) for word in name.split())

    def _speaker(self, turn: str) -> str:
        try:
            found = self._house.story.timeline.turn(self._chat.room, turn)
        except NoSuchTurn:
            return "taken back since"
        return self._house.story.participants.name(self._names, found.speaker)


def _slices(parts: list[PromptPartResponse]) -> list[PromptSlice]:
    found: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (_sort(part.name), part.tier)
        found[key] = found.get(key, 0) + part.tokens
    order = list(_TIERS)
    made = [PromptSlice(label, tokens, tier) for (label, tier), tokens in found.items()]
    return sorted(made, key=lambda one: order.index(one.tier))


def _sort(label: str) -> str:
    """Turns together, and what is only numbered: `voice 1` and `voice 2` are both voice."""
    return "turns" if label.startswith("turn ·") else label.rstrip("0123456789 ")
