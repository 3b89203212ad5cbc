"""Queries of the story mode: chats, participants and what they witnessed, relationships, prompts, unread turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from coterie.base.clock import from_micros
from coterie.base.untrusted import join_lines
from coterie.characters import OWNER, Characters, OwnerProfile, PeopleQueries, PersonaQueries
from coterie.conversation import NoSuchRoom, SnippetPart, Turn
from coterie.eventstore import NewEvent, Ranges, Store
from coterie.modes.story.events import (
    BOOKMARKS_STREAM,
    READ_MARKS_STREAM,
    Activity,
    ChatRead,
    DialogueSummarised,
    QuickRepliesSet,
    QuickReply,
    Relationship,
    TurnBookmarked,
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
    personas: tuple[tuple[int, str], ...] = ()
    """From which seq on the owner speaks as which persona; an empty id is the owner's profile."""

    @property
    def id(self) -> str:
        return self.room.partition(":")[2]

    @property
    def person(self) -> str:
        return self.people[0]

    @property
    def persona(self) -> str:
        """The persona that the owner speaks as; empty for their profile."""
        return self.personas[-1][1] if self.personas else ""

    def persona_at(self, seq: int) -> str:
        """The persona as which the owner said a turn."""
        return next((persona for since, persona in reversed(self.personas) if since < seq), "")

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
    background: str = ""
    """The id of the picture behind scenes in it; empty without one."""


@dataclass(frozen=True)
class CastChange:
    """Somebody joined or left a chat."""

    seq: int
    who: str
    joined: bool


ReplyOrder = Literal["automatic", "in turn", "everyone", "manual"]


@dataclass(frozen=True)
class ReplyRule:
    """Who replies in a chat."""

    order: ReplyOrder = "automatic"
    """`automatic`: who is addressed, else who is most inclined to talk; `in turn`: one after the other; `everyone`:
    all, in order; `manual`: only who is asked to."""
    muted: tuple[str, ...] = ()
    """The characters that reply only if they are asked to."""


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

    def failed_analyses(self, room: str) -> dict[str, str]:
        """The turns that end exchanges without an analysis → why."""
        return dict(self._store.query("SELECT turn, failure FROM failed_analysis WHERE room = ?", (room,)))

    def people(self) -> frozenset[str]:
        """The ids of all people who are or were in any chat."""
        return frozenset(person for (person,) in self._store.query("SELECT DISTINCT person FROM chat_person"))

    def cast_changes(self, room: str, first: int, last: int) -> list[CastChange]:
        """Who joined and left in a range of seqs, in order."""
        rows = self._store.query(
            "SELECT seq, who, joined FROM cast_change WHERE room = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            (room, first, last),
        )
        return [CastChange(seq, who, bool(joined)) for seq, who, joined in rows]

    def reply_order(self, room: str) -> ReplyRule:
        rows = self._store.query("SELECT reply_order, muted FROM reply_rule WHERE room = ?", (room,))
        return ReplyRule(rows[0][0], tuple(json.loads(rows[0][1]))) if rows else ReplyRule()

    def scene(self, room: str, scene: str) -> StoryScene:
        for found in self._scenes("WHERE room = ? AND id = ?", (room, scene)):
            return found
        raise NoSuchRoom("There is no such scene.", "It may have been rewound: reload the chat.")

    def scene_at(self, room: str, seq: int) -> StoryScene | None:
        """The scene that was open at a seq."""
        found = self._scenes("WHERE room = ? AND seq < ? ORDER BY seq DESC LIMIT 1", (room, seq))
        return found[0] if found else None

    def _scenes(self, where: str, params: tuple[str | int, ...]) -> list[StoryScene]:
        columns = "id, container, participants, starts, ends, seq"
        return [
            StoryScene(
                scene_id,
                container,
                tuple(json.loads(participants)),
                from_micros(starts),
                from_micros(ends) if ends is not None else None,
                seq,
            )
            for scene_id, container, participants, starts, ends, seq in self._store.query(
                f"SELECT {columns} FROM scene {where}",  # noqa: S608
                params,
            )
        ]

    def container_name(self, room: str, container: str) -> str:
        rows = self._store.query("SELECT name FROM container WHERE room = ? AND id = ?", (room, container))
        return str(rows[0][0]) if rows else container

    def containers(self, room: str) -> dict[str, Container]:
        rows = self._store.query(
            "SELECT id, name, type, parent, moving, public, audible, background FROM container"
            " WHERE room = ? ORDER BY id",
            (room,),
        )
        return {
            row_id: Container(row_id, name, kind, parent, bool(moving), bool(public), audible, background)
            for row_id, name, kind, parent, moving, public, audible, background in rows
        }

    def activities(self, room: str) -> dict[str, Activity]:
        rows = self._store.query("SELECT entity, activity FROM activity WHERE room = ? ORDER BY entity", (room,))
        return {entity: Activity.model_validate_json(activity) for entity, activity in rows}

    def scene_summaries(self, room: str, owner: str) -> list[str]:
        """The summaries of a room's scenes from a character's point of view, oldest first."""
        sql = (
            "SELECT m.summary FROM scene_summary m LEFT JOIN scene s ON s.room = m.room AND s.id = m.scene"
            " WHERE m.room = ? AND m.owner = ? ORDER BY coalesce(s.seq, m.seq)"
        )
        return [summary for (summary,) in self._store.query(sql, (room, owner))]

    def dialogue_summary(self, room: str) -> tuple[int, str] | None:
        """The seq of the first turn that the summary does not cover, and the summary."""
        for upto, seq in self._store.query("SELECT upto, seq FROM dialogue_summary WHERE room = ?", (room,)):
            for event in self._store.reader.events_at(room, Ranges([(seq, seq)])):
                if isinstance(event.payload, DialogueSummarised):
                    return int(upto), event.payload.summary
        return None

    def _chat(self, row: tuple[Any, ...]) -> Chat:
        room, host, version, title, clock, weather, anchor, world, scene = row
        guests = self._store.query(
            "SELECT guest, version, since FROM chat_guest WHERE room = ? ORDER BY guest", (room,)
        )
        people = self._store.query(
            "SELECT person FROM chat_person WHERE room = ? AND present ORDER BY since, person", (room,)
        )
        personas = self._store.query("SELECT seq, persona FROM chat_persona WHERE room = ? ORDER BY seq", (room,))
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
            tuple((seq, persona) for seq, persona in personas),
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
        self._personas = PersonaQueries(store)

    def names(self, chat: Chat) -> dict[str, str]:
        """The name of everybody present as one line, by id: people first, then characters."""
        characters = {one: self._characters.get(one, chat.version_of(one)).name for one in chat.characters}
        names = {**{person: self.profile(chat, person).name for person in chat.people}, **characters}
        # A name stands at the start of a line of prompts and transcripts, and must not begin another line.
        return {entity: join_lines(name) for entity, name in names.items()}

    def name(self, names: Mapping[str, str], entity: str) -> str:
        """The name of somebody who may have left; `names` are those present."""
        if entity in names:
            return names[entity]
        known = self.person(entity) if entity in self._chats.people() else self._characters.get(entity)
        return join_lines(known.name)

    def turn_name(self, chat: Chat, names: Mapping[str, str], turn: Turn) -> str:
        """The name of a turn's speaker: of the owner, as whom they spoke then. `names` are those present."""
        if turn.speaker == OWNER and (persona := chat.persona_at(turn.seq)) != chat.persona:
            return join_lines(self.profile_of(persona).name)
        return self.name(names, turn.speaker)

    def profile(self, chat: Chat, person: str) -> OwnerProfile:
        """A person as the characters of a chat know them now: the owner by the persona chosen for it."""
        return self.profile_of(chat.persona) if person == OWNER else self.person(person)

    def profile_of(self, persona: str) -> OwnerProfile:
        """A persona's profile; the owner's own for an empty id."""
        return self._personas.get(persona).profile if persona else self._characters.owner()

    def default_persona(self) -> str:
        """The persona of new chats; empty for the owner's profile."""
        return self._personas.default()

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


