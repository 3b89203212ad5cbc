"""Spaces and rooms as they are on the homeserver: which we made, for whom, and what for. Trap 10

Each room carries what we know about it as a state event of our own, set while it is created. So whatever was made can
be found again, even if the process ended before it could note it, and nothing is made twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from coterie.surfaces.matrix.homeserver import Homeserver, Json

CHAT = "org.coterie.chat"
SPACE = "org.coterie.space"
CREATE, NAME = "m.room.create", "m.room.name"
ENCRYPTION = "m.room.encryption"
ENCRYPTION_RULES = {"algorithm": "m.megolm.v1.aes-sha2"}


@dataclass
class CreatedRoom:
    room: str
    account: str
    """The Matrix account it was made for."""
    metadata: Json
    """What the state event says."""
    title: str = ""
    is_space: bool = False


@dataclass
class MatrixRooms:
    server: Homeserver
    user: str
    rooms: dict[str, CreatedRoom] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Rooms we are in and did not make."""
    encrypted: bool = False
    """Whether the rooms we make are sealed."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def scan(self) -> dict[str, list[Json]]:
        """Look at every room we are in, in one request. Changes nothing on the homeserver; returns what rooms say."""
        told = await self.server.state_of_joined_rooms([CREATE, NAME, SPACE, CHAT, ENCRYPTION])
        for room, state in told.items():
            self._register(room, state)
        return told

    async def load(self, room: str) -> CreatedRoom | None:
        """What one room says about itself; None where it is not ours. Only what we ourselves wrote is believed."""
        return self._register(room, await self.server.state(room))

    def _register(self, room: str, state: list[Json]) -> CreatedRoom | None:
        made = self._read(room, state)
        if made is None:
            self.foreign.add(room)
        else:
            self.rooms[room] = made
        return made

    def _read(self, room: str, state: list[Json]) -> CreatedRoom | None:
        by_kind: dict[str, Json] = {event["type"]: event for event in state if event.get("state_key") == ""}
        if by_kind.get(CREATE, {}).get("sender") != self.user:
            return None
        for kind in (SPACE, CHAT):
            event = by_kind.get(kind)
            if event is not None and event.get("sender") == self.user and isinstance(event["content"], dict):
                about = event["content"]
                title = str(by_kind.get(NAME, {}).get("content", {}).get("name", ""))
                return CreatedRoom(room, str(about.get("account", "")), about, title, kind == SPACE)
        return None

    async def space_for(self, account: str, name: str) -> str:
        """The person's Space, made if there is none."""
        async with self._lock(account):
            for one in self.rooms.values():
                if one.is_space and one.account == account:
                    await self.server.invite(one.room, account)
                    return one.room
            about: Json = {"account": account}
            told = _room(f"Coterie with {name}", account, SPACE, about, topic="Your characters, a room per chat.")
            told |= {"creation_content": {"type": "m.space"}, "power_level_content_override": {"events_default": 50}}
            return await self._create(told, about, is_space=True)

    async def room_for(self, account: str, title: str, topic: str, metadata: Json) -> str:
        """A room in the person's Space; one with the same key is the same room."""
        async with self._lock(f"{account} {metadata['key']}"):
            for one in self.rooms.values():
                if one.account == account and one.metadata.get("key") == metadata["key"] and not one.is_space:
                    return one.room
            space = await self.space_for(account, account)
            whole = {"account": account, **metadata}
            told = _room(title, account, CHAT, whole, topic=topic)
            parent: Json = {"via": [_server_of(self.user)], "canonical": True}
            told["initial_state"].append({"type": "m.space.parent", "state_key": space, "content": parent})
            if self.encrypted:
                told["initial_state"].append({"type": ENCRYPTION, "state_key": "", "content": ENCRYPTION_RULES})
            room = await self._create(told, whole, is_space=False)
            await self.server.put_state(space, "m.space.child", room, {"via": [_server_of(self.user)]})
            return room

    async def update_metadata(self, room: str, **about: Any) -> None:
        """Write down what became of a room, for the day when our own database is lost."""
        made = self.rooms.get(room)
        if made is not None and {**made.metadata, **about} != made.metadata:
            told = {**made.metadata, **about}
            await self.server.put_state(room, CHAT, "", told)
            made.metadata = told

    async def _create(self, told: Json, about: Json, *, is_space: bool) -> str:
        room = await self.server.create_room(told)
        self.rooms[room] = CreatedRoom(room, about["account"], about, told["name"], is_space)
        return room

    def _lock(self, what: str) -> asyncio.Lock:
        return self._locks.setdefault(what, asyncio.Lock())


def _room(name: str, account: str, kind: str, about: Json, *, topic: str) -> Json:
    return {
        "preset": "private_chat",
        "name": name[:200],
        "topic": topic[:500],
        "invite": [account],
        "is_direct": False,
        "initial_state": [{"type": kind, "state_key": "", "content": about}],
    }


def _server_of(user: str) -> str:
    return user.partition(":")[2]
