"""Find the lore for a prompt: entries whose keys occur in the last messages, within the lorebook's token budget.

Every match has a reason, so that a prompt can be explained. Also the macros of cards and lorebooks.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
SCAN_SECONDS = 0.25
_MAX_KEY = 2_000
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
        if len(key) > _MAX_KEY:
            self.refused[key] = f"it is longer than {_MAX_KEY:,} characters"
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
    if len(pattern) > _MAX_KEY:
        raise ValueError(f"longer than {_MAX_KEY:,} characters")
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
EntryRef = tuple[str, str]
"""A lorebook's id and the key of an entry in it."""


@dataclass(frozen=True)
class LoreContext:
    """The state of the chat for a scan."""

    messages: Sequence[str]
    """Oldest first."""
    replies: int = 0
    """How many messages the character has sent in the whole chat."""
    message_count: int | None = None
    """How many messages the whole chat has; by default, as many as are given."""
    greeting: int | None = None
    """0 for the first message, then the alternate greetings."""
    matched_before: Mapping[EntryRef, int] = field(default_factory=dict)
    """The entries that matched at an earlier turn, and how many messages the chat had when they last did."""
    seed: str = ""
    """Decides what is left to chance: the same seed has the same outcome."""
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
    book: str = ""
    """The id of its lorebook."""
    sticks: bool = False
    """Used only because it matched a few messages ago."""

    @property
    def ref(self) -> EntryRef:
        return self.book, self.entry.key


@dataclass(frozen=True)
class LoreResult:
    included: list[LoreMatch]
    """In the order of the prompt."""
    left_out: list[LoreMatch]
    """Left out for the token budget, the least important first."""
    refused_keys: dict[str, str] = field(default_factory=dict)
    skipped: dict[EntryRef, str] = field(default_factory=dict)
    """The entries that are not used, and why; those without a reason here have no key that occurs."""


def find_lore(lorebook: Lorebook, context: LoreContext, count_tokens: Callable[[str], int]) -> LoreResult:
    """The entries of one lorebook that match now, within its budget."""
    return find_lore_in({"": lorebook}, context, count_tokens)


def find_lore_in(books: Mapping[str, Lorebook], context: LoreContext, count_tokens: Callable[[str], int]) -> LoreResult:
    """The entries of several lorebooks, by id. Groups and recursion span the books; each has its own budget."""
    scan = _Scan(books, context)
    matches = [_place(candidate, context, count_tokens) for candidate in scan.run()]
    included: list[LoreMatch] = []
    left_out: list[LoreMatch] = []
    for book_id, book in books.items():
        fitting, too_many = _within_budget([match for match in matches if match.book == book_id], book.token_budget)
        included += fitting
        left_out += too_many
    order = list(books)
    included.sort(key=lambda match: (match.entry.insertion_order, order.index(match.book), match.entry.index))
    skipped = scan.skipped | {match.ref: "over the token budget of its lorebook" for match in left_out}
    return LoreResult(included, left_out, scan.matcher.refused, skipped)


@dataclass(eq=False)
class _Candidate:
    book_id: str
    book: Lorebook
    entry: LorebookEntry
    why: str = ""
    sticks: bool = False
    score: int = 0

    @property
    def ref(self) -> EntryRef:
        return self.book_id, self.entry.key


