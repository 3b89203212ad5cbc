"""The port of a platform: what the engine asks of every surface, and what it needs to know about it.

An adapter holds the connection, hands what happens to `Reception.accept`, and shows what it is given. Delivery, order,
retries, people and conversations are not its business. Every adapter passes tests/contracts/surface_contract.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from coterie.engine.pacing import EditPace
from coterie.engine.protocol import Account, Deliverable, RoomRef


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do."""

    max_length: int = 4_000
    """The longest text of one message, in the platform's measure."""
    length_in_bytes: bool = False
    """Whether that counts bytes of UTF-8 instead of characters."""
    deduplicates: bool = False
    """Whether sending the same token twice shows one message: then an ambiguous send is simply repeated."""
    can_edit: bool = False
    """Whether a message can be changed after it was sent; streaming needs it."""
    can_create_rooms: bool = False
    pace: EditPace = field(default_factory=EditPace)
    command_prefix: str = "/"
    """What begins a command."""

    def length_of(self, text: str) -> int:
        return len(text.encode()) if self.length_in_bytes else len(text)


class Surface(Protocol):
    name: str
    capabilities: Capabilities

    async def send(self, outgoing: Deliverable, token: str) -> str:
        """Show it and return the platform's id of it. `token` is the platform's idempotency key."""
        ...

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        """Let the message with this id show `outgoing` instead."""
        ...

    async def typing(self, room: RoomRef, on: bool) -> None: ...

    async def create_room(self, person: Account, title: str, key: str) -> RoomRef:
        """A new room for a person; the same key again is the same room. Only asked where `abilities.makes_rooms`."""
        ...

    async def rename_room(self, room: RoomRef, title: str) -> None: ...
