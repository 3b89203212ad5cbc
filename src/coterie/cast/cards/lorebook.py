"""Lorebooks: what a character knows of its world, told only when it comes up.

Three dialects are read: the `character_book` of a card, the stand-alone `lorebook_v3`, and SillyTavern's world
info (entries by uid, other names for the same things). The document stays as it was; entries are a reading of it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SkipValidation

from coterie.cast.cards.decorators import Decorators, Role, split_decorators
from coterie.cast.cards.document import Document
from coterie.cast.cards.lenient import as_flag, as_number, as_object, comma_list, text_or_empty
from coterie.cast.errors import NotACard

EntryPosition = Literal["before_char", "after_char", "at_depth"]
Logic = Literal["any", "not_all", "none", "all"]

_LOGICS: tuple[Logic, ...] = ("any", "not_all", "none", "all")
_ROLES: tuple[Role, ...] = ("system", "user", "assistant")
_AT_DEPTH = 4


class LorebookEntry(BaseModel):
    """One piece of lore: the keys that call for it, and what it says."""

    model_config = ConfigDict(frozen=True)

    index: int
    keys: list[str]
    secondary_keys: list[str]
    content: str
    """What goes into the prompt; decorators are taken out."""
    decorators: Decorators
    enabled: bool
    insertion_order: float
    priority: float | None
    selective: bool
    logic: Logic
    constant: bool
    use_regex: bool
    plain_keys: bool
    """`use_regex` was set by a program that sets it always: only keys like `/…/i` are patterns."""
    case_sensitive: bool
    whole_words: bool
    position: EntryPosition
    depth: int
    role: Role
    scan_depth: int | None
    may_recurse: bool
    """Its content may call for other entries."""
    by_recursion: bool
    """Other entries' content may call for it."""
    name: str
    id: str


class Lorebook(BaseModel):
    model_config = ConfigDict(frozen=True)

    document: SkipValidation[Document]
    """The book itself, as it was read (a `lorebook_v3` without its envelope)."""

    @classmethod
    def read(cls, document: Document) -> Lorebook:
        """A stand-alone book of any dialect."""
        if document.get("spec") == "lorebook_v3":
            document = as_object(document.get("data"))
        if not isinstance(document.get("entries"), list | dict):
            raise NotACard(
                "This is not a lorebook: it has no `entries`.", "Export it as a lorebook, or as SillyTavern world info."
            )
        return cls(document=document)

    @property
    def name(self) -> str:
        return text_or_empty(self.document.get("name"))

    @property
    def scan_depth(self) -> int | None:
        return _non_negative(self.document.get("scan_depth"))

    @property
    def token_budget(self) -> int | None:
        return _non_negative(self.document.get("token_budget"))

    @property
    def recursive_scanning(self) -> bool:
        return as_flag(self.document.get("recursive_scanning")) or False

    @cached_property
    def entries(self) -> list[LorebookEntry]:
        """Every entry that can be understood, in the order of the file."""
        found = self.document.get("entries")
        if isinstance(found, dict):
            found = [{"id": uid, **as_object(entry)} for uid, entry in found.items() if isinstance(entry, dict)]
        if not isinstance(found, list):
            return []
        return [_read_entry(index, entry) for index, entry in enumerate(found) if isinstance(entry, dict)]

    def standalone(self) -> Document:
        """The book in its envelope, as `lorebook_v3` asks for; world info is translated."""
        if isinstance(self.document.get("entries"), list):
            return {"spec": "lorebook_v3", "data": self.document}
        entries = [_from_world_info(uid, entry) for uid, entry in as_object(self.document["entries"]).items()]
        return {"spec": "lorebook_v3", "data": {"extensions": {}, **self.document, "entries": entries}}


