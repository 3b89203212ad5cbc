"""Find the lore for a prompt: entries whose keys occur in the last messages, within the lorebook's token budget.

Every match has a reason, so that a prompt can be explained. Also the macros of cards and lorebooks.
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

Purpose = Literal["prompt", "scan", "display"]
"""The use of a text: for a model, for matching lorebook keys, or for display."""

_TOKEN = re.compile(r"\{\{|\}\}|<(?:bot|char|user)>", re.IGNORECASE)
_CALL = re.compile(r"\s*(?P<name>//|[a-z_]+)(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_DICE = re.compile(r"(?:(?P<count>\d{0,3})d)?(?P<sides>\d{1,9})(?P<plus>[+-]\d{1,9})?", re.IGNORECASE)
_MAX_DEPTH = 50


class _ExpandedText(str):
    """The result of a macro, which is never read as a macro."""


@dataclass
class Macros:
    """Expands macros once, from the inside out. Their results are never read as macros again."""

    char: str
    """The character's nickname, else its name."""
    user: str
    rng: random.Random
    seed: str = ""
    """The chat's seed, with which `{{pick}}` chooses the same each time."""
    original: str = ""
    """The default prompt that a card's prompt replaces, for `{{original}}`; used once in a text."""
    _picks: int = field(default=0, init=False, repr=False)
    _original_used: bool = field(default=False, init=False, repr=False)

    def expand(self, text: str, purpose: Purpose = "prompt") -> str:
        self._picks, self._original_used = 0, False
        # Each level has the parts of an open macro.
        levels: list[list[str]] = [[]]
        position = 0
        for mark in _TOKEN.finditer(text):
            if mark.start() < position:
                continue
            levels[-1].append(text[position : mark.start()])
            position = mark.end()
            match mark[0].lower():
                case "{{" if len(levels) <= _MAX_DEPTH:
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
        levels[-1].append(text[position:])
        return "{{".join("".join(parts) for parts in levels)

    def _value(self, parts: list[str], purpose: Purpose) -> str:
        """The result of a macro; an unknown one stays as it is."""
        untouched = _ExpandedText("{{" + "".join(parts) + "}}")
        call = _CALL.fullmatch(parts[0]) if parts and not isinstance(parts[0], _ExpandedText) else None
        if call is None:
            return untouched
        name, rest = call["name"].lower(), [call["rest"], *parts[1:]]
        result = self._call(name, rest, purpose)
        return untouched if result is None else _ExpandedText(result)

    def _call(self, name: str, rest: list[str], purpose: Purpose) -> str | None:
        argument = "".join(rest)
        is_bare = not argument.strip()
        argument = argument.lstrip().removeprefix(":")
        match name:
            case "char" | "bot" if is_bare:
                return self.char
            case "user" if is_bare:
                return self.user
            case "original" if is_bare:
                first, self._original_used = not self._original_used, True
                return self.original if first else ""
            case "//":
                return ""
            case "comment":
                return argument.strip() if purpose == "display" else ""
            case "hidden_key":
                return argument.strip() if purpose == "scan" else ""
            case "reverse" if not is_bare:
                return argument.removeprefix(":")[::-1]
            case "random" if not is_bare:
                return self.rng.choice(_options(rest))
            case "pick" if not is_bare:
                return self._pick(_options(rest))
            case "roll" if not is_bare:
                return self._roll(argument.removeprefix(":").strip())
        return None

    def _pick(self, options: Sequence[str]) -> str:
        self._picks += 1
        key = "\0".join([self.seed, str(self._picks), *options])
        digest = hashlib.sha256(key.encode(errors="replace")).digest()
        return options[int.from_bytes(digest[:8], "big") % len(options)]

    def _roll(self, dice: str) -> str | None:
        match = _DICE.fullmatch(dice)
        if not match or int(match["sides"]) < 1:
            return None
        count, sides = int(match["count"] or 1), int(match["sides"])
        return str(sum(self.rng.randint(1, sides) for _ in range(count)) + int(match["plus"] or 0))


