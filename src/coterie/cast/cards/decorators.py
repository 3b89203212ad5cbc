"""Decorators: lines such as `@@depth 4` in a lorebook entry's content that say when it counts and where it goes.

A line with three signs (`@@@scan_depth 2`) is a fallback, tried when those before it are not known or make no
sense. Whatever its fate, a decorator never reaches a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

Role = Literal["system", "user", "assistant"]
Section = Literal["before_desc", "after_desc", "personality", "scenario"]
UiPrompt = Literal["system_prompt", "post_history_instructions"]


class Decorators(NamedTuple):
    """What an entry's decorators ask for; None and False mean that they do not."""

    activate: bool = False
    dont_activate: bool = False
    activate_only_after: int | None = None
    activate_only_every: int | None = None
    keep_activate_after_match: bool = False
    dont_activate_after_match: bool = False
    depth: int | None = None
    reverse_depth: int | None = None
    role: Role | None = None
    scan_depth: int | None = None
    is_greeting: int | None = None
    is_user_icon: str | None = None
    position: Section | None = None
    ignore_on_max_context: bool = False
    additional_keys: tuple[str, ...] = ()
    exclude_keys: tuple[str, ...] = ()
    disable_ui_prompt: UiPrompt | None = None


def split_decorators(content: str) -> tuple[Decorators, str]:
    """What the decorators ask for, and the content without them."""
    asked: dict[str, object] = {}
    kept: list[str] = []
    settled = True
    for line in content.splitlines(keepends=True):
        found = _LINE.fullmatch(line.strip())
        if not found:
            kept.append(line)
            settled = True  # a fallback belongs right after what it falls back from
        elif found["signs"] == "@@" or not settled:
            settled = _accept(asked, found["name"].lower(), (found["value"] or "").strip())
    text = "".join(kept)
    return Decorators(**asked), text if text == content else text.strip("\r\n")  # type: ignore[arg-type]


def _accept(asked: dict[str, object], name: str, value: str) -> bool:
    """Whether the decorator is one we know and can follow. The first of a name counts."""
    read = _KNOWN.get(name)
    if read is None:
        return False
    try:
        meaning = read(value)
    except ValueError:
        return False
    asked.setdefault(name, meaning)
    return True


def _present(value: str) -> bool:
    if value.lower() not in ("", "true"):
        raise ValueError
    return True


def _count(value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise ValueError
    return int(value)


def _whole(value: str) -> int:
    """A place among the messages; below the newest is still a place."""
    if not re.fullmatch(r"-?\d{1,9}", value):
        raise ValueError
    return max(int(value), 0)


def _positive(value: str) -> int:
    if (number := _count(value)) < 1:
        raise ValueError
    return number


def _words(value: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    if not words:
        raise ValueError
    return words


def _text(value: str) -> str:
    if not value:
        raise ValueError
    return value


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError
        return value

    return read


_LINE = re.compile(r"(?P<signs>@@@?)(?P<name>[A-Za-z_]+)(?:[ \t]+(?P<value>.*))?")

# The `instruct_…` ones are for prompts that are not chats; ours always are, so their fallbacks count.
_KNOWN: dict[str, Callable[[str], object]] = {
    "activate": _present,
    "dont_activate": _present,
    "activate_only_after": _count,
    "activate_only_every": _positive,
    "keep_activate_after_match": _present,
    "dont_activate_after_match": _present,
    "depth": _whole,
    "reverse_depth": _whole,
    "role": _one_of(*get_args(Role)),
    "scan_depth": _count,
    "is_greeting": _count,
    "is_user_icon": _text,
    "position": _one_of(*get_args(Section)),
    "ignore_on_max_context": _present,
    "additional_keys": _words,
    "exclude_keys": _words,
    "disable_ui_prompt": _one_of(*get_args(UiPrompt)),
}
