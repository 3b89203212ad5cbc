"""Organising chats: archive, pin, tag, delete and restore, duplicate, and the tree of forks with their swipes.

What is only order in the list is recorded beside the chats, so that a rewind does not change it. Deleting a chat makes
all its events inactive: its turns, memories and changes of relationships no longer count, until it is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from coterie.base.clock import from_micros
from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.characters import OWNER
from coterie.conversation import NoSuchRoom, NoSuchTurn, Turn
from coterie.eventstore import NewEvent, Payload, Reset, Rewound
from coterie.modes.story.chat_context import ChatContext, supersede
from coterie.modes.story.events import DELETED_KEY_PREFIX, ManualEdit
from coterie.modes.story.history.fork import Fork
from coterie.modes.story.history.reset import CharacterResets
from coterie.modes.story.library.projection import ChatArchived, ChatDeleted, ChatPinned, ChatTagged
from coterie.modes.story.queries import Chat
from coterie.modes.story.turns import Alternatives

_STREAM = "chats"
_MAX_TREE_SWIPES = 100


@dataclass(frozen=True)
class DeletedChat:
    room: str
    title: str
    at: datetime

    @property
    def id(self) -> str:
        return self.room.partition(":")[2]


@dataclass(frozen=True)
class SwipePoint:
    """A message with several replies."""

    turn: str
    """The chosen reply."""
    seq: int
    replies: tuple[str, ...]
    """The texts of all replies, oldest first."""
    chosen: int
    """Which of them counts."""


@dataclass(frozen=True)
class ChatBranch:
    """A chat in the tree of forks."""

    chat: Chat | None
    """None if it was deleted or reset."""
    room: str
    turns: int
    forked_at: Turn | None
    """The last turn that it shares with its parent, if that still counts there."""
    swipes: Sequence[SwipePoint] = ()
    forks: list[ChatBranch] = field(default_factory=list)


class ChatList:
    def __init__(self, context: ChatContext, fork: Fork, resets: CharacterResets, alternatives: Alternatives) -> None:
        self._context = context
        self._store = context.store
        self._fork = fork
        self._resets = resets
        self._alternatives = alternatives

    # --- queries -----------------------------------------------------------------------------------------------

    def archived(self) -> frozenset[str]:
        """The streams of archived chats: they are not in lists, searches and counts of unread replies."""
        return self._flagged("archived")

    def pinned(self) -> frozenset[str]:
        return self._flagged("pinned")

    def tags(self) -> dict[str, list[str]]:
        """The tags of every chat that has some, by stream."""
        tags: dict[str, list[str]] = {}
        for room, tag in self._store.query("SELECT room, tag FROM chat_tag ORDER BY tag"):
            tags.setdefault(room, []).append(tag)
        return tags

    def listed(self) -> list[Chat]:
        """The chats that are not archived, newest first."""
        archived = self.archived()
        return [chat for chat in self._context.chats.chats() if chat.room not in archived]

    def deleted(self) -> list[DeletedChat]:
        """Last deleted first."""
        rows = self._store.query("SELECT room, title, at FROM deleted_chat ORDER BY at DESC, room")
        return [DeletedChat(room, title, from_micros(at)) for room, title, at in rows]

    async def tree(self, room: str) -> ChatBranch:
        """The chat that a chat goes back to, with all its forks and theirs, and the swipes of each."""
        self._context.chats.chat(room)
        root = self._context.root_room(room)
        rooms = {chat.room: chat for chat in self._context.chats.chats()}
        children: dict[str, list[tuple[str, int]]] = {}
        for fork in rooms:
            child = fork
            while (origin := self._store.reader.fork_origin(child)) is not None:
                siblings = children.setdefault(origin[0], [])
                if (child, origin[1]) not in siblings:
                    siblings.append((child, origin[1]))
                child = origin[0]
        return await self._branch(root, rooms, children, None)

    async def _branch(
        self, room: str, rooms: dict[str, Chat], children: dict[str, list[tuple[str, int]]], shared: int | None
    ) -> ChatBranch:
        forks = [
            await self._branch(child, rooms, children, at)
            for child, at in sorted(children.get(room, []), key=lambda pair: pair[1])
        ]
        last_shared = self._context.timeline.latest(room, 1, shared + 1) if shared is not None else []
        return ChatBranch(
            rooms.get(room),
            room,
            self._context.timeline.count(room),
            last_shared[0] if last_shared else None,
            await self._swipes(room, shared or 0) if room in rooms else (),
            forks,
        )

    async def _swipes(self, room: str, after: int) -> list[SwipePoint]:
        """The newest swipes of a chat's own turns."""
        places = {
            tuple(one.reply for one in found): found for found in (await self._alternatives.for_chat(room)).values()
        }
        points: list[SwipePoint] = []
        for ids, alternatives in reversed(list(places.items())):
            if len(ids) < 2 or len(points) >= _MAX_TREE_SWIPES:
                continue
            for chosen, reply in enumerate(ids):
                try:
                    turn = self._context.timeline.turn(room, reply)
                except NoSuchTurn:
                    continue
                if turn.seq > after:
                    points.append(SwipePoint(reply, turn.seq, tuple(one.text for one in alternatives), chosen))
        return sorted(points, key=lambda point: point.seq)

    def _flagged(self, flag: str) -> frozenset[str]:
        return frozenset(room for (room,) in self._store.query("SELECT room FROM chat_flag WHERE flag = ?", (flag,)))

    # --- commands ----------------------------------------------------------------------------------------------

    async def rename(self, room: str, title: str) -> None:
        chat = self._context.chats.chat(room)
        if title != chat.title:
            renamed = ManualEdit(what="title", value=title, prior=chat.title)
            await self._store.append([NewEvent(room, renamed, OWNER)])

    async def archive(self, room: str, archived: bool = True) -> None:
        await self._append(ChatArchived(chat=self._context.chats.chat(room).room, archived=archived))

    async def pin(self, room: str, pinned: bool = True) -> None:
        await self._append(ChatPinned(chat=self._context.chats.chat(room).room, pinned=pinned))

    async def tag(self, room: str, tags: Sequence[str]) -> None:
        """Replace the tags of a chat."""
        await self._append(ChatTagged(chat=self._context.chats.chat(room).room, tags=tuple(dict.fromkeys(tags))))

    async def duplicate(self, room: str) -> Chat:
        """A copy that goes on by itself: a fork at the last turn."""
        chat, last = self._context.chats.chat(room), self._context.timeline.latest(room, 1)
        if not last:
            raise NoSuchTurn("There is nothing to duplicate yet.", "Write a message first.")
        return await self._fork.fork(room, last[0].id, f"{chat.title} (copy)"[:200])

    async def delete(self, room: str) -> None:
        """Delete a chat: what happened in it no longer counts, also not in memories and relationships."""
        chat = self._context.chats.chat(room)
        await self._context.replies.stop(room)
        await self._context.snapshot()
        async with self._context.lock(room):
            await self._context.replies.stop(room)
            deleted = ChatDeleted(chat=room, title=chat.title)
            reset = NewEvent(room, Reset(), OWNER, key=f"{DELETED_KEY_PREFIX}{new_id()}")
            await self._store.append([reset, NewEvent(_STREAM, deleted, OWNER)])

    async def restore(self, room: str) -> Chat:
        """Undo the deletion of a chat. Characters that were reset since do not get their memories back."""
        async with self._context.lock(room):
            if room not in {chat.room for chat in self.deleted()}:
                raise NoSuchRoom("There is no such deleted chat.", "Choose one from the list of deleted chats.")
            (last,) = await self._store.read(room, kinds=[Rewound.kind, Reset.kind], newest_first=True, limit=1)
            if not (last.key or "").startswith(DELETED_KEY_PREFIX):
                raise BadPoint("This chat was continued after it was deleted.", "Open it from the list of chats.")
            new_events = [NewEvent(room, Rewound(to=last.seq - 1, redo=True), OWNER)]
            if hidden := await self._resets.before_reset(room, last.seq - 1):
                new_events.append(NewEvent(room, supersede(hidden), OWNER))
            await self._store.append([*new_events, NewEvent(_STREAM, ChatDeleted(chat=room, deleted=False), OWNER)])
        return self._context.chats.chat(room)

    async def _append(self, payload: Payload) -> None:
        await self._store.append([NewEvent(_STREAM, payload, OWNER)])
