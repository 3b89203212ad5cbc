"""Queries of the story mode: chats, participants and what they witnessed, relationships, prompts, unread turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from coterie.base.clock import from_micros
from coterie.base.untrusted import join_lines
from coterie.characters import OWNER, Characters, OwnerProfile, PeopleQueries
from coterie.conversation import NoSuchRoom, SnippetPart, Turn
from coterie.eventstore import NewEvent, Store
from coterie.modes.story.events import (
    READ_MARKS_STREAM,
    Activity,
    ChatRead,
    Relationship,
)
from coterie.modes.story.projections import RELATIONSHIP_COLUMNS, relationship_from_row

_CHAT_COLUMNS = "room, host, host_version, title, clock, weather, anchor, world, scene"


@dataclass(frozen=True)
class Guest:
    version: int
    """The character's version that the chat uses."""
    joined_seq: int
    """The seq of the event with which the guest joined; it did not witness what came before."""


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
    """The people in it; the first is the one whose chat it is."""

    @property
    def id(self) -> str:
        return self.room.partition(":")[2]

    @property
    def person(self) -> str:
        return self.people[0]

    @property
    def characters(self) -> list[str]:
        return [self.host, *self.guests]

    @property
    def participants(self) -> list[str]:
        return [*self.people, *self.characters]

    def version_of(self, character_id: str) -> int:
        """The version of a character that this chat uses. It does not change during a scene."""
        return self.host_version if character_id == self.host else self.guests[character_id].version

    def joined_seq(self, character_id: str) -> int:
        return self.guests[character_id].joined_seq if character_id in self.guests else 0


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


class ChatQueries:
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
        """Newest first; optionally only those of a host, or those a person is in."""
        rows = self._store.query(
            f"SELECT {_CHAT_COLUMNS} FROM chat WHERE ?1 IS NULL OR host = ?1 ORDER BY room DESC",  # noqa: S608
            (host,),
        )
        chats = [self._chat(row) for row in rows]
        return [chat for chat in chats if person is None or person in chat.people]

    def chats_with(self, character_id: str) -> list[Chat]:
        """Chats in which a character is the host or a guest."""
        return [chat for chat in self.chats() if character_id in chat.characters]

    def people(self) -> frozenset[str]:
        """The ids of all people who are or were in any chat."""
        return frozenset(person for (person,) in self._store.query("SELECT DISTINCT person FROM chat_person"))

    def scene(self, room: str, scene: str) -> StoryScene:
        rows = self._store.query(
            "SELECT id, container, participants, starts, ends, seq FROM scene WHERE room = ? AND id = ?", (room, scene)
        )
        if not rows:
            raise NoSuchRoom("There is no such scene.", "It may have been rewound: reload the chat.")
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
        return {entity: Activity.model_validate_json(activity) for entity, activity in rows}

    def scene_summaries(self, room: str, owner: str) -> list[str]:
        """The summaries of a room's scenes from a character's point of view, oldest first."""
        sql = "SELECT summary FROM scene_summary WHERE room = ? AND owner = ? ORDER BY seq"
        return [summary for (summary,) in self._store.query(sql, (room, owner))]

    def dialogue_summary(self, room: str) -> tuple[int, str] | None:
        """The seq of the first turn that the summary does not cover, and the summary."""
        rows = self._store.query("SELECT upto, summary FROM dialogue_summary WHERE room = ?", (room,))
        return rows[0] if rows else None

    def _chat(self, row: tuple[Any, ...]) -> Chat:
        room, host, version, title, clock, weather, anchor, world, scene = row
        guests = self._store.query(
            "SELECT guest, version, since FROM chat_guest WHERE room = ? ORDER BY guest", (room,)
        )
        people = self._store.query(
            "SELECT person FROM chat_person WHERE room = ? AND present ORDER BY since, person", (room,)
        )
        return Chat(
            room,
            host,
            version,
            title,
            from_micros(clock),
            weather,
            anchor,
            world,
            scene,
            {guest: Guest(guest_version, since) for guest, guest_version, since in guests},
            tuple(person for (person,) in people),
        )


