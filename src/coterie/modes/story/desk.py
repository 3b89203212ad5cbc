"""Where the pieces of a prompt are laid out, each counted, named, and with its macros read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coterie.cast.cards.macros import Macros
from coterie.cast.roster import Character
from coterie.modes.story.budget import MessageRole, PromptPart, Tier

SYSTEM, DIALOGUE = 0, 1
"""The two places a piece can stand in."""


class PromptDraft:
    def __init__(self, count: Callable[[str], int], names: dict[str, str], bot: Character, macros: Macros) -> None:
        self.count_tokens = count
        self.names = names
        self.character = bot
        self.macros = macros
        self.parts: list[PromptPart] = []
        self._names: dict[str, int] = {}

    def add(self, name: str, tier: Tier, text: str, *, drop_order: int = 0, label: str = "") -> None:
        if text.strip() and (told := self.macros.expand(text)).strip():
            self.append(self.part(name, tier, told, drop_order=drop_order, label=label))

    def append(self, part: PromptPart) -> None:
        """Two pieces never share a name: two lore entries may."""
        times = self._names[part.name] = self._names.get(part.name, 0) + 1
        self.parts.append(part if times == 1 else replace(part, name=f"{part.name} ({times})"))

    def part(
        self,
        name: str,
        tier: Tier,
        text: str,
        *,
        role: MessageRole = "system",
        order: tuple[int, float] | None = None,
        drop_order: int = 0,
        label: str = "",
        replacement: PromptPart | None = None,
    ) -> PromptPart:
        place = order or (SYSTEM, len(self.parts))
        return PromptPart(name, tier, role, text, self.count_tokens(text), place, drop_order, label, replacement)