def _read_entry(index: int, raw: Document) -> LorebookEntry:
    extensions = {**raw, **as_object(raw.get("extensions"))}
    # SillyTavern marks every entry it exports as a pattern, and tells the truth in its extensions.
    from_tavern = "selectiveLogic" in extensions or "display_index" in extensions or "disable" in raw
    decorators, content = split_decorators(text_or_empty(raw.get("content")))
    place, depth, role = _placement(raw, extensions, decorators)
    return LorebookEntry(
        index=index,
        keys=_keys(raw.get("keys", raw.get("key"))),
        secondary_keys=_keys(raw.get("secondary_keys", raw.get("keysecondary"))),
        content=content,
        decorators=decorators,
        enabled=_flag(raw.get("enabled"), default=not _flag(raw.get("disable"))),
        insertion_order=_number(raw.get("insertion_order", raw.get("order")), default=0),
        priority=as_number(raw.get("priority")),
        selective=_flag(raw.get("selective")),
        logic=_pick(_LOGICS, extensions.get("selectiveLogic")),
        constant=_flag(raw.get("constant")),
        use_regex=_flag(raw.get("use_regex")),
        plain_keys=from_tavern,
        case_sensitive=_flag(raw.get("case_sensitive", extensions.get("caseSensitive"))),
        whole_words=_flag(extensions.get("match_whole_words", extensions.get("matchWholeWords"))),
        position=place,
        depth=depth,
        role=role,
        scan_depth=_first(
            decorators.scan_depth, _non_negative(extensions.get("scan_depth", extensions.get("scanDepth")))
        ),
        may_recurse=not _flag(extensions.get("prevent_recursion", extensions.get("preventRecursion"))),
        by_recursion=not _flag(extensions.get("exclude_recursion", extensions.get("excludeRecursion"))),
        name=text_or_empty(raw.get("name")) or text_or_empty(raw.get("comment")),
        id=text_or_empty(raw.get("id", raw.get("uid"))),
    )


def _placement(raw: Document, extensions: Document, decorators: Decorators) -> tuple[EntryPosition, int, Role]:
    role: Role = decorators.role or _pick(_ROLES, extensions.get("role"))
    if decorators.depth is not None:
        return "at_depth", decorators.depth, role
    position = extensions.get("position", raw.get("position"))
    if position == _AT_DEPTH:
        return "at_depth", _first(_non_negative(extensions.get("depth")), 4), role
    before = position == "before_char" or (position == 0 and not isinstance(position, bool))
    return ("before_char" if before else "after_char"), 0, role


def _from_world_info(uid: str, raw: object) -> Document:
    """An entry of world info in the words of a character book; what has no word there is kept beside it."""
    entry = dict(as_object(raw))
    at = entry.pop("position", None)
    known = {
        "id": entry.pop("uid", uid),
        "keys": entry.pop("key", []),
        "secondary_keys": entry.pop("keysecondary", []),
        "content": entry.pop("content", ""),
        "enabled": not _flag(entry.pop("disable", None)),
        "insertion_order": entry.pop("order", 0),
        "selective": _flag(entry.pop("selective", None)),
        "constant": _flag(entry.pop("constant", None)),
        "comment": entry.pop("comment", ""),
        "use_regex": _flag(entry.pop("use_regex", None)),
        "position": "before_char" if at == 0 and not isinstance(at, bool) else "after_char",
    }
    extensions = {"selectiveLogic": 0, **entry}
    if at is not None:
        extensions["position"] = at
    return {**known, "extensions": extensions}


def _keys(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for item in value if (text := text_or_empty(item)).strip()]
    return comma_list(value) if isinstance(value, str) else []


def _flag(value: object, *, default: bool = False) -> bool:
    told = as_flag(value)
    return default if told is None else told


def _number(value: object, *, default: float) -> float:
    told = as_number(value)
    return default if told is None else told


def _non_negative(value: object) -> int | None:
    """A count that is not negative; a negative one means no limit where it is used."""
    told = as_number(value)
    return int(told) if told is not None and told >= 0 else None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _pick(options: tuple[Any, ...], at: object) -> Any:
    return options[at] if isinstance(at, int) and 0 <= at < len(options) else options[0]
