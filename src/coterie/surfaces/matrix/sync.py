"""Read the homeserver: each sync's events go to the inbox in one transaction with the new sync position.

An event that cannot be read is recorded with them and skipped. After a pause, the messages missed meanwhile are read
back to the last position, so that each is handled once, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coterie.base.logging import get_logger
from coterie.base.supervisor import pause, report_problem, report_recovery
from coterie.conversation import RoomError
from coterie.eventstore import backoff_s
from coterie.messaging import (
    BadFile,
    InboundProcessor,
    Incoming,
    IncomingMessage,
    MemberChange,
    PlatformRateLimited,
    PlatformUnreachable,
    Quarantine,
    RoomFiles,
    RoomRef,
    SurfaceError,
    SurfaceSynced,
)
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.crypto.primitives import decrypt_file
from coterie.surfaces.matrix.crypto.verification import is_verification
from coterie.surfaces.matrix.homeserver import Homeserver, KeysRefused, LoggedOut, MatrixRefused
from coterie.surfaces.matrix.schemas import (
    MEDIA_TYPES,
    SURFACE,
    JoinedRoom,
    Json,
    MessageContent,
    ResponseReader,
    read_event,
    read_invite,
    with_file,
)

_MAX_PAGES = 100
_PENDING_WAIT_S = 2.0
"""The sync timeout while events wait for their keys, which may have to be requested."""
_RETRIED = (PlatformUnreachable, PlatformRateLimited, LoggedOut, KeysRefused)
"""Errors of the connection: the whole sync is tried again."""
_log = get_logger(__name__)


class SyncLoop:
    def __init__(
        self,
        server: Homeserver,
        own: str,
        inbound: InboundProcessor,
        files: Callable[[RoomRef], RoomFiles],
        on_unknown_room: Callable[[str], Awaitable[None]],
        wait_s: float,
        crypto: OlmMachine,
        on_undecryptable: Callable[[str, str, str], Awaitable[None]],
    ) -> None:
        """`on_unknown_room` is called for each room before its messages are handed over; `on_undecryptable` with the
        room, sender and session of events whose key did not arrive."""
        self._server = server
        self._own = own
        self._inbound = inbound
        self._files = files
        self._on_unknown_room = on_unknown_room
        self._wait_s = wait_s
        self._crypto = crypto
        self._on_undecryptable = on_undecryptable

    async def run(self, stop: asyncio.Event) -> None:
        """Sync until stopped. An unreachable homeserver is retried with growing pauses."""
        tries = 0
        while not stop.is_set():
            try:
                await self.sync_once()
                tries = 0
                report_recovery()
            except PlatformRateLimited as error:
                await pause(stop, error.retry_after_s)
            except PlatformUnreachable as error:
                tries += 1
                report_problem(error.what, error.fix)
                _log.warning("the homeserver cannot be reached", tries=tries, error=str(error))
                await pause(stop, backoff_s(tries, maximum=60.0))

    async def sync_once(self, wait_s: float | None = None) -> None:
        since = self._inbound.inbox.cursor(SURFACE)
        wait_s = self._wait_s if wait_s is None else wait_s
        raw = await self._server.sync(since, min(wait_s, _PENDING_WAIT_S) if self._crypto.has_pending else wait_s)
        quarantine = Quarantine(SURFACE, _RETRIED)
        reader = ResponseReader(quarantine)
        sync = reader.sync(raw)
        for room, info in sync.joined.items():
            self._crypto.observe_state(room, [*info.state, *info.timeline])
            if info.limited:
                self._crypto.forget_members(room)

        incoming: list[Incoming] = []
        decrypted = await self._crypto.receive_sync(sync, quarantine, first=since is None)
        for room, event in decrypted:
            incoming += await self._read(room, [event], quarantine)
        pending_invites = (read_invite(room, state, self._own) for room, state in sync.invites.items())
        incoming += [invite for invite in pending_invites if invite is not None]
        # On the first sync it is unknown which messages were answered: only later ones are read.
        for room, info in sync.joined.items() if since is not None else ():
            try:
                incoming += await self._read_timeline(room, info, since, reader, quarantine)
            except MatrixRefused as error:  # we may have been removed from this room; the others go on
                _log.warning("a room could not be read", room=room, error=str(error))

        self._crypto.save_progress()
        cursor = SurfaceSynced(surface=SURFACE, cursor=sync.next_batch)
        await self._inbound.accept(incoming, cursor, quarantine.skipped)
        self._crypto.release(decrypted)
        for room in sync.invites:
            await self._join(room)
        await self._send_receipts(incoming)
        for lost in await self._crypto.request_missing_keys():
            await self._on_undecryptable(lost.room, lost.sender, lost.session)
            self._crypto.mark_notified(lost)

    async def _read_timeline(
        self, room: str, info: JoinedRoom, since: str | None, reader: ResponseReader, quarantine: Quarantine
    ) -> list[Incoming]:
        events = info.timeline
        if info.limited and info.prev_batch:
            events = [*await self._read_gap(room, info.prev_batch, since, reader), *events]
        return await self._read(room, self._after_invite(events), quarantine)

    def _after_invite(self, events: list[Json]) -> list[Json]:
        """Without messages from before our invitation: they are not for us, and in encrypted rooms we have no key."""
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            is_own_membership = (event["type"], event.get("state_key")) == ("m.room.member", self._own)
            if is_own_membership and event["content"].get("membership") == "invite":
                return events[index:]
        return events

    async def _read(self, room: str, events: list[Json], quarantine: Quarantine) -> list[Incoming]:
        """The new messages and commands among these events, with their files."""
        new: list[Incoming] = []
        for raw in events:
            with quarantine.reading(raw, room=room, event_id=raw["event_id"]):
                incoming = await self._read_one(room, raw, is_first=not new)
                if incoming is not None:
                    new.append(incoming)
        return new

    async def _read_one(self, room: str, raw: Json, *, is_first: bool) -> Incoming | None:
        event = self._crypto.decrypt(room, raw)
        if event is not None and is_verification(event):
            await self._crypto.verifications.receive_in_room(room, event)
            return None
        incoming = read_event(room, event, self._own) if event is not None else None
        if event is None or incoming is None or self._inbound.inbox.find(incoming) is not None:
            return None
        if is_first:
            await self._on_unknown_room(room)
        incoming = incoming.model_copy(update={"group": await self._is_group(room)})
        if isinstance(incoming, IncomingMessage) and event["content"].get("msgtype") in MEDIA_TYPES:
            return await self._with_file(incoming, MessageContent.model_validate(event["content"]))
        return incoming

    async def _is_group(self, room: str) -> bool:
        try:
            return await self._crypto.has_several_people(room)
        except MatrixRefused:  # we are no longer in the room
            return False

    async def _read_gap(self, room: str, start: str, since: str | None, reader: ResponseReader) -> list[Json]:
        """The events between the last position and the beginning of this sync's timeline, oldest first."""
        events: list[Json] = []
        position: str | None = start
        for _ in range(_MAX_PAGES):
            page, position = reader.event_page(await self._server.messages_before(room, position or start, since), room)
            events += page
            if position is None or not page or position == since:
                break
        return list(reversed(events))

    async def _with_file(self, incoming: IncomingMessage, content: MessageContent) -> IncomingMessage:
        """The message with its file, which is saved first; if that fails, the text says so."""
        if not self._inbound.is_known(incoming.account):
            return incoming
        name = content.filename or content.body or "file"
        media_type = (content.info.mimetype if content.info is not None else None) or "application/octet-stream"
        uri = content.file.get("url") if content.file is not None else content.url
        try:
            if not isinstance(uri, str):
                raise BadFile("The message has no address of its file.", "Send it again.")
            async with self._server.download(uri) as chunks:
                decrypted = decrypt_file(chunks, content.file) if content.file is not None else chunks
                saved = await self._files(incoming.room).save(incoming.room, name, decrypted, media_type)
            return with_file(incoming, saved)
        except (RoomError, SurfaceError) as error:
            _log.warning("a file was not saved", room=incoming.room.id, error=str(error))
            text = f"{incoming.text}\n(a file came with this and could not be saved)".strip()
            return incoming.model_copy(update={"text": text})

    async def _send_receipts(self, incoming: list[Incoming]) -> None:
        """Read receipts; errors do not matter."""
        last = {event.room.id: event.key for event in incoming if not isinstance(event, MemberChange)}
        receipts = (self._server.receipt(room, event) for room, event in last.items())
        for result in await asyncio.gather(*receipts, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, SurfaceError):
                raise result

    async def _join(self, room: str) -> None:
        try:
            await self._server.join(room)
        except SurfaceError as error:  # the invitation may have been withdrawn
            _log.info("an invitation could not be accepted", room=room, error=str(error))
