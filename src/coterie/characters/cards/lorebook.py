"""Lorebooks: entries of background knowledge that go into the prompt when their keys come up.

Three formats are read: the `character_book` of a card, the stand-alone `lorebook_v3`, and SillyTavern's world info
(entries by uid, with other field names). The document is kept as it was read; entries are derived from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, SkipValidation

from coterie.characters.cards.parsing import Document, as_flag, as_number, as_object, comma_list, text_or_empty
from coterie.characters.errors import NoSuchEntry, NotACard

Role = Literal["system", "user", "assistant"]
Section = Literal["before_desc", "after_desc", "personality", "scenario"]
UiPrompt = Literal["system_prompt", "post_history_instructions"]


class Decorators(NamedTuple):
    """Lines such as `@@depth 4` in an entry's content that set when it is used and where it goes."""

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
    """The decorators, and the content without them. A line with `@@@` is a fallback for an invalid one before it."""
    decorators: dict[str, object] = {}
    content_lines: list[str] = []
    accepted = True
    for line in content.splitlines(keepends=True):
        match = _LINE.fullmatch(line.strip())
        if not match:
            content_lines.append(line)
            accepted = True  # a fallback has to follow its decorator directly
        elif match["signs"] == "@@" or not accepted:
            accepted = _accept(decorators, match["name"].lower(), (match["value"] or "").strip())
    text = "".join(content_lines)
    return Decorators(**decorators), text if text == content else text.strip("\r\n")  # type: ignore[arg-type]


def _accept(decorators: dict[str, object], name: str, value: str) -> bool:
    """Add a decorator; False if it is unknown or invalid. The first of a name counts."""
    parse = _KNOWN.get(name)
    if parse is None:
        return False
    try:
        parsed = parse(value)
    except ValueError:
        return False
    decorators.setdefault(name, parsed)
    return True


def _present(value: str) -> bool:
    if value.lower() not in ("", "true"):
        raise ValueError
    return True


