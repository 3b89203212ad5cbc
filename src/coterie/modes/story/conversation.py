"""A story held in a room of any surface. P2

A chat is somebody's, and theirs alone until they let others in. Everybody in it is known by name: what is said is
remembered with who was there, and told to nobody who was not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.characters.service import OWNER, Characters
from coterie.conversation.errors import Busy, PermissionDenied
from coterie.conversation.events import AssistantTurn
from coterie.conversation.feed import Feed, FeedSubscription
from coterie.conversation.replies import LiveText
from coterie.conversation.turns import Turn
from coterie.eventstore import NewEvent, Store
from coterie.messaging.ports import ChatStatus, NewChat, ReplyFinished, ReplyText, ReplyUpdate
from coterie.messaging.protocol import Attachment
from coterie.modes.story.events import ManualEdit
from coterie.modes.story.opening import Opening
from coterie.modes.story.service import StoryService
from coterie.modes.story.turns import StartedTurn

_OPENING_S = 4.0
"""A person who wrote the first word should not wait longer for the scene to be set."""
_TRIES = 5
_log = get_logger(__name__)


class StoryConversation:
    mode = "story"

    def __init__(self, store: Store, story: StoryService, roster: Characters, feed: Feed) -> None:
        self._store = store
        self._story = story
        self._roster = roster
        self._feed = feed

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        bot, room = self._roster.get(character), f"room:{new_id()}"
        opening = self._plain_opening(character) if at_once else await self._opening(character, person)
        if title:
            opening = opening.model_copy(update={"title": title})
        drafts = self._story.opening_events(room, bot, opening, person)
        greeting = next((d.payload.text for d in drafts if isinstance(d.payload, AssistantTurn)), "")
        return NewChat(room, drafts, greeting)

    async def add_person(self, context: str, person: str) -> None:
        await self._story.add_person(context, person)

    async def remove_person(self, context: str, person: str) -> None:
        await self._story.remove_person(context, person)

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[ReplyUpdate]:
        self._check(context, person)
        told = "\n".join([text, *map(_handed_over, attachments)]).strip()
        async for speech in self._turn(context, lambda: self._story.say(context, told, key=key, author=person)):
            yield speech

    async def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        self._check(context, person)
        async for speech in self._turn(context, lambda: self._story.regenerate(context)):
            yield speech

    async def stop(self, context: str) -> bool:
        return await self._story.stop(context)

    def status(self, context: str) -> ChatStatus:
        chat = self._story.chats.chat(context)
        host = self._roster.get(chat.host).name
        notes = [("time", f"{chat.clock:%A %H:%M}"), ("weather", chat.weather)]
        return ChatStatus(
            chat.title, host, self._story.timeline.count(context), tuple((name, it) for name, it in notes if it)
        )

    async def rename(self, context: str, title: str) -> None:
        prior = self._story.chats.chat(context).title
        await self._store.append([NewEvent(context, ManualEdit(what="title", value=title, prior=prior), OWNER)])

    async def _opening(self, character: str, person: str) -> Opening:
        try:
            async with asyncio.timeout(_OPENING_S):
                return (await self._story.propose_opening(character, person)).opening
        except TimeoutError:
            return self._plain_opening(character)

    def _plain_opening(self, character: str) -> Opening:
        bot = self._roster.get(character)
        greeting = bot.card.data.first_mes if bot.card else ""
        return Opening(greeting=greeting or bot.identity.kickoff)

    async def _turn(self, context: str, begin: Callable[[], Awaitable[StartedTurn]]) -> AsyncIterator[ReplyUpdate]:
        async with self._feed.follow(context) as following:
            begun = await self._begin(context, begin)
            if not begun.reply:
                return  # the message was taken back since
            turn = self._story.timeline.turn(context, begun.reply)
            if turn.state == "truncated" and turn.why in ("restart", "stopped"):
                # We were interrupted while answering, and nobody has seen it: it is answered now.
                begun = await self._begin(context, lambda: self._story.regenerate(context))
                turn = self._story.timeline.turn(context, begun.reply)
            if turn.state == "open":
                async for words in _heard(following, begun.reply):
                    yield words
                turn = self._story.timeline.turn(context, begun.reply)
            yield self._spoken(turn)

    async def _begin(self, context: str, begin: Callable[[], Awaitable[StartedTurn]]) -> StartedTurn:
        """Somebody may be speaking, asked from another window: then it is our turn after them."""
        for _ in range(_TRIES):
            try:
                return await begin()
            except Busy:
                await self._story.replies.wait(context)
        return await begin()

    def _check(self, context: str, person: str) -> None:
        if person not in self._story.chats.chat(context).people:
            raise PermissionDenied("This story is somebody else's.", "Begin one of your own, or ask to be let in.")

    def _spoken(self, turn: Turn) -> ReplyFinished:
        name = self._roster.get(turn.speaker).name
        own_end = turn.state != "truncated" or turn.why in ("stopped", "length")
        return ReplyFinished(turn.text, name, "" if own_end else turn.why)


async def _heard(following: FeedSubscription, reply: str) -> AsyncIterator[ReplyText]:
    async for news in following:
        if isinstance(news, LiveText):
            if news.reply == reply:
                yield ReplyText(news.text)
        elif isinstance(news.payload, AssistantTurn) and news.payload.reply == reply:
            return


def _handed_over(file: Attachment) -> str:
    name = " ".join(file.name.replace("*", " ").split())[:100]
    return f"*hands over a file: {name} ({file.path})*"