class Participants:
    """Names of people and characters, and the single rule that decides which turns somebody may know of.

    A turn records who was present. An imported turn does not: it counts as witnessed by the host and by guests who had
    joined by then. A character that was reset knows nothing from before the reset, even if it is invited again.
    """

    def __init__(self, store: Store, characters: Characters) -> None:
        self._characters = characters
        self._chats = ChatQueries(store)
        self._people = PeopleQueries(store)

    def names(self, chat: Chat) -> dict[str, str]:
        """The name of everybody present as one line, by id: people first, then characters."""
        characters = {one: self._characters.get(one, chat.version_of(one)).name for one in chat.characters}
        names = {**{person: self.person(person).name for person in chat.people}, **characters}
        # A name stands at the start of a line of prompts and transcripts, and must not begin another line.
        return {entity: join_lines(name) for entity, name in names.items()}

    def name(self, names: Mapping[str, str], entity: str) -> str:
        """The name of somebody who may have left; `names` are those present."""
        if entity in names:
            return names[entity]
        known = self.person(entity) if entity in self._chats.people() else self._characters.get(entity)
        return join_lines(known.name)

    def person(self, person: str) -> OwnerProfile:
        """A person as characters know them: the owner's profile, or only the name of anybody else."""
        return self._characters.owner() if person == OWNER else OwnerProfile(name=self._people.person(person).name)

    def everyone(self) -> frozenset[str]:
        """The ids of all people, including those who only talk in other modes."""
        return self._chats.people() | self._people.ids()

    def turns_seen_by(self, chat: Chat, entity: str) -> Callable[[Turn], bool]:
        """A predicate: did this person or character witness a turn?"""
        if entity == chat.person:
            return lambda turn: True  # the person whose chat it is reads everything
        reset_at = self._characters.reset_at(entity)
        joined = chat.joined_seq(entity)

        def seen(turn: Turn) -> bool:
            if not turn.heard_by(entity) or not (turn.present or turn.seq > joined):
                return False
            return reset_at is None or turn.at > reset_at

        return seen

    def witnesses(self, chat: Chat, *turns: Turn) -> list[str]:
        """Everybody who witnessed all of these turns, including those who left since; people first."""
        candidates = dict.fromkeys(chat.participants)
        for turn in turns:
            candidates |= dict.fromkeys(turn.present)
        return [entity for entity in candidates if all(map(self.turns_seen_by(chat, entity), turns))]


class RelationshipQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, world: str, of: str, toward: str) -> Relationship:
        for relationship in self.in_world(world):
            if (relationship.of, relationship.toward) == (of, toward):
                return relationship
        return Relationship(of=of, toward=toward)

    def in_world(self, world: str) -> list[Relationship]:
        sql = f"SELECT {RELATIONSHIP_COLUMNS} FROM relationship WHERE world = ? ORDER BY of, toward"  # noqa: S608
        return [relationship_from_row(row) for row in self._store.query(sql, (world,))]

    def pairs(self) -> list[tuple[str, str, str]]:
        """World, who, toward whom, of every relationship."""
        return [
            (world, of, toward) for world, of, toward in self._store.query("SELECT world, of, toward FROM relationship")
        ]


class ReadMarks:
    """How far the owner has read in each chat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def unread(self, room: str) -> int:
        """The number of replies after the read mark and after the last message of a person."""
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
        """Mark the whole chat as read; appends nothing if there is nothing unread."""
        if self.unread(room):
            last = self._store.query("SELECT max(seq) FROM turn WHERE room = ?", (room,))[0][0]
            await self._store.append([NewEvent(READ_MARKS_STREAM, ChatRead(chat=room, seq=last), OWNER)])


class ChatSearchHit(BaseModel):
    """A turn that a search found."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    chat: str
    title: str
    turn: str
    seq: int
    """Turns with `before=seq+1` end with this one."""
    name: str
    """The speaker's."""
    by_person: bool
    at: datetime
    snippet: tuple[SnippetPart, ...]
    """Plain text in parts; those that match are a `hit`."""
