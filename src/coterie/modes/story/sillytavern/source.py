"""SillyTavern's data folder: where its files are, and what is in each.

The folder is not trusted. Links are not followed, sizes are limited, and the functions that read a file's content are
pure, so that large files are read in worker processes.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar, cast, get_args

from coterie.base.errors import CoterieError
from coterie.base.folders import Folder
from coterie.base.values import is_text, replace_surrogates
from coterie.characters import (
    BrokenCard,
    Card,
    CardFormat,
    Lorebook,
    TavernChat,
    check_size,
    import_card,
    read_object,
    write_object,
)
from coterie.llm import Sampler, import_sillytavern

Document = dict[str, Any]
ItemKind = Literal[
    "preset",
    "persona",
    "character",
    "expression",
    "gallery picture",
    "lorebook",
    "chat",
    "group",
    "group chat",
    "quick replies",
    "other",
]
"""In the order in which they are imported: a chat or a picture needs its characters."""
MAX_FILES = 100_000
"""Files in one of the folders that are read."""

_KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
_MARKS = ("characters", "chats", "settings.json", "worlds", "group chats")
_PRESET_FOLDERS = ("TextGen Settings", "OpenAI Settings")
_NOT_TAKEN = {
    "backgrounds": "Backgrounds belong to places here: Story details → Scene → Choose a background.",
    "thumbnails": "Small copies of pictures, which are not needed.",
    "backups": "Older copies of chats. To take one, put it into the folder of its character.",
    "themes": "The page has its own light and dark theme.",
    "movingUI": "Positions of windows on SillyTavern's page.",
    "extensions": "Extensions are programs for SillyTavern.",
    "assets": "Files of SillyTavern's extensions.",
    "user": "Files and workflows of extensions.",
    "vectors": "Search indexes; memories here get their own.",
    "instruct": "Templates for prompts; Coterie uses the chat template of the model.",
    "context": "Templates for prompts; Coterie builds its own, which the prompt inspector shows.",
    "sysprompt": "Instructions to models are in Settings → Models → Instructions.",
    "reasoning": "Templates for thinking models, which are recognised without them.",
    "KoboldAI Settings": "Presets of a program that is not supported.",
    "NovelAI Settings": "Presets of a service that is not supported.",
    "User Avatars": "Pictures of personas; personas have their name and text here.",
}


class NotSillyTavern(CoterieError):
    """The folder has none of the files that SillyTavern keeps."""


@dataclass(frozen=True)
class SourceItem:
    """Something in the folder that is taken or left."""

    kind: ItemKind
    path: str
    """Relative to the folder; with `#` and a name for one of several things in a file."""
    name: str
    size: int = 0
    why_left: str = ""
    """Why it is not taken; empty if it is to be."""
    members: tuple[str, ...] = ()
    """Of a group chat: the file names of its characters."""

    @property
    def file(self) -> str:
        return self.path.partition("#")[0] if self.kind == "persona" else self.path


@dataclass
class Source:
    """What a data folder has."""

    folder: Path
    items: list[SourceItem] = field(default_factory=list)


def find_data_folder(path: Path) -> Path:
    """The folder of one user in a folder that a person named: itself, or one in `data` of the installation."""
    path = path.expanduser().absolute()
    if not path.is_dir():
        raise NotSillyTavern(f"{path} is not a folder.", "Name SillyTavern's folder, or data/default-user in it.")
    candidates = [path, path / "default-user", path / "data" / "default-user", path / "public"]
    users = [folder for folder in candidates if _is_user_folder(folder)]
    if not users:
        data = path / "data" if (path / "data").is_dir() else path
        users = sorted(folder for folder in data.iterdir() if _is_user_folder(folder))
        if len(users) > 1:
            names = ", ".join(folder.name for folder in users[:10])
            raise NotSillyTavern(f"{data} has the data of several users: {names}.", "Name the folder of one of them.")
    if not users:
        raise NotSillyTavern(
            f"{path} has no data of SillyTavern.",
            "Name the folder that has `characters` and `chats` in it: usually SillyTavern/data/default-user.",
        )
    return users[0]


def _is_user_folder(folder: Path) -> bool:
    return not folder.is_symlink() and sum((folder / name).exists() for name in _MARKS) >= 2


def scan(folder: Path) -> Source:
    """List everything in a data folder, without reading more than the groups and the settings."""
    source = Source(folder)
    with Folder.open(folder) as opened:
        top = {entry.name: entry for entry in opened.entries()}
        for name, entry in top.items():
            if stat.S_ISLNK(entry.status.st_mode):
                source.items.append(SourceItem("other", name, name, why_left=_LINK))
            elif name in _NOT_TAKEN and entry.is_folder and (files := _count_others(opened, name)):
                source.items.append(SourceItem("other", name, f"{name} ({files} files)", why_left=_NOT_TAKEN[name]))
        folders = {name for name, entry in top.items() if entry.is_folder}
        source.items += [
            item for name in _PRESET_FOLDERS if name in folders for item in _listed(opened, name, "preset", ".json")
        ]
        if "secrets.json" in top:
            why = "Keys are not read. Enter them in Settings → Models."
            source.items.append(SourceItem("other", "secrets.json", "secrets.json", why_left=why))
        if "settings.json" in top and top["settings.json"].is_file:
            source.items += _personas(opened)
        if "characters" in folders:
            source.items += _listed(opened, "characters", "character", ".png", ".json", ".charx", ".jpeg", ".jpg")
            source.items += _pictures(opened, "characters")
        if "user" in folders:
            source.items += _pictures(opened, "user")
        if "worlds" in folders:
            source.items += _listed(opened, "worlds", "lorebook", ".json")
        if "chats" in folders:
            source.items += _listed(opened, "chats", "chat", ".jsonl", depth=2)
        groups = list(_listed(opened, "groups", "group", ".json")) if "groups" in folders else []
        source.items += groups
        if "group chats" in folders:
            members = _group_members(opened, groups)
            for item in _listed(opened, "group chats", "group chat", ".jsonl"):
                name, avatars = members.get(item.name, ("", ()))
                shown = f"{name} · {item.name}" if name else item.name
                source.items.append(SourceItem(item.kind, item.path, shown, item.size, item.why_left, avatars))
        if "QuickReplies" in folders:
            source.items += _listed(opened, "QuickReplies", "quick replies", ".json")
    source.items[:] = map(_with_storable_path, source.items)
    source.items.sort(key=lambda item: (_KINDS.index(item.kind), item.path))
    return source


def _with_storable_path(item: SourceItem) -> SourceItem:
    """A path whose bytes are not UTF-8 can be neither stored nor shown: such a file is left."""
    if is_text(item.path):
        return item
    path, name = (text.encode(errors="backslashreplace").decode() for text in (item.path, item.name))
    return SourceItem(item.kind, path, name, item.size, why_left="Its name is not valid UTF-8. Rename the file.")


_PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


def _picture_kind(path: str) -> ItemKind | None:
    """What a file is by its path, if it is a picture of a character: `characters/Nils/joy.png`."""
    pure = PurePosixPath(path)
    if pure.suffix.lower() in _PICTURE_ENDINGS:
        if pure.parts[0] == "characters" and len(pure.parts) == 3:
            return "expression"
        if pure.parts[:2] == ("user", "images") and len(pure.parts) == 4:
            return "gallery picture"
    return None


def _pictures(opened: Folder, folder: str) -> Iterator[SourceItem]:
    for path, size, plain in _files(opened, folder, depth=8):
        if (kind := _picture_kind(path)) is not None:
            pure = PurePosixPath(path)
            yield SourceItem(kind, path, f"{pure.parts[-2]}: {pure.stem}", size, "" if plain else _LINK)


def _count_others(opened: Folder, folder: str) -> int:
    return sum(_picture_kind(path) is None for path, _, _ in _files(opened, folder, depth=8))


_LINK = "It is a symbolic link, which is not followed. Put the file itself there."


def _files(opened: Folder, name: str, depth: int) -> Iterator[tuple[str, int, bool]]:
    """The path, size and kind (whether it is a plain file) of everything in a folder that is not a folder itself."""
    with opened.subfolder(name) as inner:
        for number, entry in enumerate(inner.walk(max_depth=depth, by_name=True)):
            if number > MAX_FILES:
                raise NotSillyTavern(
                    f"{name} has more than {MAX_FILES:,} files.", "Move some of them elsewhere, and import in parts."
                )
            if not entry.is_folder:
                yield f"{name}/{entry.path}", entry.status.st_size, entry.is_file


def _listed(opened: Folder, folder: str, kind: ItemKind, *endings: str, depth: int = 1) -> Iterator[SourceItem]:
    extra: Counter[str] = Counter()
    for path, size, plain in _files(opened, folder, depth=max(depth, 2)):
        pure = PurePosixPath(path)
        if _picture_kind(path) is not None:
            continue  # listed on its own
        if len(pure.parts) - 1 > depth:
            extra["/".join(pure.parts[: depth + 1])] += 1
        elif not plain:
            yield SourceItem(kind, path, pure.stem, why_left=_LINK)
        elif pure.suffix.lower() not in endings or len(pure.parts) - 1 != depth:
            yield SourceItem("other", path, pure.name, size, "It is not a file of the kind that belongs here.")
        else:
            yield SourceItem(kind, path, pure.stem, size)
    for path, number in extra.items():
        yield SourceItem("other", path, f"{path} ({number} files)", why_left="Not known.")


def read_file(folder: Path, path: str) -> bytes:
    """The content of a file of the data folder. Raises `CoterieError` or `OSError`."""
    with Folder.open(folder) as opened, opened.open_file(path) as file:
        data = file.read(_MAX_BYTES + 1)
    check_size(len(data))
    return data


_MAX_BYTES = 100_000_000


def _group_members(opened: Folder, groups: Sequence[SourceItem]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Chat → the name of its group, and the file names of the characters in it."""
    members: dict[str, tuple[str, tuple[str, ...]]] = {}
    for item in groups:
        try:
            group = read_group(opened.read(item.path, 8_000_000))
        except (CoterieError, OSError):
            continue  # reported when it is imported
        for chat in group.chats:
            members[chat] = (group.name or item.name, group.members)
    return members


