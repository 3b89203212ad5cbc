"""The Matrix account at work: logs in, makes the records right, attaches itself, and follows the homeserver. P7, P10"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters.workspace import Portrait
from coterie.eventstore import AnyEvent, Bus, WhenSlow
from coterie.eventstore.jobs import backoff_s
from coterie.messaging.errors import PlatformRateLimited, PlatformUnreachable
from coterie.messaging.files import RoomFiles
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.protocol import MemberChange, Outgoing, OutgoingMessage, OutgoingNotification, RoomRef
from coterie.messaging.rooms import ContextChanged, RoomBound
from coterie.surfaces.matrix.homeserver import KeysRefused, LoggedOut, MatrixRefused
from coterie.surfaces.matrix.login import LOGIN_FILE, connect
from coterie.surfaces.matrix.messages import SURFACE, room_ref
from coterie.surfaces.matrix.rooms import MatrixRooms, Reconciler, ReconcileReport, room_metadata
from coterie.surfaces.matrix.settings import MatrixSettings
from coterie.surfaces.matrix.surface import MatrixSurface
from coterie.surfaces.matrix.sync import SyncLoop

FIRST = "first"
"""The key of the room that every person gets."""
UNREAD = "I could not read your last message: my device was not given its key. Please send it again."
_log = get_logger(__name__)


class MatrixService:
    def __init__(
        self,
        router: MessageRouter,
        bus: Bus,
        settings: MatrixSettings,
        folder: Path,
        files: Callable[[str], RoomFiles],
        portrait: Callable[[str], Portrait | None] = lambda _: None,
    ) -> None:
        """`folder` is for its own things; `files` gives the files of a character, `portrait` its picture."""
        self._board = router
        self._bus = bus
        self._settings = settings
        self._folder = folder
        self._files = files
        self._portrait = portrait
        self.report = ReconcileReport()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At work in the background: a homeserver that is away keeps nobody else from starting."""
        stop = asyncio.Event()
        work = asyncio.create_task(self._run(stop), name="matrix")
        try:
            yield
        finally:
            stop.set()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run(self, stop: asyncio.Event) -> None:
        tries = 0
        while not stop.is_set():
            try:
                async with self.connected() as following:
                    tries = 0
                    noting = asyncio.create_task(self._note_changes(), name="matrix notes")
                    try:
                        await following.run(stop)
                    finally:
                        noting.cancel()
                        await asyncio.gather(noting, return_exceptions=True)
            except (PlatformUnreachable, PlatformRateLimited, KeysRefused) as error:
                tries += 1
                _log.warning("Matrix cannot be reached", tries=tries, error=str(error))
                await asyncio.sleep(backoff_s(tries, maximum=60.0))
            except LoggedOut as error:
                if self._settings.password is None or tries:
                    _log.error("Matrix is off", error=redact(str(error)))
                    return
                tries += 1
                _log.warning("logged out: logging in anew, as another device")
                await asyncio.to_thread((self._folder / LOGIN_FILE).unlink, missing_ok=True)
            except CoterieError as error:
                _log.error("Matrix is off", error=redact(str(error)))
                return

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[SyncLoop]:
        """Logged in, with the records right; following is the caller's to do."""
        server, login, self.crypto = await connect(self._settings, self._folder)
        try:
            if self._settings.owner:
                await self._board.people.link_owner(SURFACE, self._settings.owner)
            self.topology = MatrixRooms(server, login.user, encrypted=self._settings.encrypted)
            for room, state in (await self.topology.scan()).items():
                self.crypto.observe_state(room, state)
            self.reconciler = Reconciler(self._board, self.topology)
            self.report = await self.reconciler.run()
            _log.info("reconciled", rooms=len(self.topology.rooms), report=str(self.report))
            surface = MatrixSurface(server, self.crypto, self.topology, self._files_in)
            self._board.dispatcher.on(MemberChange, "invited", surface=SURFACE)(self.on_invite)
            self._board.attach(surface)
            noting = asyncio.create_task(self._note_all(), name="matrix notes at start")
            try:
                yield SyncLoop(
                    server,
                    login.user,
                    self._board.inbound,
                    self._files_in,
                    self.reconcile_unknown,
                    self._settings.sync_s,
                    self.crypto,
                    self.notify_undecryptable,
                )
            finally:
                self._board.detach(surface)
                noting.cancel()
                await asyncio.gather(noting, return_exceptions=True)
        finally:
            self.crypto.close()
            await server.close()

    async def notify_undecryptable(self, room: str, account: str, session: str) -> None:
        """Told once per key, and only to whom we know: whoever wrote it must know that it was not heard."""
        if self._board.people.by_account(SURFACE, account) is not None:
            notice = OutgoingNotification(room=room_ref(room), text=UNREAD)
            await self._board.notify(notice, f"unread.{hashlib.sha256(session.encode()).hexdigest()[:20]}")

    async def on_invite(self, incoming: MemberChange) -> AsyncIterator[Outgoing]:
        """A Space and a first room, once per person, however often and from wherever we are invited."""
        person, account = self._board.chats.sender(incoming), incoming.account
        await self.topology.server.join(incoming.room.id)
        room = room_ref(await self.topology.room_for(account.id, "First chat", "Say something.", {"key": FIRST}))
        if self._board.chats.rooms.find(room) is None:
            _, greeting = await self._board.chats.begin_chat(room, person, title="First chat")
            if greeting:
                yield OutgoingMessage(room=room, text=greeting)
        yield OutgoingNotification(room=incoming.room, text="Your chats are in the Space I invited you to. !help")

    async def reconcile_unknown(self, room: str) -> None:
        """P10: a room that is ours and that our records do not know is made right before it is answered."""
        if self._board.chats.rooms.find(room_ref(room)) is not None or room in self.topology.foreign:
            return
        try:
            made = self.topology.rooms.get(room) or await self.topology.load(room)
        except MatrixRefused as error:
            _log.warning("a room could not be looked at", room=room, error=str(error))
            return
        if made is not None and not made.is_space and made.metadata.get("person"):
            await self.reconciler.reconcile_room(made, self.report)
            await self.reconciler.write_metadata()

    def _files_in(self, room: RoomRef) -> RoomFiles:
        bound = self._board.chats.rooms.find(room)
        owner = bound.character if bound is not None else "shared"
        return self._files(owner)

    async def _note_changes(self) -> None:
        """Rooms tell what they are about; what is missed here is noted at the next start."""
        async with self._bus.subscribe("event.>", limit=10_000, when_slow=WhenSlow.DROP_OLDEST) as news:
            async for message in news:
                event: AnyEvent = message.body
                if isinstance(event.payload, RoomBound | ContextChanged) and event.payload.room.surface == SURFACE:
                    await self.update_room(event.payload.room)

    async def _note_all(self) -> None:
        await self.reconciler.write_metadata()
        for bound in self._board.chats.rooms.on_surface(SURFACE):
            await self.update_room(bound.room)

    async def update_room(self, room: RoomRef) -> None:
        """Let a room's state event say what it is about now, and its picture show who is there."""
        bound = self._board.chats.rooms.find(room)
        if bound is not None:
            try:
                await self._show_portrait(room.id, bound.character)
                await self.topology.update_metadata(room.id, **room_metadata(bound, self._board))
            except CoterieError as error:
                _log.info("a room was not noted", room=room.id, error=str(error))

    async def _show_portrait(self, room: str, character: str) -> None:
        portrait = self._portrait(character)
        mark = hashlib.sha256(portrait.data).hexdigest()[:16] if portrait is not None else ""
        made = self.topology.rooms.get(room)
        if portrait is None or made is None or made.metadata.get("portrait") == mark:
            return
        server, size = self.topology.server, len(portrait.data)
        uri = await server.upload(_once(portrait.data), size, portrait.media_type, "")
        info = {"mimetype": portrait.media_type, "size": size}
        await server.put_state(room, "m.room.avatar", "", {"url": uri, "info": info})
        await self.topology.update_metadata(room, portrait=mark)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
