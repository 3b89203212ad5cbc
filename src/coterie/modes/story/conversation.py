"""The messaging port of the story mode: a chat in a room of any surface, open only to the people in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from coterie.base.ids import new_id
from coterie.characters import OWNER, Characters
from coterie.conversation import AssistantTurn, Busy, Feed, PermissionDenied
from coterie.eventstore import NewEvent, Store
from coterie.messaging import Attachment, ChatStatus, NewChat, ReplyDelta, ReplyFinished, ReplyUpdate, with_quote
from coterie.modes.story.events import ManualEdit
from coterie.modes.story.opening import Opening
from coterie.modes.story.service import StoryService
from coterie.modes.story.turns import StartedTurn

_OPENING_TIMEOUT_S = 4.0
"""How long a person who wrote first waits for the opening to be proposed."""
_MAX_ATTEMPTS = 5


class StoryConversation:
    mode = "story"

    def __init__(self, store: Store, story: StoryService, characters: Characters, feed: Feed) -> None:
        self._store = store
        self._story = story
        self._characters = characters
        self._feed = feed

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        room = f"room:{new_id()}"
        opening = self._plain_opening(character) if at_once else await self._opening(character, person)
        if title:
            opening = opening.model_copy(update={"title": title})
        new_events = self._story.opening_events(room, self._characters.get(character), opening, person)
        greeting = next((event.payload.text for event in new_events if isinstance(event.payload, AssistantTurn)), "")
        return NewChat(room, new_events, greeting)

    async def add_person(self, context: str, person: str) -> None:
        await self._story.add_person(context, person)

    async def remove_person(self, context: str, person: str) -> None:
        await self._story.remove_person(context, person)

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = (), quote: str = ""
    ) -> AsyncIterator[ReplyUpdate]:
        self._require_member(context, person)
        host = self._story.chats.chat(context).host
        pictures, others = await asyncio.to_thread(self._story.pictures.take, host, attachments)
        message = "\n".join([with_quote(text, quote), *map(_attachment_text, others)]).strip()
        begin = partial(
            self._story.send_message, context, message, key=key, author=person, everyone=False, pictures=pictures
        )
        async for update in self._turn(context, begin):
            yield update

    async def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        self._require_member(context, person)
        async for update in self._turn(context, partial(self._story.regenerate, context)):
            yield update

    async def stop(self, context: str) -> bool:
        return await self._story.stop(context)

    def status(self, context: str) -> ChatStatus:
        chat = self._story.chats.chat(context)
        host = self._characters.get(chat.host).name
        notes = [("time", f"{chat.clock:%A %H:%M}"), ("weather", chat.weather)]
        return ChatStatus(
            chat.title, host, self._story.timeline.count(context), tuple((name, note) for name, note in notes if note)
        )

    async def rename(self, context: str, title: str) -> None:
        prior = self._story.chats.chat(context).title
        await self._store.append([NewEvent(context, ManualEdit(what="title", value=title, prior=prior), OWNER)])

    async def _opening(self, character: str, person: str) -> Opening:
        try:
            async with asyncio.timeout(_OPENING_TIMEOUT_S):
                return (await self._story.propose_opening(character, person)).opening
        except TimeoutError:
            return self._plain_opening(character)

    def _plain_opening(self, character_id: str) -> Opening:
        """An opening without a model: only the card's greeting or the kickoff prose."""
        character = self._characters.get(character_id)
        greeting = character.card.data.first_mes if character.card else ""
        return Opening(greeting=greeting or character.identity.kickoff)

    async def _turn(self, context: str, begin: Callable[[], Awaitable[StartedTurn]]) -> AsyncIterator[ReplyUpdate]:
        async with self._feed.follow(context) as subscription:
            started = await self._begin(context, begin)
            if not started.reply:
                return  # the message was rewound since
            turn = self._story.timeline.turn(context, started.reply)
            if turn.state == "truncated" and turn.why in ("restart", "stopped"):
                # The reply was interrupted before it was delivered.
                started = await self._begin(context, partial(self._story.regenerate, context))
                turn = self._story.timeline.turn(context, started.reply)
            if turn.state == "open":
                async for text in subscription.reply_text(started.reply):
                    yield ReplyDelta(text)
                turn = self._story.timeline.turn(context, started.reply)
            name = self._characters.get(turn.speaker).name
            complete = turn.state != "truncated" or turn.why in ("stopped", "length")
            yield ReplyFinished(turn.text, name, "" if complete else turn.why)

    async def _begin(self, context: str, begin: Callable[[], Awaitable[StartedTurn]]) -> StartedTurn:
        """Start a turn as soon as no other reply is running in the chat."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return await begin()
            except Busy:
                await self._story.replies.wait(context)
        return await begin()

    def _require_member(self, context: str, person: str) -> None:
        if person not in self._story.chats.chat(context).people:
            raise PermissionDenied("This story is somebody else's.", "Begin your own, or ask to be added.")


def _attachment_text(file: Attachment) -> str:
    name = " ".join(file.name.replace("*", " ").split())[:100]
    return f"*hands over a file: {name} ({file.path})*"