def _personas(opened: Folder) -> list[SourceItem]:
    try:
        personas = read_personas(opened.read("settings.json", _MAX_BYTES))
    except (CoterieError, OSError) as error:
        why = error.what if isinstance(error, CoterieError) else str(error)
        return [SourceItem("persona", "settings.json#", "settings.json", why_left=why)]
    return [SourceItem("persona", f"settings.json#{one.key}", one.name) for one in personas]


# The content of files. These functions are pure, and run in worker processes: what they import is loaded there.


_Json = TypeVar("_Json")


def storable(value: _Json) -> _Json:
    """The value of a file with lone surrogates replaced, which cannot be stored."""
    text = json.dumps(value, ensure_ascii=False)
    return value if is_text(text) else cast(_Json, json.loads(replace_surrogates(text)))


def lines_digest(messages: Sequence[Document]) -> str:
    """The same for the same messages."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(write_object(message))
    return digest.hexdigest()


def read_chat_file(data: bytes) -> TavernChat:
    chat = TavernChat.read(data)
    _ = chat.turns  # kept by the chat
    return chat


@dataclass(frozen=True)
class TavernCharacter:
    card: Card
    """Without its files, which stay in the file."""
    kind: CardFormat
    notes: list[str]
    checksum: str
    """The same as long as the character and its picture are."""
    entries: int
    """Of its lorebook."""


def read_character(data: bytes, name: str) -> TavernCharacter:
    imported = import_card(data, name)
    card = imported.card
    # SillyTavern writes the name of the open chat into the file.
    document = {key: value for key, value in card.document.items() if key != "chat"}
    digest = hashlib.sha256(write_object(document))
    digest.update(card.picture or b"")
    return TavernCharacter(
        card=Card.read(storable(card.document)),
        kind=imported.format,
        notes=imported.notes,
        checksum=digest.hexdigest(),
        entries=len(card.lorebook.entries) if card.lorebook else 0,
    )


@dataclass(frozen=True)
class TavernGroup:
    name: str
    members: tuple[str, ...]
    chats: tuple[str, ...]
    document: Document


def read_group(data: bytes) -> TavernGroup:
    document = read_object(data, "The group")
    if not isinstance(document.get("members"), list):
        raise BrokenCard("The group has no `members`.", "Save it again in SillyTavern.")

    def texts(name: str) -> tuple[str, ...]:
        listed = document.get(name)
        return tuple(one for one in listed if isinstance(one, str)) if isinstance(listed, list) else ()

    name = document.get("name")
    return TavernGroup(name if isinstance(name, str) else "", texts("members"), texts("chats"), storable(document))


@dataclass(frozen=True)
class TavernPersona:
    key: str
    """The file name of its picture."""
    name: str
    description: str
    default: bool

    @property
    def document(self) -> Document:
        return {"key": self.key, "name": self.name, "description": self.description, "default": self.default}


def read_personas(data: bytes) -> list[TavernPersona]:
    """The personas in SillyTavern's settings, the default first. A name without a persona counts as one."""
    settings = storable(read_object(data, "The settings"))
    power = settings.get("power_user")
    power = power if isinstance(power, dict) else {}
    names, described = power.get("personas"), power.get("persona_descriptions")
    default = power.get("default_persona") or settings.get("user_avatar")
    found = []
    for key, name in names.items() if isinstance(names, dict) else ():
        about = described.get(key) if isinstance(described, dict) else None
        text = about.get("description") if isinstance(about, dict) else about
        if isinstance(name, str) and name.strip():
            found.append(TavernPersona(str(key), name, text if isinstance(text, str) else "", key == default))
    username = settings.get("username")
    if not found and isinstance(username, str) and username.strip() not in ("", "User", "You"):
        text = power.get("persona_description")
        found.append(TavernPersona("user", username, text if isinstance(text, str) else "", True))
    return sorted(found, key=lambda one: (not one.default, one.name, one.key))


