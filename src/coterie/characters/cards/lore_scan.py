"""Which lore comes up now: an entry counts when its keys occur in the last messages and its conditions hold.
What counts is then held to the book's token budget, and everything told or left out says why, because a prompt
must be explainable.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import regex

from coterie.characters.cards.lorebook import Lorebook, LorebookEntry, Role, Section

# Macros: `{{char}}`, `{{random:a,b}}` and the others that stand for something else in a card's texts.
#
# A text is read once, from the inside out, and what a macro became is never read again: a person called
# `{{original}}` is just somebody with an odd name, and no text can grow without end.


Purpose = Literal["prompt", "scan", "display"]
"""What the text is for: a model, the search for lorebook keys, or a person's eyes."""

_MARK = re.compile(r"\{\{|\}\}|<(?:bot|char|user)>", re.IGNORECASE)
_CALL = re.compile(r"\s*(?P<name>//|[a-z_]+)(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_DICE = re.compile(r"(?:(?P<count>\d{0,3})d)?(?P<sides>\d{1,9})(?P<plus>[+-]\d{1,9})?", re.IGNORECASE)
_DEEPEST = 50


class _ExpandedText(str):
    """Text that a macro became: it is never taken for syntax."""


@dataclass
class Macros:
    char: str
    """The character's nickname, else its name."""
    user: str
    rng: random.Random
    seed: str = ""
    """Of the chat: `{{pick}}` chooses the same each time."""
    original: str = ""
    """What a card's prompt stands in for, for `{{original}}`; used once in a text."""
    _picks: int = field(default=0, init=False, repr=False)
    _original_used: bool = field(default=False, init=False, repr=False)

    def expand(self, text: str, purpose: Purpose = "prompt") -> str:
        self._picks, self._original_used = 0, False
        # Each level holds the parts of a macro that is still open; the last part is being written.
        levels: list[list[str]] = [[]]
        at = 0
        for mark in _MARK.finditer(text):
            if mark.start() < at:
                continue
            levels[-1].append(text[at : mark.start()])
            at = mark.end()
            match mark[0].lower():
                case "{{" if len(levels) <= _DEEPEST:
                    levels.append([])
                case "}}" if len(levels) > 1:
                    inside = levels.pop()
                    levels[-1].append(self._value(inside, purpose))
                case "<bot>" | "<char>":
                    levels[-1].append(_ExpandedText(self.char))
                case "<user>":
                    levels[-1].append(_ExpandedText(self.user))
                case other:
                    levels[-1].append(other)
        levels[-1].append(text[at:])
        return "{{".join("".join(parts) for parts in levels)

    def _value(self, parts: list[str], purpose: Purpose) -> str:
        """What the macro with these parts becomes; one we do not know stays as it is."""
        untouched = _ExpandedText("{{" + "".join(parts) + "}}")
        call = _CALL.fullmatch(parts[0]) if parts and not isinstance(parts[0], _ExpandedText) else None
        if call is None:
            return untouched
        name, rest = call["name"].lower(), [call["rest"], *parts[1:]]
        result = self._call(name, rest, purpose)
        return untouched if result is None else _ExpandedText(result)

    def _call(self, name: str, rest: list[str], purpose: Purpose) -> str | None:
        argument = "".join(rest)
        bare = not argument.strip()
        argument = argument.lstrip().removeprefix(":")
        match name:
            case "char" | "bot" if bare:
                return self.char
            case "user" if bare:
                return self.user
            case "original" if bare:
                first, self._original_used = not self._original_used, True
                return self.original if first else ""
            case "//":
                return ""
            case "comment":
                return argument.strip() if purpose == "display" else ""
            case "hidden_key":
                return argument.strip() if purpose == "scan" else ""
            case "reverse" if not bare:
                return argument.removeprefix(":")[::-1]
            case "random" if not bare:
                return self.rng.choice(_options(rest))
            case "pick" if not bare:
                return self._pick(_options(rest))
            case "roll" if not bare:
                return self._roll(argument.removeprefix(":").strip())
        return None

    def _pick(self, options: Sequence[str]) -> str:
        self._picks += 1
        told = "\0".join([self.seed, str(self._picks), *options])
        digest = hashlib.sha256(told.encode(errors="replace")).digest()
        return options[int.from_bytes(digest[:8], "big") % len(options)]

    def _roll(self, dice: str) -> str | None:
        found = _DICE.fullmatch(dice)
        if not found or int(found["sides"]) < 1:
            return None
        count, sides = int(found["count"] or 1), int(found["sides"])
        return str(sum(self.rng.randint(1, sides) for _ in range(count)) + int(found["plus"] or 0))


def _options(parts: list[str]) -> list[str]:
    """What there is to choose from: split on `::` where it is used, on commas otherwise; `\\,` is a comma."""
    first, *others = parts
    parts = [first.lstrip().removeprefix(":").removeprefix(":"), *others]
    doubled = any("::" in part for part in parts if not isinstance(part, _ExpandedText))
    separator = re.compile(r"::") if doubled else re.compile(r"(?<!\\),")
    options = [""]
    for part in parts:
        if isinstance(part, _ExpandedText):
            options[-1] += part
            continue
        head, *tail = separator.split(part)
        options[-1] += head.replace("\\,", ",")
        options += [piece.replace("\\,", ",") for piece in tail]
    return [option.strip() for option in options]


# Whether a lorebook's key occurs in a text. Patterns come from strangers, so each has a moment and all of them
# together a longer one: a pattern made to run for years simply does not match, and is named.


PATTERN_SECONDS = 0.05
SCAN_SECONDS = 0.5
_LONGEST_PATTERN = 2_000
_MOST_REPEATS = 5_000
"""The product of all counted repeats; a compiler may unroll them."""

_FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL, "g": 0, "u": 0, "y": 0}
_SLASHED = regex.compile(r"/(?P<pattern>.+)/(?P<flags>[a-z]*)", regex.DOTALL)
_COUNTED = regex.compile(r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}")


