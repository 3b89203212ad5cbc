"""The parts of a prompt, and which of them are left out to keep within the budget in tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from coterie.base.errors import CoterieError
from coterie.characters import Character, Macros
from coterie.conversation import Turn
from coterie.llm import IMAGE_TOKENS
from coterie.memory import MemoryRecord, RecalledMemory
from coterie.modes.story.events import Tier

MessageRole = Literal["system", "user", "assistant"]

SYSTEM, DIALOGUE = 0, 1
"""The two sections of a prompt: the system message, and the messages after it."""


class PromptTooLong(CoterieError):
    """The MUST parts of a prompt exceed the model's context."""


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt. `order` is its section and position; parts with a low `drop_order` are dropped first."""

    name: str
    tier: Tier
    role: MessageRole
    text: str
    tokens: int
    order: tuple[int, float]
    drop_order: int = 0
    label: str = ""
    """How an error message refers to it, if not by its name."""
    replacement: PromptPart | None = None
    """Added once this part is dropped; several parts may share one."""
    pictures: tuple[str, ...] = ()
    """The ids of pictures that the model gets with it."""


class PromptDraft:
    """The parts of a prompt for one character, with their tokens counted and their macros expanded."""

    def __init__(
        self,
        count_tokens: Callable[[str], int],
        names: dict[str, str],
        character: Character,
        macros: Macros,
        speaker_name: Callable[[Turn], str],
    ) -> None:
        self.count_tokens = count_tokens
        self.names = names
        self.character = character
        self.macros = macros
        self.speaker_name = speaker_name
        """The name of a turn's speaker."""
        self.parts: list[PromptPart] = []
        self._names: dict[str, int] = {}

    def add(self, name: str, tier: Tier, text: str, *, drop_order: int = 0, label: str = "") -> None:
        """Add a part to the system message, unless its text is empty."""
        if text.strip() and (expanded := self.macros.expand(text)).strip():
            self.append(self.part(name, tier, expanded, drop_order=drop_order, label=label))

    def append(self, part: PromptPart) -> None:
        """Add a part; a name that occurs again, such as that of a lore entry, gets a number."""
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
        pictures: tuple[str, ...] = (),
    ) -> PromptPart:
        order = order or (SYSTEM, len(self.parts))
        tokens = self.count_tokens(text) + IMAGE_TOKENS * len(pictures)
        return PromptPart(name, tier, role, text, tokens, order, drop_order, label, replacement, pictures)


@dataclass
class FittedPrompt:
    parts: list[PromptPart]
    tokens: int
    trimmed: list[str] = field(default_factory=list)


def fit_to_budget(parts: Sequence[PromptPart], *, soft: int, hard: int) -> FittedPrompt:
    """Drop NICE parts, then SHOULD parts, until the budget holds. MUST parts are never dropped."""
    must = sum(part.tokens for part in parts if part.tier == "must")
    if must > hard:
        raise _too_long([part for part in parts if part.tier == "must"], must, hard)
    kept = {part.name: part for part in parts}
    total = sum(part.tokens for part in kept.values())
    trimmed: list[str] = []
    # If the MUST parts alone exceed the soft budget, SHOULD parts may use the tokens up to the hard one.
    budgets: tuple[tuple[Tier, int], ...] = (("nice", soft), ("should", soft if must <= soft else hard))
    for tier, budget in budgets:
        for part in sorted((p for p in kept.values() if p.tier == tier), key=lambda p: (p.drop_order, p.order)):
            if total <= budget:
                break
            del kept[part.name]
            total -= part.tokens
            replaced = ""
            if (replacement := part.replacement) is not None:
                replaced = f", {replacement.name} instead"
                if replacement.name not in kept:
                    kept[replacement.name] = replacement
                    total += replacement.tokens
            trimmed.append(f"{part.name} ({part.tokens} tokens): over the budget of {budget}{replaced}")
    return FittedPrompt(sorted(kept.values(), key=lambda part: part.order), total, trimmed)


def is_repeated(memory: MemoryRecord, shown: Mapping[str, str]) -> bool:
    """Whether shown turns (id → text in lower case) say what a memory of them says. One corrected by hand may not."""
    said = " ".join(shown[source] for source in memory.sources if source in shown)
    words = re.findall(r"\w{6,}", memory.text.casefold())
    return bool(said) and all(word in said for word in words)


def without_repeated(fitted: FittedPrompt, recalled: Sequence[RecalledMemory]) -> FittedPrompt:
    """Without recalled memories of turns that the fitted dialogue shows anyway."""
    shown = {
        part.name.removeprefix("turn "): part.text.casefold() for part in fitted.parts if part.name.startswith("turn ")
    }
    repeated = {f"memory {memory.id}" for memory in recalled if is_repeated(memory.memory, shown)}
    gone = [part for part in fitted.parts if part.name in repeated]
    return FittedPrompt(
        [part for part in fitted.parts if part.name not in repeated],
        fitted.tokens - sum(part.tokens for part in gone),
        [*fitted.trimmed, *(f"{part.name} ({part.tokens} tokens): in the dialogue already" for part in gone)],
    )


_TRIMMED_TURN = re.compile(r"turn \S+ \((\d+) tokens\)(: .*)", re.DOTALL)


def merge_turns(trimmed: Sequence[str]) -> Iterator[str]:
    """The sentences about what was left out, with those about consecutive turns as one."""
    matches = [(line, _TRIMMED_TURN.fullmatch(line)) for line in trimmed]
    for why, group in groupby(matches, key=lambda pair: pair[1] and pair[1][2]):
        lines = list(group)
        if why is None or len(lines) == 1:
            yield from (line for line, _ in lines)
        else:
            yield f"{len(lines)} turns ({sum(int(match[1]) for _, match in lines if match)} tokens){why}"


def _too_long(must: Sequence[PromptPart], needed: int, hard: int) -> PromptTooLong:
    longest = sorted(must, key=lambda part: -part.tokens)[:2]
    named = " and ".join(f"{part.label or part.name} ({part.tokens} tokens)" for part in longest)
    return PromptTooLong(
        f"What has to be in the prompt needs {needed} tokens, and {hard} are allowed. The longest parts: {named}.",
        "Shorten them, or choose a model with a larger context in Settings → Models.",
    )
