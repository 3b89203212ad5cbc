"""Story: one person and the characters they keep company with.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.story.arriving import CharacterImporter
from coterie.modes.story.chats import Chat
from coterie.modes.story.conversation import StoryConversation
from coterie.modes.story.drawer import ChatDetails, chat_details
from coterie.modes.story.editing import EDITABLE_FIELDS, FieldEdit
from coterie.modes.story.errors import BadEdit
from coterie.modes.story.events import SentPromptPart
from coterie.modes.story.exporting import ExportFormat, export_chat
from coterie.modes.story.impact import ChatRewindImpact, describe_impact
from coterie.modes.story.importing import import_tavern_chat
from coterie.modes.story.kickoff import Opening, OpeningProposal
from coterie.modes.story.luggage import export_character, reassign_memories
from coterie.modes.story.prompts import InspectedPrompt, PromptQueries
from coterie.modes.story.reading import ReadMarks
from coterie.modes.story.searching import SearchHit, search_chats
from coterie.modes.story.story import StartedTurn, StoryService

__all__ = [
    "EDITABLE_FIELDS",
    "CharacterImporter",
    "BadEdit",
    "StartedTurn",
    "ReadMarks",
    "Chat",
    "ChatDetails",
    "FieldEdit",
    "ExportFormat",
    "SearchHit",
    "InspectedPrompt",
    "Opening",
    "SentPromptPart",
    "PromptQueries",
    "OpeningProposal",
    "ChatRewindImpact",
    "StoryService",
    "StoryConversation",
    "reassign_memories",
    "export_chat",
    "import_tavern_chat",
    "chat_details",
    "export_character",
    "search_chats",
    "describe_impact",
]