class KeyMatcher:
    """Matches keys during one scan, within one allowance of time."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Patterns that could not be used, and why."""
        self._spent = 0.0
        self._text = self._folded = ""

    def is_match(self, key: str, text: str, entry: LorebookEntry) -> bool:
        slashed = _SLASHED.fullmatch(key) if key.startswith("/") else None
        if (entry.use_regex and (slashed or not entry.plain_keys)) or (entry.plain_keys and slashed):
            pattern, flags = (slashed["pattern"], slashed["flags"]) if slashed else (key, "")
            return self._matches(pattern, flags if entry.case_sensitive or slashed else "i", text)
        if entry.whole_words:
            return _has_word(key, text, case_sensitive=entry.case_sensitive)
        return key in text if entry.case_sensitive else key.casefold() in self._without_case(text)

    def _without_case(self, text: str) -> str:
        if text is not self._text:
            self._text, self._folded = text, text.casefold()
        return self._folded

    def _matches(self, pattern: str, flags: str, text: str) -> bool:
        if pattern in self.refused:
            return False
        left = min(PATTERN_SECONDS, SCAN_SECONDS - self._spent)
        if left <= 0:
            self.refused[pattern] = "the patterns of this book took too long together"
            return False
        started = time.perf_counter()
        try:
            return _compiled(pattern, flags).search(text, timeout=left) is not None
        except TimeoutError:
            self.refused[pattern] = "it takes too long"
        except (regex.error, ValueError, RecursionError, OverflowError, KeyError, IndexError) as error:
            self.refused[pattern] = f"it is not a pattern we can use ({error})"
        finally:
            self._spent += time.perf_counter() - started
        return False


@lru_cache(maxsize=1024)
def _compiled(pattern: str, flags: str) -> regex.Pattern[str]:
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError("longer than 2,000 characters")
    bounds = (max(int(low or 0), int(high or 0), 1) for low, high in _COUNTED.findall(pattern))
    if math.prod(bounds) > _MOST_REPEATS:
        raise ValueError("too many repeats")
    combined = 0
    for letter in flags:
        if letter not in _FLAGS:
            raise ValueError(f"the flag {letter} is not known")
        combined |= _FLAGS[letter]
    return regex.compile(pattern, combined, cache_pattern=False)


