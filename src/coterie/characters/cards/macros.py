"""Macros: `{{char}}`, `{{random:a,b}}` and the others that stand for something else in a card's texts.

A text is read once, from the inside out, and what a macro became is never read again: a person called
`{{original}}` is just somebody with an odd name, and no text can grow without end.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

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
