"""Projections of the story mode: chats with their places and scenes, relationships, sent prompts, and read marks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import AnyEvent, Event, Projection, Rows, on
from coterie.modes.story.chat_model.choices import CharacterModelProjection, ChatModelProjection
from coterie.modes.story.events import (
    Activity,
    ActivityChange,
    ChatCreated,
    ChatForkOpened,
    ChatPersonaChosen,
    ChatRead,
    ClockMoved,
    ContainerCreated,
    DialogueSummarised,
    ExchangeAnalysed,
    GuestJoined,
    GuestLeft,
    ManualEdit,
    PersonJoined,
    PersonLeft,
    QuickRepliesSet,
    Relationship,
    RelationshipsCleared,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneOpened,
    SceneSummarised,
    TurnBookmarked,
)
from coterie.modes.story.library.projection import ChatListProjection
from coterie.modes.story.sent_prompts import PromptProjection
from coterie.modes.story.sillytavern.records import ImportProjection

RELATIONSHIP_KINDS = (
    RelationshipUpdated.kind,
    RelationshipSummaryRewritten.kind,
    RelationshipsSet.kind,
    RelationshipsCleared.kind,
    ManualEdit.kind,
)
RELATIONSHIP_COLUMNS = "of, toward, affinity, trust, summary, knowledge, chat, at"


def story_projections() -> list[Projection]:
    return [
        ChatProjection(),
        RelationshipProjection(),
        PromptProjection(),
        ReadMarkProjection(),
        BookmarkProjection(),
        AnalysisProjection(),
        ImportProjection(),
        ChatListProjection(),
        ChatModelProjection(),
        CharacterModelProjection(),
    ]


class ChatProjection(Projection):
    name = "story_chats"
    version = 3
    stream_column = "room"
    schema = """
        CREATE TABLE chat(room TEXT PRIMARY KEY, host TEXT NOT NULL, host_version INTEGER NOT NULL, title TEXT NOT NULL,
            clock INTEGER NOT NULL, weather TEXT NOT NULL, anchor TEXT NOT NULL, world TEXT NOT NULL, scene TEXT)
            WITHOUT ROWID;
        CREATE TABLE chat_guest(room TEXT, guest TEXT, version INTEGER NOT NULL, since INTEGER NOT NULL,
            PRIMARY KEY(room, guest)) WITHOUT ROWID;
        CREATE TABLE chat_person(room TEXT, person TEXT, since INTEGER NOT NULL, present INTEGER NOT NULL,
            PRIMARY KEY(room, person)) WITHOUT ROWID;
        CREATE TABLE chat_persona(room TEXT, seq INTEGER, persona TEXT NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE TABLE container(room TEXT, id TEXT, name TEXT NOT NULL, type TEXT NOT NULL, parent TEXT,
            moving INTEGER NOT NULL, public INTEGER NOT NULL, audible TEXT NOT NULL,
            background TEXT NOT NULL DEFAULT '', PRIMARY KEY(room, id));
        CREATE TABLE scene(room TEXT, id TEXT, container TEXT NOT NULL, participants TEXT NOT NULL,
            starts INTEGER NOT NULL, ends INTEGER, seq INTEGER NOT NULL, PRIMARY KEY(room, id)) WITHOUT ROWID;
        CREATE TABLE activity(room TEXT, entity TEXT, activity TEXT NOT NULL, PRIMARY KEY(room, entity)) WITHOUT ROWID;
        CREATE TABLE scene_summary(room TEXT, scene TEXT, owner TEXT, summary TEXT NOT NULL,
            significance INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(room, scene, owner)) WITHOUT ROWID;
        CREATE TABLE reply_rule(room TEXT PRIMARY KEY, reply_order TEXT NOT NULL, muted TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE cast_change(room TEXT, seq INTEGER, who TEXT NOT NULL, joined INTEGER NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE TABLE dialogue_summary(room TEXT PRIMARY KEY, upto INTEGER NOT NULL, seq INTEGER NOT NULL);
    """

    @on(ChatCreated)
    def created(self, rows: Rows, event: Event[ChatCreated]) -> None:
        chat, clock = event.payload, to_micros(event.payload.clock)
        rows.run(
            "INSERT OR REPLACE INTO chat VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (event.stream, chat.host, chat.bot_version, chat.title, clock, chat.weather, chat.anchor, chat.world),
        )
        self._add_person(rows, event.stream, chat.person, 0)

    @on(PersonJoined)
    def person_joined(self, rows: Rows, event: Event[PersonJoined]) -> None:
        self._note_cast(rows, event, event.payload.person, joined=True)
        self._add_person(rows, event.stream, event.payload.person, event.seq)

    @on(PersonLeft)
    def person_left(self, rows: Rows, event: Event[PersonLeft]) -> None:
        self._note_cast(rows, event, event.payload.person, joined=False)
        params = (event.stream, event.payload.person)
        rows.run("UPDATE chat_person SET present = 0 WHERE room = ? AND person = ?", params)

    def _note_cast(self, rows: Rows, event: AnyEvent, who: str, *, joined: bool) -> None:
        rows.run("INSERT OR REPLACE INTO cast_change VALUES (?, ?, ?, ?)", (event.stream, event.seq, who, joined))

    @on(ChatPersonaChosen)
    def persona_chosen(self, rows: Rows, event: Event[ChatPersonaChosen]) -> None:
        rows.run(
            "INSERT OR REPLACE INTO chat_persona VALUES (?, ?, ?)", (event.stream, event.seq, event.payload.persona)
        )

    def _add_person(self, rows: Rows, room: str, person: str, since: int) -> None:
        rows.run("INSERT OR REPLACE INTO chat_person VALUES (?, ?, ?, 1)", (room, person, since))

    @on(ChatForkOpened)
    def fork_opened(self, rows: Rows, event: Event[ChatForkOpened]) -> None:
        fork = event.payload
        rows.run("UPDATE chat SET title = ?, world = ? WHERE room = ?", (fork.title, fork.world, event.stream))

    @on(ContainerCreated)
    def container_created(self, rows: Rows, event: Event[ContainerCreated]) -> None:
        place = event.payload
        flags = (place.moving, place.public, place.audible)
        params = (event.stream, place.container, place.name, place.type, place.parent, *flags)
        columns = "room, id, name, type, parent, moving, public, audible"
        rows.run(f"INSERT OR REPLACE INTO container({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", params)  # noqa: S608

    @on(ActivityChange)
    def activity_change(self, rows: Rows, event: Event[ActivityChange]) -> None:
        params = (event.stream, event.payload.entity, event.payload.activity.model_dump_json())
        rows.run("INSERT OR REPLACE INTO activity VALUES (?, ?, ?)", params)

    @on(SceneOpened)
    def scene_opened(self, rows: Rows, event: Event[SceneOpened]) -> None:
        scene, starts = event.payload, to_micros(event.payload.starts)
        rows.run(
            "INSERT OR REPLACE INTO scene VALUES (?, ?, ?, ?, ?, NULL, ?)",
            (event.stream, scene.scene, scene.container, json.dumps(scene.participants), starts, event.seq),
        )
        rows.run("UPDATE chat SET scene = ? WHERE room = ?", (scene.scene, event.stream))
        for character, version in scene.versions.items():
            params = (version, event.stream, character)
            rows.run("UPDATE chat SET host_version = ? WHERE room = ? AND host = ?", params)
            rows.run("UPDATE chat_guest SET version = ? WHERE room = ? AND guest = ?", params)

    @on(SceneClosed)
    def scene_closed(self, rows: Rows, event: Event[SceneClosed]) -> None:
        scene = event.payload
        params = (to_micros(scene.ends), event.stream, scene.scene)
        rows.run("UPDATE scene SET ends = ? WHERE room = ? AND id = ?", params)
        rows.run("UPDATE chat SET scene = NULL WHERE room = ? AND scene = ?", (event.stream, scene.scene))

    @on(SceneSummarised)
    def scene_summarised(self, rows: Rows, event: Event[SceneSummarised]) -> None:
        summary = event.payload
        params = (event.stream, summary.scene, summary.owner, summary.summary, summary.significance, event.seq)
        rows.run("INSERT OR REPLACE INTO scene_summary VALUES (?, ?, ?, ?, ?, ?)", params)

    @on(DialogueSummarised)
    def dialogue_summarised(self, rows: Rows, event: Event[DialogueSummarised]) -> None:
        # The text stays in the event: it is long, and the undo journal would keep each of them again.
        params = (event.stream, event.payload.upto, event.seq)
        rows.run("INSERT OR REPLACE INTO dialogue_summary VALUES (?, ?, ?)", params)

    @on(ClockMoved)
    def clock_moved(self, rows: Rows, event: Event[ClockMoved]) -> None:
        moved = event.payload.minutes * 60_000_000
        rows.run("UPDATE chat SET clock = clock + ? WHERE room = ?", (moved, event.stream))

    @on(GuestJoined)
    def guest_joined(self, rows: Rows, event: Event[GuestJoined]) -> None:
        guest = event.payload
        self._note_cast(rows, event, guest.guest, joined=True)
        params = (event.stream, guest.guest, guest.bot_version, event.seq)
        rows.run("INSERT OR REPLACE INTO chat_guest VALUES (?, ?, ?, ?)", params)

    @on(GuestLeft)
    def guest_left(self, rows: Rows, event: Event[GuestLeft]) -> None:
        self._note_cast(rows, event, event.payload.guest, joined=False)
        rows.run("DELETE FROM chat_guest WHERE room = ? AND guest = ?", (event.stream, event.payload.guest))
        rows.run("DELETE FROM activity WHERE room = ? AND entity = ?", (event.stream, event.payload.guest))

    @on(ManualEdit)
    def manual_edit(self, rows: Rows, event: Event[ManualEdit]) -> None:
        value = event.payload.value
        match event.payload.what.split("."):
            case ["clock"]:
                clock = to_micros(datetime.fromisoformat(value))
                rows.run("UPDATE chat SET clock = ? WHERE room = ?", (clock, event.stream))
            case ["weather" | "title" | "anchor" as column]:
                rows.run(f"UPDATE chat SET {column} = ? WHERE room = ?", (value, event.stream))  # noqa: S608
            case ["reply_order" | "muted" as column]:
                rows.run("INSERT OR IGNORE INTO reply_rule VALUES (?, 'automatic', '[]')", (event.stream,))
                stored = json.dumps(value) if column == "muted" else value
                rows.run(f"UPDATE reply_rule SET {column} = ? WHERE room = ?", (stored, event.stream))  # noqa: S608
            case ["scene", scene, "container"]:
                rows.run("UPDATE scene SET container = ? WHERE room = ? AND id = ?", (value, event.stream, scene))
            case ["activity", entity, *path]:
                activity = _edit_activity(rows, event.stream, entity, path, value)
                rows.run("INSERT OR REPLACE INTO activity VALUES (?, ?, ?)", (event.stream, entity, activity))
            case [
                "container",
                container,
                "name" | "type" | "parent" | "moving" | "public" | "audible" | "background" as column,
            ]:
                sql = f"UPDATE container SET {column} = ? WHERE room = ? AND id = ?"  # noqa: S608
                rows.run(sql, (value, event.stream, container))
            case _:
                return  # a relationship or a memory, which other projections handle


def _edit_activity(rows: Rows, room: str, entity: str, path: list[str], value: object) -> str:
    """The activity with one field, or all of it, replaced."""
    if not path:
        return Activity.model_validate(value).model_dump_json()
    row = rows.one("SELECT activity FROM activity WHERE room = ? AND entity = ?", (room, entity))
    activity: dict[str, Any] = json.loads(row[0]) if row is not None else Activity().model_dump(mode="json")
    parent = activity
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    return Activity.model_validate(activity).model_dump_json()


class RelationshipProjection(Projection):
    """One row per world and ordered pair.

    All chats that are not forks share one world, so a character's relationships are the same in each of them.
    """

    name = "story_relationships"
    schema = """
        CREATE TABLE relationship(world TEXT, of TEXT, toward TEXT, affinity INTEGER NOT NULL, trust INTEGER NOT NULL,
            summary TEXT NOT NULL, knowledge TEXT NOT NULL, chat TEXT NOT NULL, at INTEGER,
            PRIMARY KEY(world, of, toward)) WITHOUT ROWID;
    """

    @on(RelationshipUpdated)
    def updated(self, rows: Rows, event: Event[RelationshipUpdated]) -> None:
        update = event.payload
        _write(rows, update.world, _apply_update(_read(rows, update.world, update.of, update.toward), update))

    @on(RelationshipSummaryRewritten)
    def rewritten(self, rows: Rows, event: Event[RelationshipSummaryRewritten]) -> None:
        rewrite = event.payload
        _write(rows, rewrite.world, _apply_rewrite(_read(rows, rewrite.world, rewrite.of, rewrite.toward), rewrite))

    @on(RelationshipsSet)
    def relationships_set(self, rows: Rows, event: Event[RelationshipsSet]) -> None:
        rows.run("DELETE FROM relationship WHERE world = ?", (event.payload.world,))
        for relationship in event.payload.edges:
            _write(rows, event.payload.world, relationship)

    @on(RelationshipsCleared)
    def cleared(self, rows: Rows, event: Event[RelationshipsCleared]) -> None:
        # Written, not deleted: the undo journal has no entry for a row that does not exist.
        for world, of, toward in event.payload.pairs:
            _write(rows, world, Relationship(of=of, toward=toward))

    @on(ManualEdit)
    def edited(self, rows: Rows, event: Event[ManualEdit]) -> None:
        if (pair := edited_relationship(event.payload)) is not None:
            _write(rows, pair[0], _apply_edit(_read(rows, *pair), event.payload))


def replay_relationships(world: str, events: Iterable[AnyEvent]) -> list[Relationship]:
    """The relationships of a world after these events."""
    state: dict[tuple[str, str], Relationship] = {}

    def current(of: str, toward: str) -> Relationship:
        return state.get((of, toward), Relationship(of=of, toward=toward))

    for event in events:
        match event.payload:
            case ManualEdit() as change:
                if (pair := edited_relationship(change)) is not None and pair[0] == world:
                    state[pair[1:]] = _apply_edit(current(*pair[1:]), change)
            case RelationshipsSet() as change if change.world == world:
                state = {(one.of, one.toward): one for one in change.edges}
            case RelationshipsCleared() as change:
                state |= {(of, to): Relationship(of=of, toward=to) for w, of, to in change.pairs if w == world}
            case RelationshipUpdated() as change if change.world == world:
                state[change.of, change.toward] = _apply_update(current(change.of, change.toward), change)
            case RelationshipSummaryRewritten() as change if change.world == world:
                state[change.of, change.toward] = _apply_rewrite(current(change.of, change.toward), change)
            case _:
                continue
    return [state[pair] for pair in sorted(state)]


def edited_relationship(edit: ManualEdit) -> tuple[str, str, str] | None:
    """The relationship that an edit is about: world, who, toward whom. A world's name may contain full stops."""
    match edit.what.split("."):
        case ["edge", *world, of, toward, "affinity" | "trust" | "summary" | "knowledge"]:
            return ".".join(world), of, toward
    return None


def summary_hash(summary: str) -> str:
    return hashlib.sha256(summary.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def relationship_from_row(row: tuple[Any, ...]) -> Relationship:
    of, toward, affinity, trust, summary, knowledge, chat, at = row
    return Relationship(
        of=of,
        toward=toward,
        affinity=affinity,
        trust=trust,
        summary=summary,
        knowledge=tuple(json.loads(knowledge)),
        chat=chat,
        when=from_micros(at) if at is not None else None,
    )


def _apply_update(relationship: Relationship, update: RelationshipUpdated) -> Relationship:
    """Levels are clamped; a fact that differs only in case or spaces is not repeated."""
    facts: dict[str, str] = {}
    for fact in (*relationship.knowledge, *update.knowledge):
        facts.setdefault(" ".join(fact.lower().split()), fact)
    return Relationship(
        of=relationship.of,
        toward=relationship.toward,
        affinity=max(0, min(100, relationship.affinity + update.affinity_delta)),
        trust=max(0, min(100, relationship.trust + update.trust_delta)),
        summary=relationship.summary if update.summary is None else update.summary,
        knowledge=tuple(facts.values()),
        chat=update.chat or relationship.chat,
        when=update.when or relationship.when,
    )


def _apply_rewrite(relationship: Relationship, rewrite: RelationshipSummaryRewritten) -> Relationship:
    """Unchanged if the summary that the new one was made from is no longer current: the new one repeats parts of it."""
    if rewrite.rewrites and rewrite.rewrites != summary_hash(relationship.summary):
        return relationship
    return relationship.model_copy(update={"summary": rewrite.summary})


def _apply_edit(relationship: Relationship, edit: ManualEdit) -> Relationship:
    column = edit.what.rpartition(".")[2]
    value: int | str | tuple[str, ...]
    if column in ("affinity", "trust"):
        value = max(0, min(100, int(edit.value)))
    elif column == "knowledge":
        value = tuple(dict.fromkeys(edit.value))
    else:
        value = str(edit.value)
    return relationship.model_copy(update={column: value})


def _read(rows: Rows, world: str, of: str, toward: str) -> Relationship:
    row = rows.one(
        f"SELECT {RELATIONSHIP_COLUMNS} FROM relationship WHERE world = ? AND of = ? AND toward = ?",  # noqa: S608
        (world, of, toward),
    )
    return relationship_from_row(row) if row is not None else Relationship(of=of, toward=toward)


def _write(rows: Rows, world: str, relationship: Relationship) -> None:
    rows.run(
        "INSERT OR REPLACE INTO relationship VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            world,
            relationship.of,
            relationship.toward,
            relationship.affinity,
            relationship.trust,
            relationship.summary,
            json.dumps(relationship.knowledge, ensure_ascii=False),
            relationship.chat,
            to_micros(relationship.when) if relationship.when is not None else None,
        ),
    )


class ReadMarkProjection(Projection):
    name = "story_read_marks"
    schema = "CREATE TABLE chat_read(room TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;"

    @on(ChatRead)
    def read(self, rows: Rows, event: Event[ChatRead]) -> None:
        rows.run("INSERT OR REPLACE INTO chat_read VALUES (?, ?)", (event.payload.chat, event.payload.seq))


class AnalysisProjection(Projection):
    name = "story_failed_analyses"
    schema = """
        CREATE TABLE failed_analysis(
            room TEXT, turn TEXT, failure TEXT NOT NULL, PRIMARY KEY(room, turn)
        ) WITHOUT ROWID;
    """

    @on(ExchangeAnalysed)
    def analysed(self, rows: Rows, event: Event[ExchangeAnalysed]) -> None:
        key = (event.stream, event.payload.reply)
        if event.payload.failure:
            rows.run("INSERT OR REPLACE INTO failed_analysis VALUES (?, ?, ?)", (*key, event.payload.failure))
        else:
            rows.run("DELETE FROM failed_analysis WHERE room = ? AND turn = ?", key)


class BookmarkProjection(Projection):
    name = "story_bookmarks"
    schema = """
        CREATE TABLE bookmark(turn TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE quick_replies(id INTEGER PRIMARY KEY, replies TEXT NOT NULL);
    """

    @on(TurnBookmarked)
    def bookmarked(self, rows: Rows, event: Event[TurnBookmarked]) -> None:
        bookmark = event.payload
        if bookmark.bookmarked:
            rows.run("INSERT OR REPLACE INTO bookmark VALUES (?, ?)", (bookmark.turn, bookmark.name))
        else:
            rows.run("DELETE FROM bookmark WHERE turn = ?", (bookmark.turn,))

    @on(QuickRepliesSet)
    def quick_replies_set(self, rows: Rows, event: Event[QuickRepliesSet]) -> None:
        replies = json.dumps([reply.model_dump() for reply in event.payload.replies], ensure_ascii=False)
        rows.run("INSERT OR REPLACE INTO quick_replies VALUES (1, ?)", (replies,))
