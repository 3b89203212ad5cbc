"""The full-screen chat, with the house running in the same loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coterie.cast.roster import YOU
from coterie.modes.story import StoryConversation
from coterie.surfaces.terminal.chat import Line, Talking, TerminalChat

if TYPE_CHECKING:
    from coterie.app import App
    from coterie.cast.roster import Bot

_SHOWN = 50


def talk(house: App, bot: Bot, fresh: bool) -> None:
    asyncio.run(_talk(house, bot, fresh))


async def _talk(house: App, bot: Bot, fresh: bool) -> None:
    async with house.running():
        await TerminalChat(await talking_with(house, bot, fresh)).run_async()


async def talking_with(house: App, bot: Bot, fresh: bool) -> Talking:
    """The chat that was left last, or a new one."""
    story = house.story
    chats = [] if fresh else story.chats.chats(host=bot.id, person=YOU)
    chat = chats[0] if chats else await story.begin(bot.id, (await story.propose(bot.id)).opening)

    def history() -> list[Line]:
        names = story.prompter.names(chat)
        turns = story.timeline.latest(chat.room, _SHOWN)
        return [Line(names.get(turn.speaker, turn.speaker), turn.text, turn.by_person) for turn in turns]

    conversation = StoryConversation(house.store, story, house.roster, house.feed)
    return Talking(conversation, chat.room, YOU, bot.name, history)
