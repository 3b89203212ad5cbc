"""Story mode: chats of people with characters that remember. Surfaces use only what is exported here."""

from coterie.modes.story.archive import (
    CharacterImporter,
    ExportFormat,
    export_character,
    export_chat,
    import_tavern_chat,
    reassign_memories,
)
from coterie.modes.story.conversation import StoryConversation
from coterie.modes.story.edits import EDITABLE_FIELDS, BadEdit, ChatDetails, FieldEdit
from coterie.modes.story.events import SentPromptPart
from coterie.modes.story.opening import Opening, OpeningProposal
from coterie.modes.story.queries import Chat, ChatSearchHit, InspectedPrompt, PromptQueries, ReadMarks
from coterie.modes.story.rewind import ChatRewindImpact
from coterie.modes.story.service import StoryService
from coterie.modes.story.turns import StartedTurn

__all__ = [
    "EDITABLE_FIELDS",
    "BadEdit",
    "CharacterImporter",
    "Chat",
    "ChatDetails",
    "ChatRewindImpact",
    "ChatSearchHit",
    "ExportFormat",
    "FieldEdit",
    "InspectedPrompt",
    "Opening",
    "OpeningProposal",
    "PromptQueries",
    "ReadMarks",
    "SentPromptPart",
    "StartedTurn",
    "StoryConversation",
    "StoryService",
    "export_character",
    "export_chat",
    "import_tavern_chat",
    "reassign_memories",
]
