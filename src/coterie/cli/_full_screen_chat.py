"""The full-screen chat, with the house running in the same loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coterie.characters.service import OWNER
from coterie.modes.story import StoryConversation
from coterie.surfaces.terminal.chat import PastMessage, TerminalChat, TerminalConversation

if TYPE_CHECKING:
    from coterie.app import App
    from coterie.characters.service import Character

_SHOWN = 50


def run_full_screen(house: App, bot: Character, fresh: bool) -> None:
    asyncio.run(_talk(house, bot, fresh))


async def _talk(house: App, bot: Character, fresh: bool) -> None:
    async with house.running():
        await TerminalChat(await open_chat(house, bot, fresh)).run_async()


async def open_chat(house: App, bot: Character, fresh: bool) -> TerminalConversation:
    """The chat that was left last, or a new one."""
    story = house.story
    chats = [] if fresh else story.chats.chats(host=bot.id, person=OWNER)
    chat = chats[0] if chats else await story.begin(bot.id, (await story.propose_opening(bot.id)).opening)

    def history() -> list[PastMessage]:
        names = story.participants.names(chat)
        turns = story.timeline.latest(chat.room, _SHOWN)
        return [PastMessage(names.get(turn.speaker, turn.speaker), turn.text, turn.by_person) for turn in turns]

    conversation = StoryConversation(house.store, story, house.characters, house.feed)
    return TerminalConversation(conversation, chat.room, OWNER, bot.name, history)