def _has_word(key: str, text: str, *, case_sensitive: bool) -> bool:
    pattern = rf"(?<!\w){regex.escape(key)}(?!\w)"
    return regex.search(pattern, text, 0 if case_sensitive else regex.IGNORECASE) is not None


DEFAULT_SCAN_DEPTH = 4
_MOST_ROUNDS = 12
"""Lore calling for lore; a chain longer than this helps nobody."""

LorePosition = Literal["before_char", "after_char", "at_depth"] | Section


@dataclass(frozen=True)
class LoreContext:
    """What the chat looks like when lore is looked up."""

    messages: Sequence[str]
    """Oldest first."""
    replies: int = 0
    """How many messages the character has said in the whole chat."""
    greeting: int | None = None
    """0 for the first message, then the alternate greetings."""
    matched_before: Collection[int] = ()
    """Indexes of the entries that counted at an earlier turn."""
    user_icon: str | None = None
    context_full: bool = False
    macros: Macros | None = None


@dataclass(frozen=True)
class LoreMatch:
    entry: LorebookEntry
    text: str
    position: LorePosition
    depth: int
    """Messages from the newest, when the spot is `at_depth`."""
    role: Role
    tokens: int
    why: str


@dataclass(frozen=True)
class LoreResult:
    included: list[LoreMatch]
    """In the order in which they go into the prompt."""
    left_out: list[LoreMatch]
    """Dropped for the token budget, the least important first."""
    refused_keys: dict[str, str] = field(default_factory=dict)


def find_lore(book: Lorebook, context: LoreContext, count_tokens: Callable[[str], int]) -> LoreResult:
    scan = _Scan(book, context)
    lore = [_place(entry, why, context, count_tokens) for entry, why in scan.run()]
    kept, left_out = _within_budget(lore, book.token_budget)
    kept.sort(key=lambda one: (one.entry.insertion_order, one.entry.index))
    return LoreResult(kept, left_out, scan.matcher.refused)


