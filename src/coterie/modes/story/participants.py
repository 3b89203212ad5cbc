"""The participants of a chat: their names, which turns each of them witnessed, and who speaks next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from coterie.characters.people import PeopleQueries
from coterie.characters.service import OWNER, Characters, OwnerProfile
from coterie.conversation.turns import Turn
from coterie.eventstore import Store
from coterie.modes.story.events import Activity
from coterie.modes.story.queries import Chat, ChatQueries

TurnFilter = Callable[[Turn], bool]

_TALKATIVE = re.compile(r"talkative|chatty|outgoing|garrulous|lively|eager|loud", re.IGNORECASE)
_QUIET = re.compile(r"quiet|silent|shy|taciturn|reserved|laconic|withdrawn", re.IGNORECASE)
_LAST_SPEAKER_PENALTY = 0.5


class Participants:
    """Names of people and characters, and the single rule that decides which turns somebody may know of.

    A turn records who was present. An imported turn does not: it counts as witnessed by the host and by guests who had
    joined by then. A character that was reset knows nothing from before the reset, even if it is invited again.
    """

    def __init__(self, store: Store, roster: Characters) -> None:
        self._roster = roster
        self._chats = ChatQueries(store)
        self._people = PeopleQueries(store)

    def names(self, chat: Chat) -> dict[str, str]:
        """The name of everybody present, by id: people first, then characters."""
        characters = {one: self._roster.get(one, chat.version_of(one)).name for one in chat.characters}
        return {**{person: self.person(person).name for person in chat.people}, **characters}

    def name(self, names: Mapping[str, str], entity: str) -> str:
        """The name of somebody who may have left; `names` are those present."""
        if entity in names:
            return names[entity]
        return self.person(entity).name if entity in self._chats.people() else self._roster.get(entity).name

    def person(self, person: str) -> OwnerProfile:
        """A person as characters know them: the owner's profile, or only the name of anybody else."""
        return self._roster.owner() if person == OWNER else OwnerProfile(name=self._people.person(person).name)

    def everyone(self) -> frozenset[str]:
        """The ids of all people, including those who only talk in other modes."""
        return self._chats.people() | self._people.ids()

    def turns_seen_by(self, chat: Chat, entity: str) -> TurnFilter:
        """A predicate: did this person or character witness a turn?"""
        if entity == chat.person:
            return lambda turn: True  # the person whose chat it is reads everything
        reset_at = self._roster.reset_at(entity)
        joined = chat.joined_seq(entity)

        def seen(turn: Turn) -> bool:
            if not turn.heard_by(entity) or not (turn.present or turn.seq > joined):
                return False
            return reset_at is None or turn.at > reset_at

        return seen

    def witnesses(self, chat: Chat, *turns: Turn) -> list[str]:
        """Everybody who witnessed all of these turns, including those who left since; people first."""
        candidates = dict.fromkeys(chat.participants)
        for turn in turns:
            candidates |= dict.fromkeys(turn.present)
        return [entity for entity in candidates if all(map(self.turns_seen_by(chat, entity), turns))]


def next_speaker(
    text: str,
    characters: Sequence[str],
    names: Mapping[str, str],
    traits: Mapping[str, Sequence[str]],
    activities: Mapping[str, Activity],
    last_speaker: str | None,
) -> str:
    """Who replies: the first character addressed by name, else the one most inclined to talk.

    The host comes first in `characters` and wins a tie.
    """
    addressed = [character for character in characters if _first_mention(names[character], text) < len(text)]
    if addressed:
        return min(addressed, key=lambda character: _first_mention(names[character], text))

    def inclination(character: str) -> tuple[float, int]:
        described = " ".join(traits.get(character, ()))
        score: float = bool(_TALKATIVE.search(described)) - bool(_QUIET.search(described))
        activity = activities.get(character, Activity())
        score += "you" in activity.attention.lower()
        score -= {"low": 0, "medium": 1, "high": 2}[activity.action.attention]
        score -= _LAST_SPEAKER_PENALTY * (character == last_speaker)
        return score, -characters.index(character)

    return max(characters, key=inclination)


def _first_mention(name: str, text: str) -> int:
    """Where a name, or its first word, occurs; the length of the text if nowhere."""
    first = name.split()[0] if name.split() else name
    found = re.search(rf"(?<!\w)(?:{re.escape(name)}|{re.escape(first)})(?!\w)", text, re.IGNORECASE)
    return found.start() if found else len(text)
