"""Where a card's lore stands in a prompt: around the character's description, or deep in the dialogue. S9, S13

An entry says so itself, with its position and with decorators (`@@depth`, `@@role`, `@@position`). What it says takes
tokens like anything else, and goes when there is no room.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.cast.cards.lore_scan import Lore, Moment, Spot, find_lore
from coterie.engine.turns import Turn
from coterie.kernel import Store
from coterie.modes.story.budget import Tier
from coterie.modes.story.desk import DIALOGUE, Desk
from coterie.modes.story.segments import spoken

_GIVE_UP = 4


class LoreHere:
    """What comes up now, to be laid out place by place."""

    def __init__(self, told: Sequence[Lore] = ()) -> None:
        self._told = told

    @classmethod
    def find(cls, store: Store, desk: Desk, said: Sequence[Turn]) -> LoreHere:
        """`said` are the turns that will be told, oldest first."""
        if desk.bot.card is None or desk.bot.card.lorebook is None:
            return cls()
        replies = store.query(
            "SELECT count(*) FROM turn WHERE room = ? AND speaker = ?", (said[-1].room if said else "", desk.bot.id)
        )
        messages = [spoken(turn) for turn in said]
        moment = Moment(messages=messages, replies=int(replies[0][0]), macros=desk.macros)
        return cls(find_lore(desk.bot.card.lorebook, moment, desk.count).told)

    @property
    def replaces_instructions(self) -> bool:
        """Whether the card wants to be told without our own words on how to play: `@@disable_ui_prompt`."""
        return any(lore.entry.decorators.disable_ui_prompt == "system_prompt" for lore in self._told)

    def tell(self, desk: Desk, *spots: Spot) -> None:
        for lore in self._told:
            if lore.spot in spots:
                desk.put(desk.piece(_name(lore), _tier(lore), lore.text, give_up=_GIVE_UP))

    def tell_in_dialogue(self, desk: Desk, said: Sequence[Turn]) -> None:
        """So many messages from the newest, in the role the entry asks for."""
        for lore in self._told:
            if lore.spot == "at_depth":
                before = len(said) - lore.depth
                seq = said[before].seq - 0.5 if 0 <= before < len(said) else said[-1].seq + 0.5 if said else 0.0
                order = (DIALOGUE, seq)
                piece = desk.piece(_name(lore), _tier(lore), lore.text, role=lore.role, order=order, give_up=_GIVE_UP)
                desk.put(piece)


def _name(lore: Lore) -> str:
    return f"lore {lore.entry.name or lore.entry.index}"


def _tier(lore: Lore) -> Tier:
    return "nice" if lore.entry.decorators.ignore_on_max_context else "should"
