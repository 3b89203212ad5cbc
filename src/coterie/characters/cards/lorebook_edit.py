"""Editing lorebooks: the fields of an entry as a form shows them, written back under the names of the book's format.

Only fields that changed are written. Everything else of the document stays as it was read.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from coterie.base.values import Prose, Text
from coterie.characters.cards.lorebook import EntryPosition, Logic, Lorebook, LorebookEntry, Role
from coterie.characters.cards.parsing import Document, as_object, text_or_empty

_Key = Annotated[Text, StringConstraints(min_length=1, max_length=2_000)]
_Keys = Annotated[list[_Key], Field(max_length=500)]
_Count = Annotated[int, Field(ge=0, le=1_000_000)]


class EntryFields(BaseModel):
    """What can be edited of an entry."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Annotated[Text, StringConstraints(max_length=500)] = ""
    keys: _Keys = []
    """Words, or patterns such as `/l[ae]mp/i`."""
    secondary_keys: _Keys = []
    logic: Logic = "any"
    """How many secondary keys must occur: `any`, `all`, `none`, or `not_all`."""
    content: Prose = ""
    """What the model is told, with decorators such as `@@depth 4`."""
    enabled: bool = True
    constant: bool = False
    """Used whether or not a key occurs."""
    position: EntryPosition = "before_char"
    depth: _Count = 4
    """Messages from the newest, if the position is `at_depth`."""
    role: Role = "system"
    insertion_order: Annotated[float, Field(allow_inf_nan=False)] = 100
    probability: Annotated[float, Field(ge=0, le=100)] = 100
    sticky: _Count = 0
    cooldown: _Count = 0
    delay: _Count = 0
    groups: Annotated[list[Annotated[Text, StringConstraints(min_length=1, max_length=200)]], Field(max_length=50)] = []
    group_override: bool = False
    group_weight: Annotated[float, Field(ge=0, le=1_000_000)] = 100
    group_scoring: bool = False
    scan_depth: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    case_sensitive: bool = False
    whole_words: bool = False
    may_recurse: bool = True
    """Its content may match keys of other entries."""
    by_recursion: bool = True
    """The content of other entries may match its keys."""
    recursion_level: _Count = 0
    """Above 0: only the content of other entries is searched, from this round on."""


class BookFields(BaseModel):
    """What can be edited of a lorebook itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[Text, StringConstraints(max_length=200)] = ""
    description: Annotated[Text, StringConstraints(max_length=10_000)] = ""
    scan_depth: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    token_budget: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    recursive_scanning: bool = False


def book_fields(book: Lorebook) -> BookFields:
    return BookFields.model_construct(
        name=book.name,
        description=text_or_empty(book.document.get("description")),
        scan_depth=book.scan_depth,
        token_budget=book.token_budget,
        recursive_scanning=book.recursive_scanning,
    )


def with_book_fields(book: Lorebook, fields: BookFields) -> Lorebook:
    before = book_fields(book)
    document = dict(book.document)
    for name in BookFields.model_fields:
        value = getattr(fields, name)
        if value == getattr(before, name):
            continue
        document[name] = value
        if value is None:
            del document[name]
    return Lorebook(document=document)


def entry_fields(book: Lorebook, key: str) -> EntryFields:
    """The fields of an entry. What was read may exceed the limits for saving."""
    raw = book.raw_entry(key)
    return _fields(book.by_key[key], raw)


def with_entry_fields(book: Lorebook, key: str, fields: EntryFields) -> Lorebook:
    """The lorebook with the changed fields of an entry; a key that no entry has adds one."""
    if key not in book.by_key:
        return book.with_entry(key, _new_entry(book, key, fields))
    for _ in range(2):  # again if the former content set fields by decorators
        before = entry_fields(book, key)
        changes = {name: value for name, value in fields.model_dump().items() if value != getattr(before, name)}
        if not changes:
            break
        raw = book.raw_entry(key)
        book = book.with_entry(key, _with_changes(raw, changes, fields, world_info=book.is_world_info))
    return book


def as_world_info(book: Lorebook) -> Document:
    """The lorebook as SillyTavern's world info; one that is so already stays as it is."""
    if book.is_world_info and isinstance(book.document.get("entries"), dict):
        return book.document
    entries: Document = {}
    for number, entry in enumerate(book.entries):
        raw = book.raw_entry(entry.key)
        empty: Document = {"uid": number, "key": [], "keysecondary": [], "comment": "", "content": ""}
        values = _fields(entry, raw).model_dump()
        entries[str(number)] = {
            **{name: value for name, value in as_object(raw.get("extensions")).items() if name not in _CARD_NAMES},
            **_with_changes(empty, values, EntryFields.model_construct(**values), world_info=True),
        }
    kept = {name: value for name, value in book.document.items() if name != "entries"}
    return {**kept, "entries": entries}


