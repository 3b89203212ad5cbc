"""Run the Matrix surface: log in, reconcile the rooms, attach to the router, and sync."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import SupervisedTask, Supervisor, pause, report_problem, report_recovery
from coterie.characters import IdentityLinked, Portrait
from coterie.eventstore import AnyEvent, Purged, Store, WhenSlow, backoff_s
from coterie.messaging import (
    ContextChanged,
    MemberChange,
    MessageRouter,
    MessengerQuestion,
    MessengerStatus,
    Outgoing,
    OutgoingMessage,
    OutgoingNotification,
    PlatformRateLimited,
    PlatformUnreachable,
    RoomArchived,
    RoomBound,
    RoomFiles,
    RoomListening,
    RoomRef,
    RoomShared,
)
from coterie.surfaces.matrix.homeserver import KeysRefused, LoggedOut, MatrixRefused
from coterie.surfaces.matrix.login import IDENTITY_FILE, LOGIN_FILE, connect
from coterie.surfaces.matrix.records import AccountRecords
from coterie.surfaces.matrix.rooms import MatrixRooms, Reconciler, ReconcileReport, room_metadata
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from coterie.surfaces.matrix.settings import MatrixSettings
from coterie.surfaces.matrix.surface import MatrixSurface
from coterie.surfaces.matrix.sync import SyncLoop

FIRST_ROOM = "first"
"""The key of the room that every person gets."""
_ROOM_CHANGES = RoomBound | ContextChanged | RoomArchived | RoomListening | RoomShared
_RECORDED_STREAMS = frozenset({"cast", "people", "you"})
"""The streams whose events change what is kept on the homeserver."""
_MAX_PURGES = 100_000
UNREAD = "I could not read your last message: my device did not get its key. Please send it again."
_log = get_logger(__name__)


class MatrixService:
    def __init__(
        self,
        router: MessageRouter,
        store: Store,
        settings: MatrixSettings,
        folder: Path,
        files: Callable[[str], RoomFiles],
        portrait: Callable[[str], Portrait | None] = lambda _: None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`folder` holds the login and the keys; `files` gives the files of a character, `portrait` its picture."""
        self._router = router
        self._store = store
        self._settings = settings
        self._folder = folder
        self._files = files
        self._portrait = portrait
        self._supervisor = supervisor or Supervisor()
        self.report = ReconcileReport()
        self._task: SupervisedTask | None = None
        self._user = ""

    @property
    def status(self) -> MessengerStatus:
        link = f"https://matrix.to/#/{self._user}" if self._user else ""
        last = self._router.inbound.inbox.last_received(SURFACE)
        if self._task is None:
            return MessengerStatus("off", self._user, link, last_message=last)
        state = self._task.state
        if not state.healthy:
            return MessengerStatus("retrying", self._user, link, state.error, state.fix, last)
        if SURFACE not in self._router.surfaces:
            return MessengerStatus("connecting", self._user, link, last_message=last)
        verified = self.crypto.verifications.verified_by
        note = f"{verified[-1]} has verified this account." if verified else ""
        return MessengerStatus("connected", self._user, link, "", "", last, note, self.questions())

    def questions(self) -> tuple[MessengerQuestion, ...]:
        """The emoji that wait for a comparison."""
        choices = (("match", "They match"), ("differ", "They do not match"))
        return tuple(
            MessengerQuestion(
                one.transaction,
                f"{one.user} verifies this account. Compare with what their client shows: {', '.join(one.emoji)}",
                choices,
            )
            for one in self.crypto.verifications.to_compare()
        )

    async def answer(self, question: str, *, matches: bool) -> bool:
        """Whether the emoji of a verification match. False if it is no longer open."""
        if SURFACE not in self._router.surfaces:
            return False
        return await self.crypto.verifications.answer(question, matches=matches)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run in the background, so that an unreachable homeserver does not delay the start of the app."""
        stop = asyncio.Event()
        task = self._task = self._supervisor.start("Matrix", partial(self._run, stop))
        try:
            yield
        finally:
            stop.set()
            await task.stop()

    async def _run(self, stop: asyncio.Event) -> None:
        """Connect and sync until stopped. A problem with the homeserver is reported, and it is tried again."""
        tries, logged_in_again = 0, False
        while not stop.is_set():
            try:
                async with self.connected() as sync_loop:
                    tries, logged_in_again = 0, False
                    report_recovery()
                    await sync_loop.run(stop)
            except LoggedOut as error:
                tries += 1
                if self._settings.password is None or logged_in_again:
                    await self._wait_after(error, tries, stop)
                else:
                    logged_in_again = True
                    _log.warning("logged out: logging in again, as another device")
                    await asyncio.to_thread((self._folder / LOGIN_FILE).unlink, missing_ok=True)
            except CoterieError as error:
                tries += 1
                await self._wait_after(error, tries, stop)

    async def _wait_after(self, error: CoterieError, tries: int, stop: asyncio.Event) -> None:
        """Report why Matrix does not work, and wait before the next try."""
        report_problem(error.what, error.fix)
        if isinstance(error, PlatformRateLimited):
            wait_s = error.retry_after_s
        elif isinstance(error, PlatformUnreachable | KeysRefused):
            wait_s = backoff_s(tries, maximum=60.0)
        else:  # a wrong password, for example: trying it often would lock the account
            wait_s = backoff_s(tries, first=60.0, maximum=900.0)
        _log.warning("Matrix does not work", tries=tries, retry_in_s=wait_s, error=redact(str(error)))
        await pause(stop, wait_s)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[SyncLoop]:
        """Log in, reconcile and attach; the caller runs the sync loop."""
        server, login, self.crypto = await connect(self._settings, self._folder)
        self._user = login.user
        try:
            if self._settings.owner:
                await self._router.people.link_owner(SURFACE, self._settings.owner)
            self.rooms = MatrixRooms(server, login.user, encrypted=self._settings.encrypted)
            for room, state in (await self.rooms.scan()).items():
                self.crypto.observe_state(room, state)
            self.crypto.verifications.is_welcome = self._is_known
            identity = self._folder / IDENTITY_FILE
            self.records = AccountRecords(server, login.user, identity, self._router, self._was_purged)
            restored = await self.records.restore()
            self.reconciler = Reconciler(self._router, self.rooms)
            self.report = await self.reconciler.run()
            self.report.restored[:0] = restored
            _log.info("reconciled", rooms=len(self.rooms.rooms), report=str(self.report))
            surface = MatrixSurface(server, self.crypto, self.rooms, self._files_in)
            self._router.dispatcher.on(MemberChange, "invited", surface=SURFACE)(self.on_invite)
            self._router.attach(surface)
            updates = self._supervisor.start("Matrix room updates", self._update_rooms)
            try:
                yield SyncLoop(
                    server,
                    login.user,
                    self._router.inbound,
                    self._files_in,
                    self.reconcile_unknown,
                    self._settings.sync_s,
                    self.crypto,
                    self.notify_undecryptable,
                )
            finally:
                self._router.detach(surface)
                await updates.stop()
        finally:
            self.crypto.close()
            await server.close()

    def _is_known(self, account: str) -> bool:
        return self._router.people.by_account(SURFACE, account) is not None

    async def notify_undecryptable(self, room: str, account: str, session: str) -> None:
        """Notify a known sender that a message could not be read, once per key."""
        if self._is_known(account):
            notice = OutgoingNotification(room=room_ref(room), text=UNREAD)
            await self._router.notify(notice, f"unread.{hashlib.sha256(session.encode()).hexdigest()[:20]}")

    async def on_invite(self, incoming: MemberChange) -> AsyncIterator[Outgoing]:
        """Create a Space and a first room, once per person, however often we are invited."""
        person, account = self._router.chats.sender(incoming), incoming.account
        await self.rooms.server.join(incoming.room.id)
        room = room_ref(await self.rooms.room_for(account.id, "First chat", "Say something.", {"key": FIRST_ROOM}))
        if self._router.chats.rooms.find(room) is None:
            _, greeting = await self._router.chats.begin_chat(room, person, title="First chat")
            if greeting:
                yield OutgoingMessage(room=room, text=greeting)
        yield OutgoingNotification(room=incoming.room, text="Your chats are in the Space I invited you to. !help")

    async def reconcile_unknown(self, room: str) -> None:
        """Restore the record of a room that we created before its messages are answered."""
        if self._router.chats.rooms.find(room_ref(room)) is not None or room in self.rooms.foreign:
            return
        try:
            created = self.rooms.rooms.get(room) or await self.rooms.load(room)
        except MatrixRefused as error:
            _log.warning("a room could not be read", room=room, error=str(error))
            return
        if created is not None and not created.is_space and created.metadata.get("person"):
            await self.reconciler.reconcile_room(created, self.report)
            await self.reconciler.write_metadata()

    def _files_in(self, room: RoomRef) -> RoomFiles:
        binding = self._router.chats.rooms.find(room)
        return self._files(binding.character if binding is not None else "shared")

    async def _update_rooms(self) -> None:
        """Update all rooms, and then those whose chat changes."""
        async with self._store.bus.subscribe("event.>", limit=10_000, when_slow=WhenSlow.DROP_OLDEST) as messages:
            await self.reconciler.write_metadata()
            await self.write_records()
            for binding in self._router.chats.rooms.on_surface(SURFACE):
                await self.update_room(binding.room)
            async for message in messages:
                event: AnyEvent = message.body
                if isinstance(event.payload, IdentityLinked) and event.payload.surface == SURFACE:
                    await self._accept_earlier_invite(event.payload.account)
                if isinstance(event.payload, _ROOM_CHANGES) and event.payload.room.surface == SURFACE:
                    await self.update_room(event.payload.room)
                if isinstance(event.payload, RoomBound) or event.stream.partition(":")[0] in _RECORDED_STREAMS:
                    await self.write_records()

    async def write_records(self) -> None:
        """Keep characters, people and permissions on the homeserver, for a lost database."""
        try:
            await self.records.write()
        except CoterieError as error:
            _log.info("the records were not written", error=str(error))

    def _was_purged(self, stream: str) -> bool:
        purges = self._store.reader.read(kinds=[Purged.kind], limit=_MAX_PURGES, newest_first=True)
        return any(isinstance(event.payload, Purged) and event.payload.stream == stream for event in purges)

    async def _accept_earlier_invite(self, account: str) -> None:
        """Who invited us before they were approved gets their rooms now."""
        invite = self._router.inbound.inbox.last_invite(SURFACE, account)
        if invite is not None:
            await self._router.inbound.accept([invite.model_copy(update={"key": f"{invite.key} approved"})])

    async def update_room(self, room: RoomRef) -> None:
        """Write the room's metadata, and show the character's portrait as its avatar."""
        # One update of a room at a time, each with the state of then: an older one must not arrive last.
        async with self.rooms.updating(room.id):
            binding = self._router.chats.rooms.find(room)
            if binding is not None:
                try:
                    await self._show_portrait(room.id, binding.character)
                    binding = self._router.chats.rooms.get(room)
                    await self.rooms.update_metadata(room.id, **room_metadata(binding, self._router))
                except CoterieError as error:
                    _log.info("a room was not updated", room=room.id, error=str(error))

    async def _show_portrait(self, room: str, character: str) -> None:
        portrait = self._portrait(character)
        digest = hashlib.sha256(portrait.data).hexdigest()[:16] if portrait is not None else ""
        created = self.rooms.rooms.get(room)
        if portrait is None or portrait.is_drawing or created is None or created.metadata.get("portrait") == digest:
            return
        server, size = self.rooms.server, len(portrait.data)
        uri = await server.upload(_single_chunk(portrait.data), size, portrait.media_type, "")
        info = {"mimetype": portrait.media_type, "size": size}
        await server.put_state(room, "m.room.avatar", "", {"url": uri, "info": info})
        await self.rooms.update_metadata(room, portrait=digest)


async def _single_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data
