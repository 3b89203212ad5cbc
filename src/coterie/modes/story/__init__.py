"""Story: one person and the characters they keep company with.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.story.character_archive import CharacterImporter, export_character, reassign_memories
from coterie.modes.story.chat_archive import ExportFormat, export_chat, import_tavern_chat
from coterie.modes.story.chat_details import ChatDetails, chat_details
from coterie.modes.story.conversation import StoryConversation
from coterie.modes.story.edits import EDITABLE_FIELDS, FieldEdit
from coterie.modes.story.errors import BadEdit
from coterie.modes.story.events import SentPromptPart
from coterie.modes.story.opening import Opening, OpeningProposal
from coterie.modes.story.queries import Chat, InspectedPrompt, PromptQueries, ReadMarks
from coterie.modes.story.rewind import ChatRewindImpact
from coterie.modes.story.search import SearchHit, search_chats
from coterie.modes.story.service import StoryService
from coterie.modes.story.turns import StartedTurn

__all__ = [
    "EDITABLE_FIELDS",
    "BadEdit",
    "CharacterImporter",
    "Chat",
    "ChatDetails",
    "ChatRewindImpact",
    "ExportFormat",
    "FieldEdit",
    "InspectedPrompt",
    "Opening",
    "OpeningProposal",
    "PromptQueries",
    "ReadMarks",
    "SearchHit",
    "SentPromptPart",
    "StartedTurn",
    "StoryConversation",
    "StoryService",
    "chat_details",
    "export_character",
    "export_chat",
    "import_tavern_chat",
    "reassign_memories",
    "search_chats",
]