def _count(value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise ValueError
    return int(value)


def _depth(value: str) -> int:
    """A position among the messages; a negative one is the newest."""
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

# Without the `instruct_…` decorators, which are for prompts that are not chats: their fallbacks count.
_KNOWN: dict[str, Callable[[str], object]] = {
    "activate": _present,
    "dont_activate": _present,
    "activate_only_after": _count,
    "activate_only_every": _positive,
    "keep_activate_after_match": _present,
    "dont_activate_after_match": _present,
    "depth": _depth,
    "reverse_depth": _depth,
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


EntryPosition = Literal["before_char", "after_char", "at_depth"]
Logic = Literal["any", "not_all", "none", "all"]

_LOGICS: tuple[Logic, ...] = ("any", "not_all", "none", "all")
_ROLES: tuple[Role, ...] = ("system", "user", "assistant")
_AT_DEPTH = 4
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


class LorebookEntry(BaseModel):
    """A piece of lore and its keys."""

    model_config = ConfigDict(frozen=True)

    index: int
    key: str
    """Names the entry within its lorebook: its uid or id if that is unique, else its place."""
    keys: list[str]
    secondary_keys: list[str]
    content: str
    """The text for the prompt, without decorators."""
    decorators: Decorators
    enabled: bool
    insertion_order: float
    priority: float | None
    selective: bool
    logic: Logic
    constant: bool
    use_regex: bool
    plain_keys: bool
    """`use_regex` comes from a program that always sets it: only keys like `/…/i` are patterns."""
    case_sensitive: bool
    whole_words: bool
    position: EntryPosition
    depth: int
    role: Role
    scan_depth: int | None
    may_recurse: bool
    """Its content may match keys of other entries."""
    by_recursion: bool
    """Other entries' content may match its keys."""
    recursion_level: int
    """0: its keys are searched in the messages. Otherwise only in the content of others, from this round on."""
    probability: float
    """In percent, once its keys match."""
    sticky: int
    """For how many messages it stays after it matched."""
    cooldown: int
    """For how many messages it cannot match again after that."""
    delay: int
    """How many messages the chat must have."""
    groups: list[str]
    """Of the matching entries of a group, only one is used."""
    group_override: bool
    """It is chosen before the others of its group; among several, the highest insertion order."""
    group_weight: float
    group_scoring: bool
    """Of its group, only those with the most matching keys can be chosen."""
    name: str
    id: str


class _EntryPlace(NamedTuple):
    number: int
    at: Any
    """Its uid or index in the document."""
    raw: Document


class Lorebook(BaseModel):
    model_config = ConfigDict(frozen=True)

    document: SkipValidation[Document]
    """The lorebook as it was read (a `lorebook_v3` without its envelope)."""

    @classmethod
    def read(cls, document: Document) -> Lorebook:
        """Read a stand-alone lorebook of any format."""
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
        """All readable entries, in the order of the file."""
        return [_read_entry(place.number, key, place.raw) for key, place in self._places.items()]

    @cached_property
    def by_key(self) -> dict[str, LorebookEntry]:
        return {entry.key: entry for entry in self.entries}

    @property
    def is_world_info(self) -> bool:
        """Whether its entries have the field names of SillyTavern's world info."""
        first = next(iter(self._places.values()), None)
        return "key" in first.raw if first is not None else isinstance(self.document.get("entries"), dict)

    def raw_entry(self, key: str) -> Document:
        """An entry as it was read."""
        if key not in self._places:
            raise NoSuchEntry("This lorebook has no such entry.", "It may have been removed: reload the page.")
        return self._places[key].raw

    def with_entry(self, key: str, entry: Document | None) -> Lorebook:
        """The lorebook with an entry replaced, added at the end, or removed (None). Others stay as they were."""
        entries = self.document.get("entries")
        place = self._places.get(key)
        changed: Any = dict(entries) if isinstance(entries, dict) else list(entries or [])
        if entry is None:
            self.raw_entry(key)
            del changed[place.at if place else key]
        elif place is not None:
            changed[place.at] = entry
        elif isinstance(changed, dict):
            changed[key] = entry
        else:
            changed.append(entry)
        return Lorebook(document={**self.document, "entries": changed})

    def new_key(self) -> str:
        """A key that no entry has."""
        return str(max((int(key) for key in self._places if key.isdecimal()), default=-1) + 1)

    @cached_property
    def _places(self) -> dict[str, _EntryPlace]:
        """The readable entries as they were read, by key."""
        entries = self.document.get("entries")
        if isinstance(entries, dict):
            readable = [(uid, entry) for uid, entry in entries.items() if isinstance(entry, dict)]
            return {
                uid if _KEY.fullmatch(uid) else f"at-{index}": _EntryPlace(index, uid, entry)
                for index, (uid, entry) in enumerate(readable)
            }
        places: dict[str, _EntryPlace] = {}
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, dict):
                key = text_or_empty(entry.get("id", entry.get("uid")))
                key = key if _KEY.fullmatch(key) and key not in places else f"at-{index}"
                places[key] = _EntryPlace(index, index, entry)
        return places

    def standalone(self) -> Document:
        """The lorebook as a `lorebook_v3` document; world info is converted."""
        if isinstance(self.document.get("entries"), list):
            return {"spec": "lorebook_v3", "data": self.document}
        entries = [_from_world_info(uid, entry) for uid, entry in as_object(self.document["entries"]).items()]
        return {"spec": "lorebook_v3", "data": {"extensions": {}, **self.document, "entries": entries}}


def _read_entry(index: int, key: str, raw: Document) -> LorebookEntry:
    extensions = {**raw, **as_object(raw.get("extensions"))}
    # SillyTavern marks every exported entry as a pattern; its extensions have the actual value.
    from_tavern = "selectiveLogic" in extensions or "display_index" in extensions or "disable" in raw
    decorators, content = split_decorators(text_or_empty(raw.get("content")))
    place, depth, role = _placement(raw, extensions, decorators)
    return LorebookEntry(
        index=index,
        key=key,
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
        recursion_level=_level(extensions.get("delay_until_recursion", extensions.get("delayUntilRecursion"))),
        probability=_probability(extensions),
        sticky=_count_of(extensions.get("sticky")),
        cooldown=_count_of(extensions.get("cooldown")),
        delay=_count_of(extensions.get("delay")),
        groups=comma_list(text_or_empty(extensions.get("group"))),
        group_override=_flag(extensions.get("group_override", extensions.get("groupOverride"))),
        group_weight=max(_number(extensions.get("group_weight", extensions.get("groupWeight")), default=100), 0),
        group_scoring=_flag(extensions.get("use_group_scoring", extensions.get("useGroupScoring"))),
        name=text_or_empty(raw.get("name")) or text_or_empty(raw.get("comment")),
        id=text_or_empty(raw.get("id", raw.get("uid", key))),
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
    """An entry of world info with the field names of a character book; other fields go to the extensions."""
    entry = dict(as_object(raw))
    at = entry.pop("position", None)
    fields = {
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
    return {**fields, "extensions": extensions}


def _keys(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for item in value if (text := text_or_empty(item)).strip()]
    return comma_list(value) if isinstance(value, str) else []


def _flag(value: object, *, default: bool = False) -> bool:
    flag = as_flag(value)
    return default if flag is None else flag


def _number(value: object, *, default: float) -> float:
    number = as_number(value)
    return default if number is None else number


def _non_negative(value: object) -> int | None:
    """The number, or None for a negative one, which means no limit."""
    number = as_number(value)
    return int(number) if number is not None and number >= 0 else None


def _count_of(value: object) -> int:
    return min(_non_negative(value) or 0, 1_000_000)


def _level(value: object) -> int:
    """The recursion round from which an entry is searched: `true` is the first."""
    return int(value) if isinstance(value, bool) else _count_of(value)


def _probability(extensions: Document) -> float:
    if not _flag(extensions.get("useProbability", extensions.get("use_probability")), default=True):
        return 100
    return min(max(_number(extensions.get("probability"), default=100), 0), 100)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _pick(options: tuple[Any, ...], index: object) -> Any:
    return options[index] if isinstance(index, int) and 0 <= index < len(options) else options[0]
