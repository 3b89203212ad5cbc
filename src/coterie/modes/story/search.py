"""Looking for something that was said, in every chat at once. S17"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from coterie.conversation import search as engine_search
from coterie.conversation.errors import NoSuchRoom
from coterie.eventstore import Store
from coterie.modes.story.service import StoryService


class SnippetPart(BaseModel):
    model_config = ConfigDict(frozen=True)

    text: str
    hit: bool


class SearchHit(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    chat: str
    title: str
    turn: str
    seq: int
    """`before=seq+1` of the turns begins there."""
    name: str
    """Who said it."""
    by_person: bool
    at: datetime
    snippet: list[SnippetPart]
    """Plain text in pieces; what was looked for is a `hit`."""


def search_chats(
    story: StoryService, store: Store, question: str, *, room: str | None = None, limit: int = 50, offset: int = 0
) -> list[SearchHit]:
    found: list[SearchHit] = []
    for one in engine_search.search(store, question, room=room, limit=limit, offset=offset):
        try:
            chat = story.chats.chat(one.room)
        except NoSuchRoom:
            continue  # a room of another mode
        turn = story.timeline.turn(one.room, one.turn)
        name = story.participants.name(story.participants.names(chat), turn.speaker)
        pieces = [SnippetPart(text=stretch.text, hit=stretch.hit) for stretch in one.snippet]
        found.append(
            SearchHit(
                chat=chat.id,
                title=chat.title,
                turn=turn.id,
                seq=turn.seq,
                name=name,
                by_person=turn.by_person,
                at=turn.shown_at,
                snippet=pieces,
            )
        )
    return found
