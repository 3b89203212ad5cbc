"""Character cards and lorebooks: pure code on bytes and documents, with no log and no model behind it."""

from coterie.cast.cards.card import Card, CardData, PromptParts
from coterie.cast.cards.exporter import ExportedCard, export_card, format_of
from coterie.cast.cards.imported import CardFormat, ImportedCard
from coterie.cast.cards.importer import check_size, import_card
from coterie.cast.cards.lore_scan import LoreContext, LoreMatch, LoreResult, find_lore
from coterie.cast.cards.lorebook import Lorebook, LorebookEntry
from coterie.cast.cards.macros import Macros
from coterie.cast.cards.tavern_chat import TavernChat, TavernTurn

__all__ = [
    "Card",
    "CardData",
    "LorebookEntry",
    "ExportedCard",
    "CardFormat",
    "ImportedCard",
    "LoreMatch",
    "LoreResult",
    "Lorebook",
    "Macros",
    "LoreContext",
    "PromptParts",
    "TavernChat",
    "TavernTurn",
    "check_size",
    "export_card",
    "find_lore",
    "format_of",
    "import_card",
]
