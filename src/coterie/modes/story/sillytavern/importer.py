"""Imports a whole SillyTavern data folder, item by item.

Each item is one transaction with the record of it, so that an import can be interrupted at any point and continued, and
repeated without doubles. An item that cannot be read is left with the reason, and the import goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar, get_args

from coterie.base.errors import ConfirmationNeeded, CoterieError, StorageError, WorkersBusy
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.offload import run_limited
from coterie.characters import (
    OWNER,
    Character,
    CharacterAuthored,
    Identity,
    Lorebooks,
    NoSuchCharacter,
    OwnerProfile,
    Personas,
    PictureFiles,
    PictureUse,
    UserPersona,
    check_identity,
    picture_event,
)
from coterie.eventstore import Job, JobResult, NewEvent, NewJob, Store
from coterie.llm import Sampler
from coterie.memory import Memory
from coterie.modes.story.archive import CharacterImporter
from coterie.modes.story.chat_model.choices import AuthorNote, ChatModelSet, ModelChoice
from coterie.modes.story.opening import Opening
from coterie.modes.story.service import StoryService
from coterie.modes.story.sillytavern import source
from coterie.modes.story.sillytavern.chats import ChatConversion, SpeakerOf, begin_group
from coterie.modes.story.sillytavern.records import (
    ImportedItem,
    ImportEnded,
    ImportQueries,
    ImportRun,
    ImportStarted,
    ItemImported,
    Outcome,
    import_stream,
)
from coterie.modes.story.sillytavern.source import ItemKind, NotSillyTavern, SourceItem, TavernPersona

IMPORT_JOB = "sillytavern_import"
ITEM_KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
_USUAL_PLACES = ("SillyTavern", "Documents/SillyTavern", "Downloads/SillyTavern", "SillyTavern-Launcher/SillyTavern")
_LARGE = 1_000_000
"""Work that is not measured by one file runs in a worker process, as for a file of this size."""

_log = get_logger(__name__)
_T = TypeVar("_T")
OnItem = Callable[[ItemImported], None]


class SamplerPresets(Protocol):
    """Where sampler presets are saved."""

    def samplers(self) -> Mapping[str, Sampler]: ...

    async def save_sampler(self, name: str, sampler: Sampler) -> None: ...


@dataclass(frozen=True)
class PreviewItem:
    kind: ItemKind
    path: str
    name: str
    size: int
    before: bool
    """It was taken from this folder before, and is taken again only if it changed."""
    why_left: str


@dataclass(frozen=True)
class Preview:
    folder: Path
    items: list[PreviewItem]

    @property
    def kinds(self) -> dict[ItemKind, int]:
        """How many items of each kind would be taken."""
        counts = {kind: sum(one.kind == kind and not one.why_left for one in self.items) for kind in ITEM_KINDS}
        return {kind: number for kind, number in counts.items() if number}


@dataclass(frozen=True)
class _Result:
    """What was done with an item, and the events that do it."""

    outcome: Outcome
    notes: Sequence[str] = ()
    checksum: str = ""
    target: str = ""
    counts: Mapping[str, int] | None = None
    document: dict[str, object] | None = None
    new_events: Sequence[NewEvent] = ()
    expect: Mapping[str, int] | None = None


class SillyTavernImporter:
    def __init__(
        self,
        store: Store,
        story: StoryService,
        memory: Memory,
        characters: CharacterImporter,
        presets: SamplerPresets,
        personas: Personas,
        pictures: PictureFiles,
        lorebooks: Lorebooks,
        drop_folder: Path,
    ) -> None:
        """`drop_folder` is one in the data folder, from which the page may import without a confirmation."""
        self.queries = ImportQueries(store)
        self.drop_folder = drop_folder
        self._store = store
        self._story = story
        self._memory = memory
        self._characters = characters
        self._presets = presets
        self._personas = personas
        self._pictures = pictures
        self._lorebooks = lorebooks
        self._one_at_a_time = asyncio.Lock()

    def handlers(self) -> dict[str, Callable[[Job], Awaitable[JobResult | None]]]:
        return {IMPORT_JOB: self.run_job}

    # --- what there is -----------------------------------------------------------------------------------------

    def found_folders(self) -> list[Path]:
        """Data folders of SillyTavern in the usual places of this machine."""
        found: dict[Path, None] = {}
        for place in (self.drop_folder, *(Path.home() / name for name in _USUAL_PLACES)):
            try:
                found[source.find_data_folder(place)] = None
            except (NotSillyTavern, OSError):
                continue
        return list(found)

    async def preview(self, folder: str, *, confirmed: bool) -> Preview:
        """What would be taken. A folder that was not found in a usual place is a `ConfirmationNeeded`."""
        data_folder = await self._data_folder(folder, confirmed)
        items = [
            PreviewItem(
                item.kind,
                item.path,
                item.name,
                item.size,
                self.queries.last(str(data_folder), item.kind, item.path) is not None,
                item.why_left,
            )
            for item in await self._scan(data_folder)
        ]
        return Preview(data_folder, items)

    async def start(self, folder: str, kinds: Sequence[str] = ITEM_KINDS, *, confirmed: bool) -> str:
        """Start an import, which a job continues after a restart. Returns its id; one that is not finished goes on."""
        data_folder = await self._data_folder(folder, confirmed)
        chosen = tuple(kind for kind in ITEM_KINDS if kind in kinds)
        for run in self.queries.unfinished():
            if run.folder == str(data_folder) and run.kinds == chosen:
                return run.id
        items = _chosen(await self._scan(data_folder), chosen)
        run_id = new_id()
        started = ImportStarted(folder=str(data_folder), kinds=chosen, items=len(items))
        await self._store.append(
            [NewEvent(import_stream(run_id), started, OWNER)],
            jobs=[NewJob(IMPORT_JOB, key=f"{IMPORT_JOB}:{run_id}", payload={"import": run_id})],
        )
        return run_id

    async def _data_folder(self, folder: str, confirmed: bool) -> Path:
        if not confirmed and not await asyncio.to_thread(self._was_found, folder):
            # Before the folder is looked for: whether it exists is not for the page to know.
            raise ConfirmationNeeded(
                f"{folder[:200]} is not a place where Coterie looks for SillyTavern.",
                f"Import it in the terminal: coterie import {folder[:200]}",
            )
        return await asyncio.to_thread(source.find_data_folder, Path(folder))

    def _was_found(self, folder: str) -> bool:
        try:
            return Path(folder) in self.found_folders()
        except (OSError, ValueError):
            return False

    async def _scan(self, folder: Path) -> list[SourceItem]:
        return (await run_limited("Reading the folder", _LARGE, source.scan, folder)).items

    # --- the import --------------------------------------------------------------------------------------------

    async def run_job(self, job: Job) -> JobResult | None:
        await self.run(str(job.payload["import"]))
        return None

    async def run(self, run_id: str, on_item: OnItem = lambda item: None) -> None:
        """Deal with all items that are left of an import."""
        async with self._one_at_a_time:
            run = self.queries.run(run_id)
            if run is None or run.ended is not None:
                return
            try:
                items = _chosen(await self._scan(Path(run.folder)), run.kinds)
            except (NotSillyTavern, OSError) as error:
                await self._end(run_id, str(error))
                return
            done = {(one.item, one.path) for one in self.queries.items(run_id)}
            for item in items:
                if (item.kind, item.path) not in done:
                    on_item(await self._take(run, item))
            await self._end(run_id)

    async def _end(self, run_id: str, failed: str = "") -> None:
        ended = NewEvent(import_stream(run_id), ImportEnded(failed=failed), OWNER, key=f"import-ended:{run_id}")
        await self._store.append([ended])

    async def _take(self, run: ImportRun, item: SourceItem) -> ItemImported:
        try:
            result = _Result("left", (item.why_left,)) if item.why_left else await self._read(run, item)
            return await self._record(run, item, result)
        except (StorageError, WorkersBusy):
            raise
        except CoterieError as error:
            why = f"{error.what} {error.fix}"
        except OSError as error:
            why = f"It cannot be read: {error.strerror or error}."
        except Exception as error:
            _log.exception("an item was not imported", kind=item.kind, path=item.path)
            why = f"It could not be imported ({type(error).__name__})."
        return await self._record(run, item, _Result("left", (why,)))

    async def _record(self, run: ImportRun, item: SourceItem, result: _Result) -> ItemImported:
        payload = ItemImported(
            item=item.kind,
            path=item.path,
            name=item.name,
            outcome=result.outcome,
            notes=tuple(result.notes),
            checksum=result.checksum,
            target=result.target,
            counts=dict(result.counts or {}),
            document=result.document,
        )
        key = f"import:{run.id}:{item.kind}:{item.path}"
        recorded = NewEvent(import_stream(run.id), payload, OWNER, key=key)
        await asyncio.to_thread(
            self._store.append_blocking, [*result.new_events, recorded], expect=result.expect or None
        )
        return payload

    async def _read(self, run: ImportRun, item: SourceItem) -> _Result:
        match item.kind:
            case "preset":
                return await self._preset(run, item)
            case "persona":
                return await self._persona(run, item)
            case "character":
                return await self._character(run, item)
            case "expression" | "gallery picture":
                return await self._picture(run, item)
            case "lorebook":
                return await self._lorebook(run, item)
            case "chat":
                return await self._chat(run, item)
            case "group":
                return await self._group(run, item)
            case "group chat":
                return await self._group_chat(run, item)
            case "quick replies":
                return await self._quick_replies(run, item)
            case "other":
                return _Result("left", ("It is not known.",))

    async def _parse(self, run: ImportRun, item: SourceItem, what: str, read: Callable[..., _T], *more: object) -> _T:
        """The content of a file, read in a worker process if it is large."""
        data = await asyncio.to_thread(source.read_file, Path(run.folder), item.file)
        return await run_limited(what, len(data), read, data, *more)

    def _known(self, item: SourceItem, checksum: str) -> ImportedItem | None:
        return self.queries.find(item.kind, item.path, checksum)

    # --- presets, personas, lorebooks, quick replies -----------------------------------------------------------

    async def _preset(self, run: ImportRun, item: SourceItem) -> _Result:
        preset = await self._parse(run, item, "Reading the preset", source.read_preset)
        checksum = _checksum(preset.sampler.model_dump_json())
        existing = self._presets.samplers()
        known = self._known(item, checksum)
        if known is not None and known.target in existing:
            return _Result("known", checksum=checksum, target=known.target)
        name = item.name
        number = 2
        while name in existing and existing[name] != preset.sampler:
            name, number = f"{item.name} ({number})", number + 1
        if name not in existing:
            await self._presets.save_sampler(name, preset.sampler)
        counts = {"values": len(preset.sampler.chosen())}
        return _Result("taken", (), checksum, name, counts)

    async def _persona(self, run: ImportRun, item: SourceItem) -> _Result:
        personas = await self._parse(run, item, "Reading the settings", source.read_personas)
        persona = next((one for one in personas if item.path.endswith(f"#{one.key}")), None)
        if persona is None:
            return _Result("left", ("It is no longer in the settings.",))
        checksum = _checksum(repr(persona))
        if self._known(item, checksum) is not None:
            return _Result("known", checksum=checksum)
        earlier = self.queries.last(run.folder, item.kind, item.path)
        characters = self._story.context.characters
        if earlier is None and not characters.has_owner_profile():
            # The first persona becomes the profile of an owner who has none.
            await characters.save_owner(OwnerProfile(name=persona.name, persona=persona.description))
            return _Result("taken", (), checksum, OWNER, document=dict(persona.document))
        if earlier is not None and earlier.target == OWNER:
            why = "It became your profile in an earlier import and changed since. Change your profile by hand."
            return _Result("left", (why,), checksum, OWNER, document=dict(persona.document))
        persona_id = earlier.target if earlier is not None and earlier.target else _derived_id(run, item.path)
        picture = await asyncio.to_thread(self._persona_picture, Path(run.folder), persona)
        saved = UserPersona(persona_id, persona.name, "", persona.description, picture)
        notes = ("It changed since the last import.",) if earlier is not None and earlier.target else ()
        new_events = [self._personas.save_event(saved)]
        outcome: Outcome = "changed" if notes else "taken"
        return _Result(outcome, notes, checksum, persona_id, document=dict(persona.document), new_events=new_events)

    def _persona_picture(self, folder: Path, persona: TavernPersona) -> str:
        """The id of a persona's picture; empty if it has none that can be used."""
        try:
            return self._pictures.save(source.read_file(folder, f"User Avatars/{persona.key}"))
        except (CoterieError, OSError):
            return ""

    async def _lorebook(self, run: ImportRun, item: SourceItem) -> _Result:
        book = await self._parse(run, item, "Reading the lorebook", source.read_book)
        checksum = _checksum(repr(book.document))
        counts = {"entries": book.entries}
        if (known := self._known(item, checksum)) is not None:
            return _Result("known", checksum=checksum, target=known.target, counts=counts)
        earlier = self.queries.last(run.folder, item.kind, item.path)
        if earlier is not None:
            why = "It changed since the last import, and is a new lorebook beside the earlier one."
            notes: tuple[str, ...] = (why,)
        else:
            notes = ()
        users = self._characters_with_book(item.name)
        if not users:
            notes = (*notes, "No character uses it. Choose on its page where it is used.")
        book_id = _derived_id(run, item.path)
        new_events = self._lorebooks.create_events(book_id, item.name[:200], dict(book.document), users)
        outcome: Outcome = "changed" if earlier is not None else "taken"
        return _Result(outcome, notes, checksum, book_id, counts, dict(book.document), new_events)

    def _characters_with_book(self, name: str) -> list[str]:
        """The characters whose cards name a lorebook as theirs and contain none themselves."""
        found = []
        for character in self._story.context.characters.all():
            if character.card is not None and character.card.lorebook is None:
                extensions = character.card.fields.get("extensions")
                if isinstance(extensions, dict) and extensions.get("world") == name:
                    found.append(character.id)
        return found

    async def _quick_replies(self, run: ImportRun, item: SourceItem) -> _Result:
        document = await self._parse(run, item, "Reading the quick replies", source.read_quick_replies)
        checksum = _checksum(repr(document))
        if self._known(item, checksum) is not None:
            return _Result("known", checksum=checksum)
        why = "Quick replies run SillyTavern's own scripts. Their text is kept with this import."
        return _Result("left", (why,), checksum, document=dict(document))

    # --- characters --------------------------------------------------------------------------------------------

    async def _character(self, run: ImportRun, item: SourceItem) -> _Result:
        data = await asyncio.to_thread(source.read_file, Path(run.folder), item.path)
        name = PurePosixPath(item.path).name
        read = await run_limited("Reading the card", len(data), source.read_character, data, name)
        counts = {"entries": read.entries}
        if (known := self._known(item, read.checksum)) is not None:
            deleted = known.target not in {one.id for one in self._story.context.characters.all()}
            why_left = ["It was deleted here since."] if deleted else []
            return _Result("left" if deleted else "known", why_left, read.checksum, known.target, counts)
        earlier = self.queries.last(run.folder, item.kind, item.path)
        character_id = earlier.target if earlier is not None else _derived_id(run, item.path)
        notes = list(read.notes)
        if earlier is not None:
            if not self._is_as_imported(character_id):
                why = "It was changed both here and in SillyTavern since. Import its card as another character."
                return _Result("left", (why,), target=character_id, counts=counts)
            notes.append("It changed since the last import, and is a new version of the character.")
        identity = Identity.from_card(read.card, character_id)
        check_identity(identity)
        # First the file: after a crash in between, the same id is used again.
        await self._characters.save_card_file(character_id, read.card.document, data, read.kind)
        authored = NewEvent(
            f"cast:{character_id}", CharacterAuthored(identity=identity, card=read.card.document), OWNER
        )
        await asyncio.to_thread(self._characters.prepare_folder, Character(identity, 1, read.card))
        return _Result(
            "changed" if notes else "taken", notes, read.checksum, character_id, counts, new_events=[authored]
        )

    async def _picture(self, run: ImportRun, item: SourceItem) -> _Result:
        """An expression or a picture of the gallery, for the character whose name or file its folder has."""
        path = PurePosixPath(item.path)
        character = self._imported_character(run, f"{path.parts[-2]}.png")
        if character is None:
            named = [one for one in self._story.context.characters.all() if one.name == path.parts[-2]]
            if len(named) != 1:
                return _Result("left", (f"No character is called {path.parts[-2]}.",))
            character = named[0]
        data = await asyncio.to_thread(source.read_file, Path(run.folder), item.path)
        picture = await asyncio.to_thread(self._pictures.save, data)
        if self._known(item, picture) is not None:
            return _Result("known", checksum=picture, target=character.id)
        changed = self.queries.last(run.folder, item.kind, item.path) is not None
        use: PictureUse = "expression" if item.kind == "expression" else "gallery"
        new_events = [picture_event(character.id, use, path.stem, picture)]
        notes = ("It changed since the last import.",) if changed else ()
        return _Result("changed" if changed else "taken", notes, picture, character.id, new_events=new_events)

    def _is_as_imported(self, character_id: str) -> bool:
        try:
            character = self._story.context.characters.get(character_id)
        except NoSuchCharacter:
            return False
        return character.card is not None and character.identity.to_card(character.card) == character.card

    def _imported_character(self, run: ImportRun, avatar: str) -> Character | None:
        """The character that a file of the folder became, in this import or an earlier one."""
        path = f"characters/{avatar}"
        targets = [one.target for one in self.queries.items(run.id) if (one.item, one.path) == ("character", path)]
        if (earlier := self.queries.last(run.folder, "character", path)) is not None:
            targets.append(earlier.target)
        existing = {one.id: one for one in self._story.context.characters.all()}
        return next((existing[target] for target in targets if target in existing), None)

    async def _character_without_card(self, run: ImportRun, folder: str, name: str) -> Character:
        """A character of which only chats are left gets its name."""
        path = f"characters/{folder}.png"
        identity = Identity.create(id=_derived_id(run, path), name=name.strip() or folder)
        check_identity(identity)
        authored = NewEvent(f"cast:{identity.id}", CharacterAuthored(identity=identity), OWNER)
        why = "Its card is missing. The character has only its name; describe it on its page."
        item = SourceItem("character", path, identity.name)
        await self._record(run, item, _Result("changed", (why,), "", identity.id, new_events=[authored]))
        character = self._story.context.characters.get(identity.id)
        await asyncio.to_thread(self._characters.prepare_folder, character)
        return character

    # --- chats -------------------------------------------------------------------------------------------------

    async def _chat(self, run: ImportRun, item: SourceItem) -> _Result:
        read = await self._parse(run, item, "Reading the chat", source.read_chat)
        if not read.chat.messages:
            return _Result("left", ("It has no messages.",))
        folder = PurePosixPath(item.path).parts[1]
        character = self._imported_character(run, f"{folder}.png")
        if character is None:
            if any(one.path == f"characters/{folder}.png" for one in self.queries.items(run.id)):
                return _Result("left", ("Its character was not imported.",))
            character = await self._character_without_card(run, folder, read.chat.character_name)
        return await self._convert(run, item, read, [character], lambda _: None)

    async def _group(self, run: ImportRun, item: SourceItem) -> _Result:
        group = await self._parse(run, item, "Reading the group", source.read_group)
        checksum = _checksum(repr(group))
        counts = {"chats": len(group.chats), "members": len(group.members)}
        if self._known(item, checksum) is not None:
            return _Result("known", checksum=checksum, counts=counts)
        missing = [avatar for avatar in group.members if self._imported_character(run, avatar) is None]
        notes = [f"{', '.join(missing[:10])} was not found among the characters."] if missing else []
        if not group.chats:
            notes.append("It has no chats: begin one, and invite its characters as guests.")
        return _Result("changed" if notes else "taken", notes, checksum, counts=counts, document=dict(group.document))

    async def _group_chat(self, run: ImportRun, item: SourceItem) -> _Result:
        read = await self._parse(run, item, "Reading the chat", source.read_chat)
        if not read.chat.messages:
            return _Result("left", ("It has no messages.",))
        spoke = [raw.get("original_avatar") for raw in read.chat.messages]
        avatars = dict.fromkeys([*item.members, *(one for one in spoke if isinstance(one, str))])
        by_avatar = {avatar: found for avatar in avatars if (found := self._imported_character(run, avatar))}
        if not by_avatar:
            return _Result("left", ("None of its characters was imported.",))
        characters = list({character.id: character for character in by_avatar.values()}.values())
        by_name = {character.name: character.id for character in reversed(characters)}

        def speaker_of(raw: source.Document) -> str | None:
            avatar, name = raw.get("original_avatar"), raw.get("name")
            if isinstance(avatar, str) and avatar in by_avatar:
                return by_avatar[avatar].id
            return by_name.get(name) if isinstance(name, str) else None

        return await self._convert(run, item, read, characters, speaker_of)

    async def _convert(
        self,
        run: ImportRun,
        item: SourceItem,
        read: source.TavernChatFile,
        characters: Sequence[Character],
        speaker_of: SpeakerOf,
    ) -> _Result:
        counts = {"messages": len(read.chat.messages), "swipes": sum(len(turn.swipes) for turn in read.chat.turns)}
        if (known := self._known(item, read.checksum)) is not None:
            gone = not self._story.chats.exists(known.target)
            why_left = ["It was deleted here since."] if gone else []
            return _Result("left" if gone else "known", why_left, read.checksum, known.target, counts)
        notes = list(read.chat.notes)
        earlier = self.queries.last(run.folder, item.kind, item.path)
        if earlier is not None:
            grown = await asyncio.to_thread(self._grown, earlier, read)
            if grown is not None:
                added = partial(self._conversion, earlier.target, characters, speaker_of, grown)
                conversion, new_events = await asyncio.to_thread(added, read, earlier.counts["messages"])
                more = counts["messages"] - earlier.counts["messages"]
                notes.append(f"New messages were added to the chat that was imported before: {more}.")
                return self._converted(read, conversion, new_events, earlier.target, notes, counts, grown)
            notes.append("It differs from the chat that was imported before, which stays: it became another chat.")
        room = f"room:{new_id()}"
        opening = self._story.opening_events(room, characters[0], Opening(title=item.name))
        opening += begin_group(room, characters[1:])
        if note := source.author_note(source.storable(read.chat.header)):
            choice = ModelChoice(note=AuthorNote.model_validate(note))
            opening.append(NewEvent(room, ChatModelSet(choice=choice), OWNER))
        begun = partial(self._conversion, room, characters, speaker_of, len(opening))
        conversion, new_events = await asyncio.to_thread(begun, read, 0)
        return self._converted(read, conversion, [*opening, *new_events], room, notes, counts)

    def _conversion(
        self,
        room: str,
        characters: Sequence[Character],
        speaker_of: SpeakerOf,
        seq: int,
        read: source.TavernChatFile,
        first: int,
    ) -> tuple[ChatConversion, list[NewEvent]]:
        conversion = ChatConversion(room, characters, seq, speaker_of)
        conversion.add_all(read.chat, first=first, after=self._last_spoken(room) if first else None)
        return conversion, conversion.new_events(self._memory)

    def _converted(
        self,
        read: source.TavernChatFile,
        conversion: ChatConversion,
        new_events: Sequence[NewEvent],
        room: str,
        notes: list[str],
        counts: Mapping[str, int],
        head: int | None = None,
    ) -> _Result:
        if conversion.hidden:
            notes.append(f"Hidden messages became out-of-character notes: {conversion.hidden}.")
        if conversion.unknown_speakers:
            names = ", ".join(sorted(conversion.unknown_speakers)[:10])
            notes.append(f"Messages of {names} are shown as those of {conversion.characters[0].name}.")
        return _Result(
            "changed" if notes else "taken",
            notes,
            read.checksum,
            room,
            counts,
            new_events=new_events,
            expect={room: head} if head is not None else None,
        )

    def _grown(self, earlier: ImportedItem, read: source.TavernChatFile) -> int | None:
        """The last seq of the chat that was imported before, if the file only has more messages, and nothing was
        changed here since."""
        messages = earlier.counts.get("messages", 0)
        if not self._story.chats.exists(earlier.target) or len(read.chat.messages) <= messages:
            return None
        if source.lines_digest(read.chat.messages[:messages]) != earlier.checksum:
            return None
        unchanged = self._story.timeline.count(earlier.target) == messages
        return self._store.reader.head(earlier.target) if unchanged else None

    def _last_spoken(self, room: str) -> str | None:
        latest = reversed(self._story.timeline.latest(room, 200))
        spoken = (turn.id for turn in latest if not turn.by_person or any(one.kind != "ooc" for one in turn.segments))
        return next(spoken, None)


def _chosen(items: Sequence[SourceItem], kinds: Sequence[str]) -> list[SourceItem]:
    return [item for item in items if item.kind in kinds]


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _derived_id(run: ImportRun, path: str) -> str:
    """The id of what is made from a file in an import: the same after a restart."""
    return _checksum(f"{run.id}\n{path}")[:26]