def _options(parts: list[str]) -> list[str]:
    """The options, separated by `::` if it occurs, else by commas; `\\,` is a comma."""
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


PATTERN_SECONDS = 0.05
SCAN_SECONDS = 0.5
_MAX_PATTERN = 2_000
_MAX_REPEATS = 5_000
"""The limit of the product of all counted repeats, which the compiler may unroll."""

_WORD = regex.compile(r"\w")
_FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL, "g": 0, "u": 0, "y": 0}
_SLASHED = regex.compile(r"/(?P<pattern>.+)/(?P<flags>[a-z]*)", regex.DOTALL)
_COUNTED = regex.compile(r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}")


class KeyMatcher:
    """Matches the keys of one scan. Keys are untrusted: those that exceed the time limits do not match.

    A pattern has a limit of its own. All patterns have one together, and so have all other keys; it is a hundred times
    what real lorebooks take.
    """

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Keys that could not be used, and why."""
        self._patterns_s = self._plain_s = 0.0
        self._text = self._folded = ""

    def is_match(self, key: str, text: str, entry: LorebookEntry) -> bool:
        slashed = _SLASHED.fullmatch(key) if key.startswith("/") else None
        started = time.perf_counter()
        if (entry.use_regex and (slashed or not entry.plain_keys)) or (entry.plain_keys and slashed):
            pattern, flags = (slashed["pattern"], slashed["flags"]) if slashed else (key, "")
            matches = self._matches(pattern, flags if entry.case_sensitive or slashed else "i", text)
            self._patterns_s += time.perf_counter() - started
        else:
            matches = self._contains(key, text, entry)
            self._plain_s += time.perf_counter() - started
        return matches

    def _contains(self, key: str, text: str, entry: LorebookEntry) -> bool:
        if self._plain_s >= SCAN_SECONDS:
            self.refused[key] = "the keys of this lorebook took too long together"
            return False
        if not entry.case_sensitive:
            key, text = key.casefold(), self._without_case(text)
        return _has_word(key, text) if entry.whole_words else key in text

    def _without_case(self, text: str) -> str:
        if text is not self._text:
            self._text, self._folded = text, text.casefold()
        return self._folded

    def _matches(self, pattern: str, flags: str, text: str) -> bool:
        if pattern in self.refused:
            return False
        timeout = min(PATTERN_SECONDS, SCAN_SECONDS - self._patterns_s)
        if timeout <= 0:
            self.refused[pattern] = "the patterns of this lorebook took too long together"
            return False
        try:
            return _compile(pattern, flags).search(text, timeout=timeout) is not None
        except TimeoutError:
            self.refused[pattern] = "it takes too long"
        except (regex.error, ValueError, RecursionError, OverflowError, KeyError, IndexError) as error:
            self.refused[pattern] = f"it is not a supported pattern ({error})"
        return False


@lru_cache(maxsize=1024)
def _compile(pattern: str, flags: str) -> regex.Pattern[str]:
    if len(pattern) > _MAX_PATTERN:
        raise ValueError("longer than 2,000 characters")
    bounds = (max(int(low or 0), int(high or 0), 1) for low, high in _COUNTED.findall(pattern))
    if math.prod(bounds) > _MAX_REPEATS:
        raise ValueError("too many repeats")
    combined = 0
    for letter in flags:
        if letter not in _FLAGS:
            raise ValueError(f"the flag {letter} is not known")
        combined |= _FLAGS[letter]
    return regex.compile(pattern, combined, cache_pattern=False)


def _has_word(key: str, text: str) -> bool:
    """Whether the key is in the text without a letter or digit directly before or after it."""
    start = text.find(key)
    while start >= 0:
        end = start + len(key)
        if not (_is_word(text[start - 1 : start]) or _is_word(text[end : end + 1])):
            return True
        start = text.find(key, start + 1)
    return False


def _is_word(character: str) -> bool:
    return _WORD.match(character) is not None


DEFAULT_SCAN_DEPTH = 4
_MAX_ROUNDS = 12
"""The limit of recursive scanning."""

LorePosition = Literal["before_char", "after_char", "at_depth"] | Section


@dataclass(frozen=True)
class LoreContext:
    """The state of the chat for a scan."""

    messages: Sequence[str]
    """Oldest first."""
    replies: int = 0
    """How many messages the character has sent in the whole chat."""
    greeting: int | None = None
    """0 for the first message, then the alternate greetings."""
    matched_before: Collection[int] = ()
    """The indexes of entries that matched at an earlier turn."""
    user_icon: str | None = None
    context_full: bool = False
    macros: Macros | None = None


@dataclass(frozen=True)
class LoreMatch:
    entry: LorebookEntry
    text: str
    position: LorePosition
    depth: int
    """Messages from the newest, if the position is `at_depth`."""
    role: Role
    tokens: int
    why: str


@dataclass(frozen=True)
class LoreResult:
    included: list[LoreMatch]
    """In the order of the prompt."""
    left_out: list[LoreMatch]
    """Left out for the token budget, the least important first."""
    refused_keys: dict[str, str] = field(default_factory=dict)


def find_lore(lorebook: Lorebook, context: LoreContext, count_tokens: Callable[[str], int]) -> LoreResult:
    scan = _Scan(lorebook, context)
    matches = [_place(entry, why, context, count_tokens) for entry, why in scan.run()]
    included, left_out = _within_budget(matches, lorebook.token_budget)
    included.sort(key=lambda match: (match.entry.insertion_order, match.entry.index))
    return LoreResult(included, left_out, scan.matcher.refused)


class _Scan:
    def __init__(self, lorebook: Lorebook, context: LoreContext) -> None:
        self._lorebook = lorebook
        self._context = context
        self.matcher = KeyMatcher()
        self._messages = [self._for_scan(message) for message in context.messages]
        self._windows: dict[int, str] = {}

    def run(self) -> Iterable[tuple[LorebookEntry, str]]:
        remaining: list[LorebookEntry] = []
        matches: list[tuple[LorebookEntry, str]] = []
        for entry in self._lorebook.entries:
            if not self._is_eligible(entry):
                continue
            if why := self._unconditional_reason(entry) or self._key_reason(entry, self._window(entry), "said"):
                matches.append((entry, why))
            else:
                remaining.append(entry)
        new = [entry for entry, _ in matches]
        for _ in range(_MAX_ROUNDS if self._lorebook.recursive_scanning else 0):
            lore = "\n".join(self._for_scan(entry.content) for entry in new if entry.may_recurse)
            if not lore:
                break
            new_matches = [
                (entry, why)
                for entry in remaining
                if entry.by_recursion and (why := self._key_reason(entry, lore, "in other lore"))
            ]
            new = [entry for entry, _ in new_matches]
            matches += new_matches
            done = {entry.index for entry in new}
            remaining = [entry for entry in remaining if entry.index not in done]
        return matches

    def _is_eligible(self, entry: LorebookEntry) -> bool:
        decorators, context = entry.decorators, self._context
        if not entry.enabled or not entry.content.strip():
            return False
        if decorators.activate:
            return True
        before = entry.index in context.matched_before
        if decorators.dont_activate or (decorators.dont_activate_after_match and before):
            return False
        if decorators.keep_activate_after_match and before:
            return True
        return (
            (decorators.activate_only_after is None or context.replies >= decorators.activate_only_after)
            and (decorators.activate_only_every is None or context.replies % decorators.activate_only_every == 0)
            and (decorators.is_greeting is None or context.greeting in (None, decorators.is_greeting))
            and (decorators.is_user_icon is None or context.user_icon in (None, decorators.is_user_icon))
            and not (decorators.ignore_on_max_context and context.context_full)
        )

    def _unconditional_reason(self, entry: LorebookEntry) -> str:
        """Why the entry matches whatever the messages are; empty if it does not."""
        decorators = entry.decorators
        if decorators.activate:
            return "@@activate"
        if decorators.keep_activate_after_match and entry.index in self._context.matched_before:
            return "@@keep_activate_after_match"
        ignored = entry.use_regex and not entry.plain_keys  # a V3 entry with patterns is never constant
        if entry.constant and not ignored and self._passes_filters(entry, self._window(entry)):
            return "constant"
        return ""

    def _key_reason(self, entry: LorebookEntry, text: str, where: str) -> str:
        key = self._first(entry.keys, text, entry)
        if key is None or not self._passes_filters(entry, text) or not self._matches_secondary(entry, text):
            return ""
        return f"“{key}” {where}"

    def _passes_filters(self, entry: LorebookEntry, text: str) -> bool:
        decorators = entry.decorators
        if decorators.additional_keys and self._first(decorators.additional_keys, text, entry) is None:
            return False
        patterns = entry.use_regex and not entry.plain_keys
        return not decorators.exclude_keys or patterns or self._first(decorators.exclude_keys, text, entry) is None

    def _matches_secondary(self, entry: LorebookEntry, text: str) -> bool:
        if not entry.selective or not entry.secondary_keys or (entry.use_regex and not entry.plain_keys):
            return True
        matches = [self._first([key], text, entry) is not None for key in entry.secondary_keys]
        match entry.logic:
            case "any":
                return any(matches)
            case "all":
                return all(matches)
            case "none":
                return not any(matches)
            case "not_all":
                return not all(matches)

    def _first(self, keys: Iterable[str], text: str, entry: LorebookEntry) -> str | None:
        return next((key for key in keys if text and self.matcher.is_match(self._for_scan(key), text, entry)), None)

    def _window(self, entry: LorebookEntry) -> str:
        own = entry.scan_depth
        depth = own if own is not None else self._lorebook.scan_depth
        first = max(len(self._messages) - (DEFAULT_SCAN_DEPTH if depth is None else depth), 0)
        if first not in self._windows:
            self._windows[first] = "\n".join(self._messages[first:])
        return self._windows[first]

    def _for_scan(self, text: str) -> str:
        """The text with hidden keys and without comments."""
        return self._context.macros.expand(text, "scan") if self._context.macros and "{{" in text else text


def _place(entry: LorebookEntry, why: str, context: LoreContext, count_tokens: Callable[[str], int]) -> LoreMatch:
    decorators = entry.decorators
    position: LorePosition = decorators.position or entry.position
    depth = entry.depth
    if decorators.position is None and decorators.depth is None and decorators.reverse_depth is not None:
        position, depth = "at_depth", max(len(context.messages) - decorators.reverse_depth, 0)
    text = context.macros.expand(entry.content) if context.macros else entry.content
    return LoreMatch(entry, text, position, min(depth, len(context.messages)), entry.role, count_tokens(text), why)


def _within_budget(matches: list[LoreMatch], budget: int | None) -> tuple[list[LoreMatch], list[LoreMatch]]:
    """Leave out the least important until the rest fits. An entry larger than the budget displaces no other."""
    if budget is None:
        return matches, []
    left_out = [match for match in matches if match.tokens > budget]
    included = [match for match in matches if match.tokens <= budget]
    included.sort(key=_importance, reverse=True)
    total = sum(match.tokens for match in included)
    while included and total > budget:
        dropped = included.pop()
        total -= dropped.tokens
        left_out.append(dropped)
    return included, left_out


def _importance(match: LoreMatch) -> tuple[bool, float, float, int]:
    entry = match.entry
    return (not entry.decorators.ignore_on_max_context, entry.priority or 0, entry.insertion_order, -entry.index)