@dataclass(frozen=True)
class TavernBook:
    document: Document
    entries: int


def read_book(data: bytes) -> TavernBook:
    document = storable(read_object(data, "The lorebook"))
    return TavernBook(document, len(Lorebook.read(document).entries))


@dataclass(frozen=True)
class TavernPreset:
    sampler: Sampler
    unused: list[str]


def read_preset(data: bytes) -> TavernPreset:
    return TavernPreset(*import_sillytavern(data))


def read_quick_replies(data: bytes) -> Document:
    return storable(read_object(data, "The quick replies"))


@dataclass(frozen=True)
class TavernChatFile:
    chat: TavernChat
    checksum: str


def read_chat(data: bytes) -> TavernChatFile:
    chat = read_chat_file(data)
    return TavernChatFile(chat, lines_digest(chat.messages))


_MAX_NOTE = 20_000


def author_note(header: Document) -> dict[str, Any]:
    """The author's note of a chat, as its first line has it; empty if there is none."""
    metadata = header.get("chat_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    text, depth, role = (metadata.get(name) for name in ("note_prompt", "note_depth", "note_role"))
    if not isinstance(text, str) or not text.strip():
        return {}
    at_depth = metadata.get("note_position", 1) == 1
    return {
        "text": text[:_MAX_NOTE],
        "depth": depth if isinstance(depth, int) and 0 <= depth <= 100 and at_depth else 4,
        "role": ("system", "user", "assistant")[role] if isinstance(role, int) and role in (0, 1, 2) else "system",
    }