# attribute → its name in world info, and its name in the extensions of a card's entry
_NAMES: dict[str, tuple[str, str]] = {
    "depth": ("depth", "depth"),
    "probability": ("probability", "probability"),
    "sticky": ("sticky", "sticky"),
    "cooldown": ("cooldown", "cooldown"),
    "delay": ("delay", "delay"),
    "group_override": ("groupOverride", "group_override"),
    "group_weight": ("groupWeight", "group_weight"),
    "group_scoring": ("useGroupScoring", "use_group_scoring"),
    "scan_depth": ("scanDepth", "scan_depth"),
    "whole_words": ("matchWholeWords", "match_whole_words"),
    "recursion_level": ("delayUntilRecursion", "delay_until_recursion"),
}
_CARD_NAMES = {
    *(name for _, name in _NAMES.values()),
    *("position", "role", "selectiveLogic", "group", "useProbability", "prevent_recursion", "exclude_recursion"),
    "case_sensitive",
}
_POSITIONS: dict[EntryPosition, int] = {"before_char": 0, "after_char": 1, "at_depth": 4}
_ROLES: dict[Role, int] = {"system": 0, "user": 1, "assistant": 2}
_LOGICS: dict[Logic, int] = {"any": 0, "not_all": 1, "none": 2, "all": 3}


def _fields(entry: LorebookEntry, raw: Document) -> EntryFields:
    values = {name: getattr(entry, name) for name in EntryFields.model_fields}
    values["content"] = text_or_empty(raw.get("content"))
    if entry.position != "at_depth":
        values["depth"] = EntryFields().depth
    return EntryFields.model_construct(**values)


def _new_entry(book: Lorebook, key: str, fields: EntryFields) -> Document:
    if book.is_world_info:
        empty: Document = {
            "uid": int(key),
            "key": [],
            "keysecondary": [],
            "comment": "",
            "content": "",
            "disable": False,
        }
        changes = fields.model_dump()
    else:
        empty = {"id": int(key), "keys": [], "content": "", "enabled": True, "insertion_order": 100, "extensions": {}}
        # The logic marks the entry as one whose keys are words, with patterns between slashes.
        empty["extensions"] = {"selectiveLogic": 0}
        empty |= {"use_regex": False, "selective": True, "secondary_keys": [], "constant": False, "comment": ""}
        changes = fields.model_dump()
        defaults = EntryFields()
        changes = {
            name: value
            for name, value in changes.items()
            if value != getattr(defaults, name) or name in ("position", "insertion_order", "keys")
        }
    return _with_changes(empty, changes, fields, world_info=book.is_world_info)


def _with_changes(raw: Document, changes: Document, fields: EntryFields, *, world_info: bool) -> Document:
    entry, extensions = dict(raw), dict(as_object(raw.get("extensions")))
    names = extensions if not world_info else entry
    for name, value in changes.items():
        match name:
            case "name":
                # A card's entry may have both; the name is what is shown.
                entry["name" if raw.get("name") and not world_info else "comment"] = value
            case "keys":
                entry["key" if world_info else "keys"] = value
            case "secondary_keys":
                entry["keysecondary" if world_info else "secondary_keys"] = value
                entry["selective"] = bool(value) or bool(raw.get("selective"))
            case "content" | "constant":
                entry[name] = value
            case "insertion_order":
                entry["order" if world_info else "insertion_order"] = value
            case "enabled":
                entry["disable" if world_info else "enabled"] = not value if world_info else value
            case "case_sensitive":
                entry["caseSensitive" if world_info else "case_sensitive"] = value
            case "logic":
                names["selectiveLogic"] = _LOGICS[value]
            case "role":
                names["role"] = _ROLES[value]
            case "groups":
                names["group"] = ",".join(value)
            case "may_recurse":
                names["preventRecursion" if world_info else "prevent_recursion"] = not value
            case "by_recursion":
                names["excludeRecursion" if world_info else "exclude_recursion"] = not value
            case "position":
                _set_position(entry, extensions, value, world_info=world_info)
            case _:
                names[_NAMES[name][0 if world_info else 1]] = value
    if "probability" in changes:
        names["useProbability"] = True
    if fields.position == "at_depth" and ("position" in changes or "depth" in changes):
        names["depth"] = fields.depth
    if extensions or "extensions" in raw:
        entry["extensions"] = extensions
    return entry


def _set_position(entry: Document, extensions: Document, position: EntryPosition, *, world_info: bool) -> None:
    if world_info:
        entry["position"] = _POSITIONS[position]
        return
    entry["position"] = "before_char" if position == "before_char" else "after_char"
    if position == "at_depth" or "position" in extensions:
        extensions["position"] = _POSITIONS[position]


def empty_book(name: str) -> Document:
    """A new lorebook, in the format of cards."""
    document: dict[str, Any] = {"name": name, "recursive_scanning": False, "extensions": {}, "entries": []}
    return document
