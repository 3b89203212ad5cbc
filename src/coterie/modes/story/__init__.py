"""Story: one person and the characters they keep company with.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.story.arriving import Arrivals
from coterie.modes.story.chats import Chat
from coterie.modes.story.conversation import StoryConversation
from coterie.modes.story.drawer import Drawer, open_drawer
from coterie.modes.story.editing import FIELDS, Edit
from coterie.modes.story.errors import BadEdit
from coterie.modes.story.events import Part
from coterie.modes.story.exporting import ExportFormat, export_chat
from coterie.modes.story.impact import RewindImpact, told
from coterie.modes.story.importing import import_tavern_chat
from coterie.modes.story.kickoff import Opening, Proposal
from coterie.modes.story.luggage import adopted, pack
from coterie.modes.story.prompts import Inspected, PromptBook
from coterie.modes.story.reading import Bookmarks
from coterie.modes.story.searching import Hit, search
from coterie.modes.story.story import Begun, Story

__all__ = [
    "FIELDS",
    "Arrivals",
    "BadEdit",
    "Begun",
    "Bookmarks",
    "Chat",
    "Drawer",
    "Edit",
    "ExportFormat",
    "Hit",
    "Inspected",
    "Opening",
    "Part",
    "PromptBook",
    "Proposal",
    "RewindImpact",
    "Story",
    "StoryConversation",
    "adopted",
    "export_chat",
    "import_tavern_chat",
    "open_drawer",
    "pack",
    "search",
    "told",
]