class _Scan:
    def __init__(self, book: Lorebook, moment: LoreContext) -> None:
        self.book = book
        self.moment = moment
        self.matcher = KeyMatcher()
        self._messages = [self._seen(message) for message in moment.messages]
        self._windows: dict[int, str] = {}

    def run(self) -> Iterable[tuple[LorebookEntry, str]]:
        waiting: list[LorebookEntry] = []
        counted: list[tuple[LorebookEntry, str]] = []
        for entry in self.book.entries:
            if not self._possible(entry):
                continue
            if why := self._certain(entry) or self._called(entry, self._window(entry), "said"):
                counted.append((entry, why))
            else:
                waiting.append(entry)
        fresh = [entry for entry, _ in counted]
        for _ in range(_MOST_ROUNDS if self.book.recursive_scanning else 0):
            lore = "\n".join(self._seen(entry.content) for entry in fresh if entry.may_recurse)
            if not lore:
                break
            called = [
                (entry, why)
                for entry in waiting
                if entry.by_recursion and (why := self._called(entry, lore, "in other lore"))
            ]
            fresh = [entry for entry, _ in called]
            counted += called
            done = {entry.index for entry in fresh}
            waiting = [entry for entry in waiting if entry.index not in done]
        return counted

    def _possible(self, entry: LorebookEntry) -> bool:
        asked, moment = entry.decorators, self.moment
        if not entry.enabled or not entry.content.strip():
            return False
        if asked.activate:
            return True
        before = entry.index in moment.matched_before
        if asked.dont_activate or (asked.dont_activate_after_match and before):
            return False
        if asked.keep_activate_after_match and before:
            return True
        return (
            (asked.activate_only_after is None or moment.replies >= asked.activate_only_after)
            and (asked.activate_only_every is None or moment.replies % asked.activate_only_every == 0)
            and (asked.is_greeting is None or moment.greeting in (None, asked.is_greeting))
            and (asked.is_user_icon is None or moment.user_icon in (None, asked.is_user_icon))
            and not (asked.ignore_on_max_context and moment.context_full)
        )

    def _certain(self, entry: LorebookEntry) -> str:
        """Why the entry counts whatever is said, or nothing."""
        asked = entry.decorators
        if asked.activate:
            return "@@activate"
        if asked.keep_activate_after_match and entry.index in self.moment.matched_before:
            return "@@keep_activate_after_match"
        ignored = entry.use_regex and not entry.plain_keys  # a V3 entry with patterns is never constant
        if entry.constant and not ignored and self._allowed(entry, self._window(entry)):
            return "constant"
        return ""

    def _called(self, entry: LorebookEntry, text: str, where: str) -> str:
        key = self._first(entry.keys, text, entry)
        if key is None or not self._allowed(entry, text) or not self._seconded(entry, text):
            return ""
        return f"“{key}” {where}"

    def _allowed(self, entry: LorebookEntry, text: str) -> bool:
        asked = entry.decorators
        if asked.additional_keys and self._first(asked.additional_keys, text, entry) is None:
            return False
        patterns = entry.use_regex and not entry.plain_keys
        return not asked.exclude_keys or patterns or self._first(asked.exclude_keys, text, entry) is None

    def _seconded(self, entry: LorebookEntry, text: str) -> bool:
        if not entry.selective or not entry.secondary_keys or (entry.use_regex and not entry.plain_keys):
            return True
        found = [self._first([key], text, entry) is not None for key in entry.secondary_keys]
        match entry.logic:
            case "any":
                return any(found)
            case "all":
                return all(found)
            case "none":
                return not any(found)
            case "not_all":
                return not all(found)

    def _first(self, keys: Iterable[str], text: str, entry: LorebookEntry) -> str | None:
        return next((key for key in keys if text and self.matcher.is_match(self._seen(key), text, entry)), None)

    def _window(self, entry: LorebookEntry) -> str:
        own = entry.scan_depth
        depth = own if own is not None else self.book.scan_depth
        first = max(len(self._messages) - (DEFAULT_SCAN_DEPTH if depth is None else depth), 0)
        if first not in self._windows:
            self._windows[first] = "\n".join(self._messages[first:])
        return self._windows[first]

    def _seen(self, text: str) -> str:
        """The text as keys see it: hidden keys show, comments do not."""
        return self.moment.macros.expand(text, "scan") if self.moment.macros and "{{" in text else text


def _place(entry: LorebookEntry, why: str, moment: LoreContext, count_tokens: Callable[[str], int]) -> LoreMatch:
    asked = entry.decorators
    spot: LorePosition = asked.position or entry.position
    depth = entry.depth
    if asked.position is None and asked.depth is None and asked.reverse_depth is not None:
        spot, depth = "at_depth", max(len(moment.messages) - asked.reverse_depth, 0)
    text = moment.macros.expand(entry.content) if moment.macros else entry.content
    return LoreMatch(entry, text, spot, min(depth, len(moment.messages)), entry.role, count_tokens(text), why)


def _within_budget(lore: list[LoreMatch], budget: int | None) -> tuple[list[LoreMatch], list[LoreMatch]]:
    """Drop the least important until the rest fits. What could never fit takes nobody else with it."""
    if budget is None:
        return lore, []
    left_out = [one for one in lore if one.tokens > budget]
    kept = [one for one in lore if one.tokens <= budget]
    kept.sort(key=_importance, reverse=True)
    total = sum(one.tokens for one in kept)
    while kept and total > budget:
        dropped = kept.pop()
        total -= dropped.tokens
        left_out.append(dropped)
    return kept, left_out


def _importance(one: LoreMatch) -> tuple[bool, float, float, int]:
    entry = one.entry
    return (not entry.decorators.ignore_on_max_context, entry.priority or 0, entry.insertion_order, -entry.index)
