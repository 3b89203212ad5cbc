"""The lorebook entries in a prompt: which match now, where they stand, and what its record says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coterie.characters import Lorebook, LorebookEntry, LoreContext, LoreMatch, LorePosition, find_lore_in
from coterie.conversation import Turn, TurnQueries
from coterie.modes.story.events import LoreUsed, Tier
from coterie.modes.story.prompt_budget import DIALOGUE, PromptDraft, PromptPart
from coterie.modes.story.turn_parser import turn_text

_LORE_DROP_ORDER = 4


class ActiveLore:
    """The lore entries that match now, placed as their positions and decorators ask."""

    def __init__(self, matches: Sequence[LoreMatch] = (), messages: int = 0) -> None:
        self._matches = matches
        self._messages = messages
        self._parts: dict[str, LoreMatch] = {}

    @classmethod
    def find(
        cls,
        draft: PromptDraft,
        turns: Sequence[Turn],
        books: Mapping[str, Lorebook],
        room: str,
        timeline: TurnQueries,
        matched_before: Mapping[tuple[str, str], int],
    ) -> ActiveLore:
        """`turns` are those of the prompt, oldest first. Chance depends on the last one alone: a fork repeats it.

        Counting goes through the whole chat, so it is done only for books that ask for it.
        """
        if not books:
            return cls()
        entries = [entry for book in books.values() for entry in book.entries]
        timed = any(entry.delay or _counts_from_match(entry) for entry in entries)
        count = timeline.count(room) if timed and turns else 0
        replies = timeline.count_by(room, draft.character.id) if any(map(_counts_replies, entries)) else 0
        context = LoreContext(
            messages=[turn_text(turn) for turn in turns],
            replies=replies,
            message_count=count,
            matched_before=matched_before,
            seed=turns[-1].id if turns else "",
            macros=draft.macros,
        )
        return cls(find_lore_in(books, context, draft.count_tokens).included, count)

    def used(self, parts: Collection[str]) -> tuple[LoreUsed, ...]:
        """The entries whose parts are in the prompt, for its record."""
        return tuple(
            LoreUsed(
                part=part,
                book=lore.book,
                entry=lore.entry.key,
                why=lore.why,
                messages=self._messages if _counts_from_match(lore.entry) and not lore.sticks else None,
            )
            for part, lore in self._parts.items()
            if part in parts
        )

    def _append(self, draft: PromptDraft, lore: LoreMatch, part: PromptPart) -> None:
        draft.append(part)
        self._parts[draft.parts[-1].name] = lore

    @property
    def replaces_instructions(self) -> bool:
        """Whether an entry replaces our instructions to the character (`@@disable_ui_prompt`)."""
        return any(lore.entry.decorators.disable_ui_prompt == "system_prompt" for lore in self._matches)

    def add_to(self, draft: PromptDraft, *positions: LorePosition) -> None:
        for lore in self._matches:
            if lore.position in positions:
                part = draft.part(_lore_name(lore), _lore_tier(lore), lore.text, drop_order=_LORE_DROP_ORDER)
                self._append(draft, lore, part)

    def add_to_dialogue(self, draft: PromptDraft, turns: Sequence[Turn]) -> None:
        """Add the entries that stand a number of messages before the newest one, in the role they ask for."""
        for lore in self._matches:
            if lore.position != "at_depth":
                continue
            seq = seq_at_depth(turns, lore.depth)
            part = draft.part(
                _lore_name(lore),
                _lore_tier(lore),
                lore.text,
                role=lore.role,
                order=(DIALOGUE, seq),
                drop_order=_LORE_DROP_ORDER,
            )
            self._append(draft, lore, part)


def _counts_from_match(entry: LorebookEntry) -> bool:
    """Whether it matters later when the entry matched."""
    decorators = entry.decorators
    after_match = decorators.keep_activate_after_match or decorators.dont_activate_after_match
    return bool(entry.sticky or entry.cooldown or after_match)


def _counts_replies(entry: LorebookEntry) -> bool:
    """Whether it matters how often the character has replied."""
    decorators = entry.decorators
    return decorators.activate_only_after is not None or decorators.activate_only_every is not None


def seq_at_depth(turns: Sequence[Turn], depth: int) -> float:
    """The position of a text that has so many messages after it; before the first if there are fewer."""
    if not turns:
        return 0.0
    before = max(len(turns) - depth, 0)
    return turns[before].seq - 0.5 if before < len(turns) else turns[-1].seq + 0.5


def _lore_name(lore: LoreMatch) -> str:
    return f"lore {lore.entry.name or ', '.join(lore.entry.keys[:2]) or lore.entry.key}"


def _lore_tier(lore: LoreMatch) -> Tier:
    return "nice" if lore.entry.decorators.ignore_on_max_context else "should"
