"""Character cards and lorebooks: reading, writing, macros and the search for lore, without a store or a model."""

from coterie.characters.cards.card import Card, CardData, CardFormat, ImportedCard, PromptParts
from coterie.characters.cards.import_export import ExportedCard, check_size, export_card, format_of, import_card
from coterie.characters.cards.lore_scan import LoreContext, LoreMatch, LoreResult, Macros, find_lore, find_lore_in
from coterie.characters.cards.lorebook import Lorebook, LorebookEntry
from coterie.characters.cards.tavern_chat import TavernChat, TavernTurn

__all__ = [
    "Card",
    "CardData",
    "CardFormat",
    "ExportedCard",
    "ImportedCard",
    "LoreContext",
    "LoreMatch",
    "LoreResult",
    "Lorebook",
    "LorebookEntry",
    "Macros",
    "PromptParts",
    "TavernChat",
    "TavernTurn",
    "check_size",
    "export_card",
    "find_lore",
    "find_lore_in",
    "format_of",
    "import_card",
]
