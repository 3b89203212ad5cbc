"""Where a card's lore stands in a prompt: around the character's description, or deep in the dialogue. S9, S13

An entry says so itself, with its position and with decorators (`@@depth`, `@@role`, `@@position`). What it says takes
tokens like anything else, and goes when there is no room.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.cast.cards.lore_scan import LoreContext, LoreMatch, LorePosition, find_lore
from coterie.engine.turns import Turn
from coterie.kernel import Store
from coterie.modes.story.budget import Tier
from coterie.modes.story.desk import DIALOGUE, PromptDraft
from coterie.modes.story.segments import turn_text

_LORE_DROP_ORDER = 4


class ActiveLore:
    """What comes up now, to be laid out place by place."""

    def __init__(self, told: Sequence[LoreMatch] = ()) -> None:
        self._entries = told

    @classmethod
    def find(cls, store: Store, desk: PromptDraft, said: Sequence[Turn]) -> ActiveLore:
        """`said` are the turns that will be told, oldest first."""
        if desk.character.card is None or desk.character.card.lorebook is None:
            return cls()
        replies = store.query(
            "SELECT count(*) FROM turn WHERE room = ? AND speaker = ?",
            (said[-1].room if said else "", desk.character.id),
        )
        messages = [turn_text(turn) for turn in said]
        moment = LoreContext(messages=messages, replies=int(replies[0][0]), macros=desk.macros)
        return cls(find_lore(desk.character.card.lorebook, moment, desk.count_tokens).included)

    @property
    def replaces_instructions(self) -> bool:
        """Whether the card wants to be told without our own words on how to play: `@@disable_ui_prompt`."""
        return any(lore.entry.decorators.disable_ui_prompt == "system_prompt" for lore in self._entries)

    def add_to(self, desk: PromptDraft, *spots: LorePosition) -> None:
        for lore in self._entries:
            if lore.position in spots:
                desk.append(desk.part(_lore_name(lore), _lore_tier(lore), lore.text, drop_order=_LORE_DROP_ORDER))

    def add_to_dialogue(self, desk: PromptDraft, said: Sequence[Turn]) -> None:
        """So many messages from the newest, in the role the entry asks for."""
        for lore in self._entries:
            if lore.position == "at_depth":
                before = len(said) - lore.depth
                seq = said[before].seq - 0.5 if 0 <= before < len(said) else said[-1].seq + 0.5 if said else 0.0
                order = (DIALOGUE, seq)
                piece = desk.part(
                    _lore_name(lore),
                    _lore_tier(lore),
                    lore.text,
                    role=lore.role,
                    order=order,
                    drop_order=_LORE_DROP_ORDER,
                )
                desk.append(piece)


def _lore_name(lore: LoreMatch) -> str:
    return f"lore {lore.entry.name or lore.entry.index}"


def _lore_tier(lore: LoreMatch) -> Tier:
    return "nice" if lore.entry.decorators.ignore_on_max_context else "should"
