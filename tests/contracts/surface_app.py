"""A test app for surfaces: real inbox, outbox, people and rooms, with a mode that repeats each message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coterie.base.clock import Clock, SystemClock
from coterie.base.ids import new_id
from coterie.base.supervisor import Supervisor
from coterie.characters.identity import Identity
from coterie.characters.people import People, PeopleProjection
from coterie.characters.service import Characters, CharactersProjection
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.messaging.files import RoomFiles
from coterie.messaging.message_router import MessageRouter, messaging_projections
from coterie.messaging.ports import ChatStatus, Conversation, NewChat, ReplyDelta, ReplyFinished, ReplyUpdate, Surface
from coterie.messaging.protocol import Attachment, RoomRef
from coterie.messaging.settings import SurfacesSettings


@dataclass
class EchoConversation:
    """Replies with the message and its chat; the same key gets the same reply."""

    mode: str = "echo"
    received: list[tuple[str, str]] = field(default_factory=list)
    """Context and text of every message that was new."""
    quotes: list[str] = field(default_factory=list)
    """What each of these messages replied to."""
    answers: dict[str, str] = field(default_factory=dict)
    script: dict[str, str] = field(default_factory=dict)
    """Other replies, by message text."""
    reply_errors: dict[str, str] = field(default_factory=dict)
    """The error of replies that break off, by message text."""
    exceptions: dict[str, BaseException] = field(default_factory=dict)
    files: list[Attachment] = field(default_factory=list)
    sent_files: dict[str, tuple[Attachment, ...]] = field(default_factory=dict)
    """The files of replies, by message text."""
    added_people: list[tuple[str, str]] = field(default_factory=list)
    """Contexts and the people added to them, one entry per call."""
    titles: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    gate: asyncio.Event | None = None
    """If set, replies wait for this event."""
    may_continue: Callable[[], bool] = lambda: True
    """The second piece of a reply waits until this is true."""

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        return NewChat(f"echo:{new_id()}", ())

    async def add_person(self, context: str, person: str) -> None:
        self.added_people.append((context, person))

    async def remove_person(self, context: str, person: str) -> None:
        self.added_people.remove((context, person))

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = (), quote: str = ""
    ) -> AsyncIterator[ReplyUpdate]:
        if key not in self.answers:
            self.received.append((context, text))
            self.quotes.append(quote)
            self.files.extend(attachments)
            self.answers[key] = self.script.get(text, f"{text} [{context}]")
        if self.gate is not None:
            await self.gate.wait()
        if text in self.exceptions:
            raise self.exceptions[text]
        answer = self.answers[key]
        for number, piece in enumerate(_pieces(answer)):
            while number == 1 and not self.may_continue():
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.pause_s)
            yield ReplyDelta(piece)
        yield ReplyFinished(answer, "Echo", self.reply_errors.get(text, ""), self.sent_files.get(text, ()))

    async def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        yield ReplyFinished(f"again [{context}]", "Echo")

    async def stop(self, context: str) -> bool:
        if self.gate is None or self.gate.is_set():
            return False
        self.gate.set()
        return True

    def status(self, context: str) -> ChatStatus:
        return ChatStatus(f"about {context}", "Echo", sum(1 for where, _ in self.received if where == context))

    async def rename(self, context: str, title: str) -> None:
        self.titles[context] = title


def _pieces(text: str) -> list[str]:
    return [text[at : at + 40] for at in range(0, len(text), 40)]


class SurfaceApp:
    """Can crash and be opened again; only what is in the database survives."""

    def __init__(
        self,
        path: Path,
        *,
        settings: SurfacesSettings | None = None,
        clock: Clock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.path = path
        self.supervisor = supervisor
        self.settings = settings or SurfacesSettings(slow_notice_s=0)
        self.clock = clock or SystemClock()
        self.echo, self.other = EchoConversation(), EchoConversation("other")
        self.open()

    def open(self) -> None:
        self.store = Store.open(
            self.path,
            projections=[CharactersProjection(), PeopleProjection(), *messaging_projections()],
            clock=self.clock,
        )
        self.roster = Characters(self.store)
        self.people = People(self.store, self.clock)
        modes: dict[str, Conversation] = {"echo": self.echo, "other": self.other}
        self.router = MessageRouter(
            self.store, self.clock, self.roster, self.people, modes, self.settings, supervisor=self.supervisor
        )

    async def create_character(self) -> None:
        await self.roster.save(Identity(name="Echo", persona="Repeats."))

    async def crash(self) -> None:
        """As if the process ended here: running work is dropped and nothing more is recorded."""

        async def never(*_: object, **__: object) -> list[object]:
            raise asyncio.CancelledError

        self.store.append = never  # type: ignore[assignment,method-assign]
        await self.router.close()
        self.store.close()
        self.open()

    def files_in(self, room: RoomRef) -> RoomFiles:
        """The files of the character who answers in a room."""
        binding = self.router.chats.rooms.find(room)
        return self.files_in_workspace(binding.character if binding is not None else "shared")

    def files_in_workspace(self, character: str) -> RoomFiles:
        return RoomFiles(self.path.parent / "workspaces" / character)

    def attach(self, surface: Surface) -> None:
        self.router.attach(surface)

    def verify(self) -> None:
        with self.store.reader.connections.read_transaction() as rows:
            assert self.store.hashes() == {view.name: replayed_hash(view, rows) for view in self.store.projections}

    async def close(self) -> None:
        await self.router.close()
        self.verify()
        self.store.close()
