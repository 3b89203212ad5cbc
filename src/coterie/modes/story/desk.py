"""Where the pieces of a prompt are laid out, each counted, named, and with its macros read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coterie.cast.cards.macros import Macros
from coterie.cast.roster import Bot
from coterie.modes.story.budget import Piece, Role, Tier

SYSTEM, DIALOGUE = 0, 1
"""The two places a piece can stand in."""


class Desk:
    def __init__(self, count: Callable[[str], int], names: dict[str, str], bot: Bot, macros: Macros) -> None:
        self.count = count
        self.names = names
        self.bot = bot
        self.macros = macros
        self.pieces: list[Piece] = []
        self._names: dict[str, int] = {}

    def add(self, name: str, tier: Tier, text: str, *, give_up: int = 0, label: str = "") -> None:
        if text.strip() and (told := self.macros.expand(text)).strip():
            self.put(self.piece(name, tier, told, give_up=give_up, label=label))

    def put(self, piece: Piece) -> None:
        """Two pieces never share a name: two lore entries may."""
        times = self._names[piece.name] = self._names.get(piece.name, 0) + 1
        self.pieces.append(piece if times == 1 else replace(piece, name=f"{piece.name} ({times})"))

    def piece(
        self,
        name: str,
        tier: Tier,
        text: str,
        *,
        role: Role = "system",
        order: tuple[int, float] | None = None,
        give_up: int = 0,
        label: str = "",
        instead: Piece | None = None,
    ) -> Piece:
        place = order or (SYSTEM, len(self.pieces))
        return Piece(name, tier, role, text, self.count(text), place, give_up, label, instead)