class Bookmark(BaseModel):
    """A bookmarked turn of a chat."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    chat: str
    title: str
    turn: str
    seq: int
    name: str
    """What the person called it, else the beginning of its text."""
    speaker: str
    """The speaker's id."""


_BOOKMARK_LENGTH = 100


class Bookmarks:
    """Bookmarks and quick replies. A bookmark is shown in every chat that has its turn: in forks, too."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, room: str | None = None) -> list[Bookmark]:
        """The bookmarks of all chats or of one, in the order of the turns."""
        rows = self._store.query(
            "SELECT c.room, c.title, t.id, t.seq, b.name, t.text, t.speaker FROM bookmark b"
            " JOIN turn t ON t.id = b.turn JOIN chat c ON c.room = t.room"
            " WHERE ?1 IS NULL OR t.room = ?1 ORDER BY c.room DESC, t.seq",
            (room,),
        )
        return [
            Bookmark(
                chat=chat.partition(":")[2],
                title=title,
                turn=turn,
                seq=seq,
                name=name or " ".join(text[: 2 * _BOOKMARK_LENGTH].split())[:_BOOKMARK_LENGTH],
                speaker=speaker,
            )
            for chat, title, turn, seq, name, text, speaker in rows
        ]

    async def set(self, turn: str, bookmarked: bool, name: str = "") -> None:
        """Bookmark a turn, or remove its bookmark; appends nothing if that is the case already."""
        stored = self._store.query("SELECT name FROM bookmark WHERE turn = ?", (turn,))
        if bookmarked != bool(stored) or (bookmarked and stored[0][0] != name):
            payload = TurnBookmarked(turn=turn, bookmarked=bookmarked, name=name)
            await self._store.append([NewEvent(BOOKMARKS_STREAM, payload, OWNER)])

    def quick_replies(self) -> list[QuickReply]:
        rows = self._store.query("SELECT replies FROM quick_replies")
        return [QuickReply.model_validate(one) for one in json.loads(rows[0][0])] if rows else []

    async def set_quick_replies(self, replies: Sequence[QuickReply]) -> None:
        if list(replies) != self.quick_replies():
            payload = QuickRepliesSet(replies=tuple(replies))
            await self._store.append([NewEvent(BOOKMARKS_STREAM, payload, OWNER)])


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
