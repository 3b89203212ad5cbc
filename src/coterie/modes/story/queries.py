"""Chats as they stand: host and guests, the clock, places, scenes, and what everybody is doing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coterie.base.clock import from_micros, to_micros
from coterie.characters.service import OWNER
from coterie.conversation.errors import NoSuchRoom, NoSuchTurn
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.modes.story.events import (
    Activity,
    ActivityChange,
    ChatCreated,
    ChatForkOpened,
    ClockMoved,
    ContainerCreated,
    DialogueSummarised,
    GuestJoined,
    GuestLeft,
    ManualEdit,
    PersonJoined,
    PersonLeft,
    PromptSent,
    SceneClosed,
    SceneOpened,
    SceneSummarised,
    SentPromptPart,
)


@dataclass(frozen=True)
class Guest:
    version: int
    """Of the character, as it joined."""
    joined_seq: int
    """The number of the event with which they joined: what came before, they did not witness."""


@dataclass(frozen=True)
class Chat:
    room: str
    host: str
    host_version: int
    title: str
    clock: datetime
    weather: str
    anchor: str
    world: str
    scene: str | None
    guests: dict[str, Guest]
    people: tuple[str, ...] = (OWNER,)
    """The people in it, first of all whose chat it is."""

    @property
    def person(self) -> str:
        return self.people[0]

    @property
    def participants(self) -> list[str]:
        return [*self.people, *self.characters]

    @property
    def id(self) -> str:
        return self.room.partition(":")[2]

    def version_of(self, character_id: str) -> int:
        """S1: identity is fixed while a scene lasts, so a chat keeps the version that its scene began with."""
        return self.host_version if character_id == self.host else self.guests[character_id].version

    def joined_seq(self, character_id: str) -> int:
        return self.guests[character_id].joined_seq if character_id in self.guests else 0

    @property
    def characters(self) -> list[str]:
        return [self.host, *self.guests]


@dataclass(frozen=True)
class StoryScene:
    id: str
    container: str
    participants: tuple[str, ...]
    starts: datetime
    ends: datetime | None
    seq: int


@dataclass(frozen=True)
class Container:
    """A place."""

    id: str
    name: str
    type: str
    parent: str | None
    moving: bool
    public: bool
    audible: str


class ChatProjection(Projection):
    name = "story_chats"
    stream_column = "room"
    schema = """
        CREATE TABLE chat(room TEXT PRIMARY KEY, host TEXT NOT NULL, bot_version INTEGER NOT NULL, title TEXT NOT NULL,
            clock INTEGER NOT NULL, weather TEXT NOT NULL, anchor TEXT NOT NULL, world TEXT NOT NULL, scene TEXT)
            WITHOUT ROWID;
        CREATE TABLE chat_guest(room TEXT, guest TEXT, bot_version INTEGER NOT NULL, since INTEGER NOT NULL,
            PRIMARY KEY(room, guest)) WITHOUT ROWID;
        CREATE TABLE chat_person(room TEXT, person TEXT, since INTEGER NOT NULL, here INTEGER NOT NULL,
            PRIMARY KEY(room, person)) WITHOUT ROWID;
        CREATE TABLE container(room TEXT, id TEXT, name TEXT NOT NULL, type TEXT NOT NULL, parent TEXT,
            moving INTEGER NOT NULL, public INTEGER NOT NULL, audible TEXT NOT NULL, PRIMARY KEY(room, id));
        CREATE TABLE scene(room TEXT, id TEXT, container TEXT NOT NULL, participants TEXT NOT NULL,
            starts INTEGER NOT NULL, ends INTEGER, seq INTEGER NOT NULL, PRIMARY KEY(room, id)) WITHOUT ROWID;
        CREATE TABLE activity(room TEXT, entity TEXT, activity TEXT NOT NULL, PRIMARY KEY(room, entity)) WITHOUT ROWID;
        CREATE TABLE scene_summary(room TEXT, scene TEXT, owner TEXT, summary TEXT NOT NULL,
            significance INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(room, scene, owner)) WITHOUT ROWID;
        CREATE TABLE dialogue_summary(room TEXT PRIMARY KEY, upto INTEGER NOT NULL, summary TEXT NOT NULL);
    """

    @on(ChatCreated)
    def created(self, rows: Rows, event: Event[ChatCreated]) -> None:
        it = event.payload
        rows.run(
            "INSERT OR REPLACE INTO chat VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (event.stream, it.host, it.bot_version, it.title, to_micros(it.clock), it.weather, it.anchor, it.world),
        )
        self._add_person(rows, event.stream, it.person, 0)

    @on(PersonJoined)
    def person_joined(self, rows: Rows, event: Event[PersonJoined]) -> None:
        self._add_person(rows, event.stream, event.payload.person, event.seq)

    @on(PersonLeft)
    def person_left(self, rows: Rows, event: Event[PersonLeft]) -> None:
        told = (event.stream, event.payload.person)
        rows.run("UPDATE chat_person SET here = 0 WHERE room = ? AND person = ?", told)

    def _add_person(self, rows: Rows, room: str, person: str, since: int) -> None:
        rows.run("INSERT OR REPLACE INTO chat_person VALUES (?, ?, ?, 1)", (room, person, since))

    @on(ChatForkOpened)
    def fork_opened(self, rows: Rows, event: Event[ChatForkOpened]) -> None:
        it = event.payload
        rows.run("UPDATE chat SET title = ?, world = ? WHERE room = ?", (it.title, it.world, event.stream))

    @on(ContainerCreated)
    def container_created(self, rows: Rows, event: Event[ContainerCreated]) -> None:
        it = event.payload
        told = (event.stream, it.container, it.name, it.type, it.parent, it.moving, it.public, it.audible)
        rows.run("INSERT OR REPLACE INTO container VALUES (?, ?, ?, ?, ?, ?, ?, ?)", told)

    @on(ActivityChange)
    def activity_change(self, rows: Rows, event: Event[ActivityChange]) -> None:
        it = event.payload
        told = (event.stream, it.entity, it.activity.model_dump_json())
        rows.run("INSERT OR REPLACE INTO activity VALUES (?, ?, ?)", told)

    @on(SceneOpened)
    def scene_opened(self, rows: Rows, event: Event[SceneOpened]) -> None:
        it = event.payload
        rows.run(
            "INSERT OR REPLACE INTO scene VALUES (?, ?, ?, ?, ?, NULL, ?)",
            (event.stream, it.scene, it.container, json.dumps(it.participants), to_micros(it.starts), event.seq),
        )
        rows.run("UPDATE chat SET scene = ? WHERE room = ?", (it.scene, event.stream))
        for bot, version in it.versions.items():
            rows.run("UPDATE chat SET bot_version = ? WHERE room = ? AND host = ?", (version, event.stream, bot))
            rows.run("UPDATE chat_guest SET bot_version = ? WHERE room = ? AND guest = ?", (version, event.stream, bot))

    @on(SceneClosed)
    def scene_closed(self, rows: Rows, event: Event[SceneClosed]) -> None:
        it = event.payload
        told = (to_micros(it.ends), event.stream, it.scene)
        rows.run("UPDATE scene SET ends = ? WHERE room = ? AND id = ?", told)
        rows.run("UPDATE chat SET scene = NULL WHERE room = ? AND scene = ?", (event.stream, it.scene))

    @on(SceneSummarised)
    def scene_summarised(self, rows: Rows, event: Event[SceneSummarised]) -> None:
        it = event.payload
        told = (event.stream, it.scene, it.owner, it.summary, it.significance, event.seq)
        rows.run("INSERT OR REPLACE INTO scene_summary VALUES (?, ?, ?, ?, ?, ?)", told)

    @on(DialogueSummarised)
    def dialogue_summarised(self, rows: Rows, event: Event[DialogueSummarised]) -> None:
        it = event.payload
        rows.run("INSERT OR REPLACE INTO dialogue_summary VALUES (?, ?, ?)", (event.stream, it.upto, it.summary))

    @on(ClockMoved)
    def clock_moved(self, rows: Rows, event: Event[ClockMoved]) -> None:
        moved = event.payload.minutes * 60_000_000
        rows.run("UPDATE chat SET clock = clock + ? WHERE room = ?", (moved, event.stream))

    @on(GuestJoined)
    def guest_joined(self, rows: Rows, event: Event[GuestJoined]) -> None:
        it = event.payload
        told = (event.stream, it.guest, it.bot_version, event.seq)
        rows.run("INSERT OR REPLACE INTO chat_guest VALUES (?, ?, ?, ?)", told)

    @on(GuestLeft)
    def guest_left(self, rows: Rows, event: Event[GuestLeft]) -> None:
        rows.run("DELETE FROM chat_guest WHERE room = ? AND guest = ?", (event.stream, event.payload.guest))
        rows.run("DELETE FROM activity WHERE room = ? AND entity = ?", (event.stream, event.payload.guest))

    @on(ManualEdit)
    def manual_edit(self, rows: Rows, event: Event[ManualEdit]) -> None:
        what, value = event.payload.what.split("."), event.payload.value
        match what:
            case ["clock"]:
                clock = to_micros(datetime.fromisoformat(value))
                rows.run("UPDATE chat SET clock = ? WHERE room = ?", (clock, event.stream))
            case ["weather" | "title" | "anchor" as column]:
                rows.run(f"UPDATE chat SET {column} = ? WHERE room = ?", (value, event.stream))  # noqa: S608
            case ["scene", scene, "container"]:
                rows.run("UPDATE scene SET container = ? WHERE room = ? AND id = ?", (value, event.stream, scene))
            case ["activity", entity, *path]:
                activity = _edited_activity(rows, event.stream, entity, path, value)
                rows.run("INSERT OR REPLACE INTO activity VALUES (?, ?, ?)", (event.stream, entity, activity))
            case ["container", container, "name" | "type" | "parent" | "moving" | "public" | "audible" as column]:
                sql = f"UPDATE container SET {column} = ? WHERE room = ? AND id = ?"  # noqa: S608
                rows.run(sql, (value, event.stream, container))
            case _:
                return  # an edge or a memory: another view's


def _edited_activity(rows: Rows, room: str, entity: str, path: list[str], value: object) -> str:
    """An activity with one field, or all of it, put right by hand."""
    if not path:
        return Activity.model_validate(value).model_dump_json()
    row = rows.one("SELECT activity FROM activity WHERE room = ? AND entity = ?", (room, entity))
    told: dict[str, Any] = json.loads(row[0]) if row is not None else Activity().model_dump(mode="json")
    here = told
    for name in path[:-1]:
        here = here[name]
    here[path[-1]] = value
    return Activity.model_validate(told).model_dump_json()


class ChatQueries:
    """Reading chats."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def chat(self, room: str) -> Chat:
        rows = self._store.query(f"SELECT {_CHAT_COLUMNS} FROM chat WHERE room = ?", (room,))  # noqa: S608
        if not rows:
            raise NoSuchRoom("There is no such chat.", "Choose one from the list of chats.")
        return self._chat(rows[0])

    def exists(self, room: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM chat WHERE room = ?", (room,)))

    def chats(self, host: str | None = None, person: str | None = None) -> list[Chat]:
        """The newest first; with a character or a person, only those they are in as host or as one of the people."""
        rows = self._store.query(
            f"SELECT {_CHAT_COLUMNS} FROM chat WHERE ?1 IS NULL OR host = ?1 ORDER BY room DESC",  # noqa: S608
            (host,),
        )
        found = [self._chat(row) for row in rows]
        return [chat for chat in found if person is None or person in chat.people]

    def chats_with(self, character_id: str) -> list[Chat]:
        """Chats that a character hosts or visits."""
        return [chat for chat in self.chats() if character_id in chat.characters]

    def people(self) -> frozenset[str]:
        """Everybody who is a person in any chat, or was."""
        return frozenset(person for (person,) in self._store.query("SELECT DISTINCT person FROM chat_person"))

    def scene(self, room: str, scene: str) -> StoryScene:
        rows = self._store.query(
            "SELECT id, container, participants, starts, ends, seq FROM scene WHERE room = ? AND id = ?", (room, scene)
        )
        if not rows:
            raise NoSuchRoom("There is no such scene.", "It may have been taken back: reload the chat.")
        scene_id, container, participants, starts, ends, seq = rows[0]
        return StoryScene(
            scene_id,
            container,
            tuple(json.loads(participants)),
            from_micros(starts),
            from_micros(ends) if ends is not None else None,
            seq,
        )

    def container_name(self, room: str, container: str) -> str:
        rows = self._store.query("SELECT name FROM container WHERE room = ? AND id = ?", (room, container))
        return str(rows[0][0]) if rows else container

    def containers(self, room: str) -> dict[str, Container]:
        rows = self._store.query(
            "SELECT id, name, type, parent, moving, public, audible FROM container WHERE room = ? ORDER BY id", (room,)
        )
        return {
            row_id: Container(row_id, name, kind, parent, bool(moving), bool(public), audible)
            for row_id, name, kind, parent, moving, public, audible in rows
        }

    def activities(self, room: str) -> dict[str, Activity]:
        rows = self._store.query("SELECT entity, activity FROM activity WHERE room = ? ORDER BY entity", (room,))
        return {entity: Activity.model_validate_json(told) for entity, told in rows}

    def scene_summaries(self, room: str, owner: str) -> list[tuple[int, str]]:
        """What the scenes so far were to somebody, oldest first, each with the seq after which it is known."""
        return list(
            self._store.query(
                "SELECT s.seq, s.summary FROM scene_summary s WHERE s.room = ? AND s.owner = ? ORDER BY s.seq",
                (room, owner),
            )
        )

    def dialogue_summary(self, room: str) -> tuple[int, str] | None:
        rows = self._store.query("SELECT upto, summary FROM dialogue_summary WHERE room = ?", (room,))
        return rows[0] if rows else None

    def _chat(self, row: tuple[Any, ...]) -> Chat:
        room, host, version, title, clock, weather, anchor, world, scene = row
        found = self._store.query(
            "SELECT guest, bot_version, since FROM chat_guest WHERE room = ? ORDER BY guest", (room,)
        )
        guests = {guest: Guest(joined, since) for guest, joined, since in found}
        here = self._store.query(
            "SELECT person FROM chat_person WHERE room = ? AND here ORDER BY since, person", (room,)
        )
        people = tuple(person for (person,) in here)
        return Chat(room, host, version, title, from_micros(clock), weather, anchor, world, scene, guests, people)


_CHAT_COLUMNS = "room, host, bot_version, title, clock, weather, anchor, world, scene"


# What was sent to models, kept so that it can be looked at: the prompt inspector's view. S13


@dataclass(frozen=True)
class InspectedPrompt:
    sent: PromptSent
    parts: list[tuple[SentPromptPart, str]]
    """Each part with its text, in the order it was sent."""


class PromptProjection(Projection):
    name = "story_prompts"
    stream_column = "room"
    schema = """
        CREATE TABLE prompt(room TEXT, reply TEXT, sent TEXT NOT NULL, PRIMARY KEY(room, reply)) WITHOUT ROWID;
        CREATE TABLE prompt_text(room TEXT, sha TEXT, text TEXT NOT NULL, PRIMARY KEY(room, sha)) WITHOUT ROWID;
    """

    @on(PromptSent)
    def sent(self, rows: Rows, event: Event[PromptSent]) -> None:
        it = event.payload
        told = it.model_copy(update={"texts": {}}).model_dump_json()
        rows.run("INSERT OR REPLACE INTO prompt VALUES (?, ?, ?)", (event.stream, it.reply, told))
        rows.many(
            "INSERT OR IGNORE INTO prompt_text VALUES (?, ?, ?)",
            [(event.stream, sha, text) for sha, text in it.texts.items()],
        )


class PromptQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def inspect(self, room: str, reply: str) -> InspectedPrompt:
        rows = self._store.query("SELECT sent FROM prompt WHERE room = ? AND reply = ?", (room, reply))
        if not rows:
            raise NoSuchTurn("Nothing was sent to a model for this turn.", "Choose a turn that a model wrote.")
        sent = PromptSent.model_validate_json(rows[0][0])
        texts: dict[str, str] = dict(self._store.query("SELECT sha, text FROM prompt_text WHERE room = ?", (room,)))
        return InspectedPrompt(sent, [(part, texts.get(part.sha, "")) for part in sent.parts])


# How far a person has read in each chat, and what is new since. S17
#
# Reading is no part of the story: a mark stands in a stream of its own, so that it neither is rewound with a chat nor
# keeps a rewind from being undone.


READ_MARKS_STREAM = "reading"


class ChatRead(Payload, kind="chat_read"):
    """A person has read a chat up to a turn."""

    chat: str
    """The chat's stream."""
    seq: int
    """The number of the last turn that was read, in the chat's stream."""


class ReadMarkProjection(Projection):
    name = "story_reading"
    schema = "CREATE TABLE chat_read(room TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;"

    @on(ChatRead)
    def read(self, rows: Rows, event: Event[ChatRead]) -> None:
        rows.run("INSERT OR REPLACE INTO chat_read VALUES (?, ?)", (event.payload.chat, event.payload.seq))


class ReadMarks:
    def __init__(self, store: Store) -> None:
        self._store = store

    def unread(self, room: str) -> int:
        """Replies that came after what was read. Who says something has read what came before."""
        origin = self._store.reader.fork_origin(room)
        return int(
            self._store.query(
                "SELECT count(*) FROM turn WHERE room = ?1 AND segments IS NULL AND state <> 'open' AND seq > max(?2,"
                " coalesce((SELECT seq FROM chat_read WHERE room = ?1), 0),"
                " coalesce((SELECT max(seq) FROM turn WHERE room = ?1 AND segments IS NOT NULL), 0))",
                (room, origin[1] if origin is not None else 0),
            )[0][0]
        )

    async def mark_read(self, room: str) -> None:
        """Everything there is. A chat without anything new gets no event."""
        if self.unread(room):
            last = self._store.query("SELECT max(seq) FROM turn WHERE room = ?", (room,))[0][0]
            await self._store.append([NewEvent(READ_MARKS_STREAM, ChatRead(chat=room, seq=last), OWNER)])
