"""Character cards and lorebooks: pure code on bytes and documents, with no log and no model behind it."""

from coterie.cast.cards.card import Card, CardData, PromptParts
from coterie.cast.cards.exporter import Exported, export_card, format_of
from coterie.cast.cards.imported import Format, Imported
from coterie.cast.cards.importer import check_size, import_card
from coterie.cast.cards.lore_scan import Lore, LoreFound, Moment, find_lore
from coterie.cast.cards.lorebook import Entry, Lorebook
from coterie.cast.cards.macros import Macros
from coterie.cast.cards.tavern_chat import TavernChat, TavernTurn

__all__ = [
    "Card",
    "CardData",
    "Entry",
    "Exported",
    "Format",
    "Imported",
    "Lore",
    "LoreFound",
    "Lorebook",
    "Macros",
    "Moment",
    "PromptParts",
    "TavernChat",
    "TavernTurn",
    "check_size",
    "export_card",
    "find_lore",
    "format_of",
    "import_card",
]
