"""Who speaks next among several: whoever is addressed, then whoever attends and likes to talk. S6"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from coterie.characters.service import Characters
from coterie.conversation.turns import Turn
from coterie.modes.story.events import Activity
from coterie.modes.story.queries import Chat

_CHATTY = re.compile(r"talkative|chatty|outgoing|garrulous|lively|eager|loud", re.IGNORECASE)
_QUIET = re.compile(r"quiet|silent|shy|taciturn|reserved|laconic|withdrawn", re.IGNORECASE)


def next_speaker(
    text: str,
    characters: Sequence[str],
    names: Mapping[str, str],
    traits: Mapping[str, Sequence[str]],
    activities: Mapping[str, Activity],
    last_speaker: str | None,
) -> str:
    """The host is first among `characters`, and speaks when nothing speaks for somebody else."""
    addressed = [bot for bot in characters if _is_named(names[bot], text)]
    if addressed:
        return min(addressed, key=lambda bot: _first_mention(names[bot], text))
    if len(characters) == 1:
        return characters[0]

    def inclination(bot: str) -> tuple[float, int]:
        told = " ".join(traits.get(bot, ()))
        score: float = bool(_CHATTY.search(told)) - bool(_QUIET.search(told))
        activity = activities.get(bot, Activity())
        score += "you" in activity.attention.lower() or activity.attention == "you"
        score -= {"low": 0, "medium": 1, "high": 2}[activity.action.attention]
        score -= 0.5 * (bot == last_speaker)  # let others have a word
        return score, -characters.index(bot)

    return max(characters, key=inclination)


def _is_named(name: str, text: str) -> bool:
    return _first_mention(name, text) < len(text)


def _first_mention(name: str, text: str) -> int:
    first = name.split()[0] if name.split() else name
    found = re.search(rf"(?<!\w)(?:{re.escape(name)}|{re.escape(first)})(?!\w)", text, re.IGNORECASE)
    return found.start() if found else len(text)


# Who saw what: the one place that says which turns somebody in a chat may know of. S4, M2
#
# A turn notes who was there. One that does not (it was imported) was seen by the host, and by guests who had joined. A
# character whose life started over knows nothing of what came before, even if it is invited again.


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