class _Scan:
    def __init__(self, books: Mapping[str, Lorebook], context: LoreContext) -> None:
        self._books = books
        self._context = context
        self.matcher = KeyMatcher()
        self.skipped: dict[EntryRef, str] = {}
        self._messages = [self._for_scan(message) for message in context.messages]
        self._count = len(context.messages) if context.message_count is None else context.message_count
        self._windows: dict[int, str] = {}
        self._groups: dict[str, str] = {}
        """The groups that have their entry, and its name."""

    def run(self) -> list[_Candidate]:
        remaining = [
            _Candidate(book_id, book, entry) for book_id, book in self._books.items() for entry in book.entries
        ]
        remaining = [candidate for candidate in remaining if self._is_eligible(candidate)]
        new = [candidate for candidate in remaining if self._matches_messages(candidate)]
        accepted, remaining = self._accept(new), _without(remaining, new)
        last_level = max((candidate.entry.recursion_level for candidate in remaining), default=0)
        for level in range(1, _MAX_ROUNDS + 1):
            recursive = [one for one in accepted if one.book.recursive_scanning and one.entry.may_recurse]
            lore = "\n".join(self._for_scan(candidate.entry.content) for candidate in recursive)
            if not lore:
                break
            new = [candidate for candidate in remaining if self._matches_lore(candidate, lore, level)]
            if not new and level >= last_level:
                break
            accepted += self._accept(new)
            remaining = _without(remaining, new)
        for candidate in remaining:
            if candidate.entry.recursion_level and not candidate.book.recursive_scanning:
                self.skipped[candidate.ref] = "it is only found in other lore, and recursive scanning is off"
        return accepted

    def _is_eligible(self, candidate: _Candidate) -> bool:
        reason = self._obstacle(candidate)
        if reason:
            self.skipped[candidate.ref] = reason
        return not reason

    def _obstacle(self, candidate: _Candidate) -> str:
        """Why an entry cannot match whatever is said; empty if it can."""
        entry, context = candidate.entry, self._context
        decorators, last = entry.decorators, context.matched_before.get(candidate.ref)
        if not entry.enabled:
            return "it is switched off"
        if not entry.content.strip():
            return "it has no content"
        if decorators.activate:
            return ""
        if decorators.dont_activate:
            return "@@dont_activate"
        if decorators.dont_activate_after_match and last is not None:
            return "it matched before (@@dont_activate_after_match)"
        if decorators.keep_activate_after_match and last is not None:
            return ""
        if (
            (decorators.activate_only_after is not None and context.replies < decorators.activate_only_after)
            or (decorators.activate_only_every is not None and context.replies % decorators.activate_only_every != 0)
            or (decorators.is_greeting is not None and context.greeting not in (None, decorators.is_greeting))
            or (decorators.is_user_icon is not None and context.user_icon not in (None, decorators.is_user_icon))
            or (decorators.ignore_on_max_context and context.context_full)
        ):
            return "its decorators do not allow it now"
        if entry.delay > self._count:
            return f"the chat has {self._count} of the {entry.delay} messages that it waits for"
        if last is not None and entry.cooldown and not self._sticks(candidate):
            left = last + entry.sticky + entry.cooldown - self._count
            if left > 0 and self._count > last:
                return f"cooldown, {left} more messages"
        return ""

    def _sticks(self, candidate: _Candidate) -> bool:
        last = self._context.matched_before.get(candidate.ref)
        return last is not None and last < self._count < last + candidate.entry.sticky

    def _matches_messages(self, candidate: _Candidate) -> bool:
        entry = candidate.entry
        candidate.why = self._unconditional_reason(candidate)
        if not candidate.why and not entry.recursion_level:
            candidate.why = self._key_reason(entry, self._window(candidate), "said")
        if entry.groups and candidate.why:
            candidate.score = self._score(entry, self._window(candidate))
        return bool(candidate.why)

    def _matches_lore(self, candidate: _Candidate, lore: str, level: int) -> bool:
        entry = candidate.entry
        if not candidate.book.recursive_scanning or not entry.by_recursion or entry.recursion_level > level:
            return False
        text = f"{self._window(candidate)}\n{lore}"
        candidate.why = self._key_reason(entry, text, "in other lore")
        candidate.score = self._score(entry, text) if entry.groups else 0
        return bool(candidate.why)

    def _unconditional_reason(self, candidate: _Candidate) -> str:
        """Why the entry matches whatever the messages are; empty if it does not."""
        entry = candidate.entry
        decorators = entry.decorators
        if decorators.activate:
            return "@@activate"
        last = self._context.matched_before.get(candidate.ref)
        if decorators.keep_activate_after_match and last is not None:
            return "@@keep_activate_after_match"
        if last is not None and self._sticks(candidate):
            candidate.sticks = True
            return f"sticky, {last + entry.sticky - self._count} more messages"
        ignored = entry.use_regex and not entry.plain_keys  # a V3 entry with patterns is never constant
        if entry.constant and not ignored and self._passes_filters(entry, self._window(candidate)):
            return "constant"
        return ""

    # --- groups and chance -------------------------------------------------------------------------------------

    def _accept(self, matching: list[_Candidate]) -> list[_Candidate]:
        """Of the entries that match, those that win in their groups and that chance allows."""
        for group in dict.fromkeys(name for candidate in matching for name in candidate.entry.groups):
            self._choose(group, [one for one in matching if group in one.entry.groups and not self._is_skipped(one)])
        accepted = []
        for candidate in matching:
            if self._is_skipped(candidate) or not self._has_luck(candidate):
                continue
            accepted.append(candidate)
            self._groups |= dict.fromkeys(candidate.entry.groups, candidate.entry.name or "another entry")
        return accepted

    def _choose(self, group: str, rivals: list[_Candidate]) -> None:
        if not rivals:
            return
        if group in self._groups:
            self._skip(rivals, f"“{self._groups[group]}” was chosen from the group “{group}”")
            return
        chosen = [one for one in rivals if one.sticks]
        if not chosen and (first := [one for one in rivals if one.entry.group_override]):
            chosen = [max(first, key=lambda one: (one.entry.insertion_order, -one.entry.index))]
        if not chosen:
            best = max(one.score for one in rivals)
            left = [one for one in rivals if not one.entry.group_scoring or one.score == best]
            chosen = [self._draw(group, left)]
        name = chosen[0].entry.name or "another entry"
        self._skip([one for one in rivals if one not in chosen], f"“{name}” was chosen from the group “{group}”")

    def _draw(self, group: str, rivals: list[_Candidate]) -> _Candidate:
        """One of them by chance, according to their weights."""
        if len(rivals) == 1:
            return rivals[0]
        weights = [one.entry.group_weight for one in rivals]
        return self._rng("group", group).choices(rivals, weights if sum(weights) > 0 else None)[0]

    def _has_luck(self, candidate: _Candidate) -> bool:
        probability = candidate.entry.probability
        if candidate.sticks or probability >= 100:
            return True
        if self._rng(*candidate.ref).random() * 100 < probability:
            candidate.why += f", by a chance of {probability:g} %"
            return True
        self._skip([candidate], f"{candidate.why}, but not by its chance of {probability:g} %")
        return False

    def _rng(self, *parts: str) -> random.Random:
        return random.Random("\0".join((self._context.seed, *parts)))  # noqa: S311 - repeatable, not secret

    def _skip(self, candidates: Iterable[_Candidate], reason: str) -> None:
        self.skipped |= {candidate.ref: reason for candidate in candidates}

    def _is_skipped(self, candidate: _Candidate) -> bool:
        return candidate.ref in self.skipped

    # --- keys --------------------------------------------------------------------------------------------------

    def _key_reason(self, entry: LorebookEntry, text: str, where: str) -> str:
        key = self._first(entry.keys, text, entry)
        if key is None or not self._passes_filters(entry, text) or not self._matches_secondary(entry, text):
            return ""
        return f"“{key}” {where}"

    def _score(self, entry: LorebookEntry, text: str) -> int:
        """How many of its keys occur."""
        return sum(self._first([key], text, entry) is not None for key in (*entry.keys, *entry.secondary_keys))

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

    def _window(self, candidate: _Candidate) -> str:
        own = candidate.entry.scan_depth
        depth = own if own is not None else candidate.book.scan_depth
        first = max(len(self._messages) - (DEFAULT_SCAN_DEPTH if depth is None else depth), 0)
        if first not in self._windows:
            self._windows[first] = "\n".join(self._messages[first:])
        return self._windows[first]

    def _for_scan(self, text: str) -> str:
        """The text with hidden keys and without comments."""
        return self._context.macros.expand(text, "scan") if self._context.macros and "{{" in text else text


def _without(candidates: Sequence[_Candidate], others: Sequence[_Candidate]) -> list[_Candidate]:
    refs = {one.ref for one in others}
    return [one for one in candidates if one.ref not in refs]


def _place(candidate: _Candidate, context: LoreContext, count_tokens: Callable[[str], int]) -> LoreMatch:
    entry = candidate.entry
    decorators = entry.decorators
    position: LorePosition = decorators.position or entry.position
    depth = entry.depth
    if decorators.position is None and decorators.depth is None and decorators.reverse_depth is not None:
        position, depth = "at_depth", max(len(context.messages) - decorators.reverse_depth, 0)
    text = context.macros.expand(entry.content) if context.macros else entry.content
    depth = min(depth, len(context.messages))
    return LoreMatch(
        entry,
        text,
        position,
        depth,
        entry.role,
        count_tokens(text),
        candidate.why,
        candidate.book_id,
        candidate.sticks,
    )


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
