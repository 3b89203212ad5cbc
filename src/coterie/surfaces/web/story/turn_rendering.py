"""A turn as a page shows it: names instead of ids, trouble in words, and the other replies there were."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from coterie.base.redaction import redact
from coterie.characters.service import OWNER
from coterie.conversation.errors import NoSuchTurn
from coterie.conversation.turns import State, Turn
from coterie.modes.story import Chat
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.shared.labels import ReplyError, reply_error
from coterie.surfaces.web.shared.prose import NOTE_MARKER, clean_line
from coterie.surfaces.web.shared.templates import render


@dataclass(frozen=True)
class Swipes:
    """Every reply to a message, oldest first, and which of them counts."""

    all: tuple[str, ...]
    chosen: str

    @property
    def at(self) -> int:
        return self.all.index(self.chosen) + 1

    @property
    def previous(self) -> str | None:
        return self.all[self.at - 2] if self.at > 1 else None

    @property
    def next(self) -> str | None:
        return self.all[self.at] if self.at < len(self.all) else None


@dataclass(frozen=True)
class TurnView:
    id: str
    seq: int
    name: str
    text: str
    by_person: bool
    state: State
    portrait: str = ""
    whispered_to: str = ""
    trouble: ReplyError | None = None
    swipes: Swipes | None = None
    marker: str = NOTE_MARKER

    def html(self) -> str:
        return _html(self)


@lru_cache(maxsize=4_096)
def _html(turn: TurnView) -> str:
    """Most turns never change again, and every tab and reload asks for the same ones."""
    return render("story/turn.html", turn=turn)


class TurnRenderer:
    """Turns of one chat, as they are shown."""

    def __init__(self, house: House, chat: Chat) -> None:
        self._house = house
        self._chat = chat
        self._portraits: dict[str, str] = {}
        self._names = {entity: clean_line(name) for entity, name in house.story.participants.names(chat).items()}

    def view(self, turn: Turn, text: str | None = None, swipes: Swipes | None = None) -> TurnView:
        return TurnView(
            id=turn.id,
            seq=turn.seq,
            name=self.name(turn.speaker),
            text=turn.text if text is None else text,
            by_person=turn.by_person,
            state=turn.state,
            portrait="" if turn.by_person else self._portrait(turn.speaker),
            whispered_to=", ".join(self.name(one) for one in turn.to if one not in (OWNER, turn.speaker)),
            trouble=reply_error(redact(turn.why), turn.status) if turn.state == "truncated" else None,
            swipes=swipes,
            marker=self._house.story.ooc_marker,
        )

    def _portrait(self, entity: str) -> str:
        if entity not in self._portraits:
            self._portraits[entity] = portrait_url(self._house, entity)
        return self._portraits[entity]

    def name(self, entity: str) -> str:
        if entity in self._names:
            return self._names[entity]
        # Somebody who left is still named where they spoke.
        bots = {bot.id: bot.name for bot in self._house.characters.all()}
        people = {person.id: person.name for person in self._house.people.all()}
        return clean_line({**people, **bots}.get(entity, "Somebody"))

    async def swipes(self, turn: Turn) -> Swipes | None:
        if turn.by_person or turn.state == "open":
            return None
        try:
            replies = tuple(one.reply for one in await self._house.story.alternatives(self._chat.room, turn.id))
        except NoSuchTurn:
            return None  # taken back since it was read
        return Swipes(replies, turn.id) if turn.id in replies else None
