"""What an import gives: the card, the format it came in, and what was odd about the file."""

from __future__ import annotations

from typing import Literal, NamedTuple

from coterie.cast.cards.card import Card

CardFormat = Literal["json", "png", "charx"]


class ImportedCard(NamedTuple):
    card: Card
    format: CardFormat
    notes: list[str]
