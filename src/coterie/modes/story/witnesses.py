"""Who saw what: the one place that says which turns somebody in a chat may know of. S4, M2

A turn notes who was there. One that does not (it was imported) was seen by the host, and by guests who had joined. A
character whose life started over knows nothing of what came before, even if it is invited again.
"""

from __future__ import annotations

from collections.abc import Callable

from coterie.cast.roster import Characters
from coterie.engine.turns import Turn
from coterie.modes.story.chats import Chat

TurnFilter = Callable[[Turn], bool]


class Witnesses:
    def __init__(self, roster: Characters) -> None:
        self._roster = roster

    def turns_seen_by(self, chat: Chat, entity: str) -> TurnFilter:
        """Whether somebody saw a turn."""
        if entity == chat.person:
            return lambda turn: True  # whose chat it is reads everything
        started_over = self._roster.reset_at(entity)
        since = chat.joined_seq(entity)

        def saw(turn: Turn) -> bool:
            if not turn.heard_by(entity) or not (turn.present or turn.seq > since):
                return False
            return started_over is None or turn.at > started_over

        return saw

    def of_turns(self, chat: Chat, *turns: Turn) -> list[str]:
        """Everybody who saw all of these, also who has left since: people first."""
        there = dict.fromkeys(chat.participants)
        for turn in turns:
            there |= dict.fromkeys(turn.present)
        seen = {entity: self.turns_seen_by(chat, entity) for entity in there}
        return [entity for entity, saw in seen.items() if all(map(saw, turns))]
