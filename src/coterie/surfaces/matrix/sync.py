"""Read the homeserver: each sync's events go to the inbox in one transaction with the new sync position.

After a pause, the messages missed meanwhile are read back to the last position, so that each is handled once, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coterie.base.logging import get_logger
from coterie.conversation import RoomError
from coterie.eventstore import backoff_s
from coterie.messaging import (
    InboundProcessor,
    Incoming,
    IncomingMessage,
    MemberChange,
    PlatformRateLimited,
    PlatformUnreachable,
    RoomFiles,
    RoomRef,
    SurfaceError,
    SurfaceSynced,
)
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.crypto.primitives import decrypt_file
from coterie.surfaces.matrix.homeserver import Homeserver, Json, MatrixRefused
from coterie.surfaces.matrix.messages import MEDIA_TYPES, SURFACE, read_event, read_invite, with_file

_MAX_PAGES = 100
_PENDING_WAIT_S = 2.0
"""The sync timeout while events wait for their keys, which may have to be requested."""
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
            except PlatformRateLimited as error:
                await _pause(stop, error.retry_after_s)
            except PlatformUnreachable as error:
                tries += 1
                _log.warning("the homeserver cannot be reached", tries=tries, error=str(error))
                await _pause(stop, backoff_s(tries, maximum=60.0))

    async def sync_once(self, wait_s: float | None = None) -> None:
        since = self._inbound.inbox.cursor(SURFACE)
        wait_s = self._wait_s if wait_s is None else wait_s
        sync = await self._server.sync(since, min(wait_s, _PENDING_WAIT_S) if self._crypto.has_pending else wait_s)
        rooms = sync.get("rooms", {})
        joined, invites = rooms.get("join", {}), rooms.get("invite", {})
        for room, info in joined.items():
            state, timeline = info.get("state", {}).get("events", []), info["timeline"]
            self._crypto.observe_state(room, [*state, *timeline.get("events", [])])
            if timeline.get("limited"):
                self._crypto.forget_members(room)

        incoming: list[Incoming] = []
        decrypted = await self._crypto.receive_sync(sync, first=since is None)
        for room, event in decrypted:
            incoming += await self._read(room, [event])
        pending_invites = (read_invite(room, info, self._own) for room, info in invites.items())
        incoming += [invite for invite in pending_invites if invite is not None]
        # On the first sync it is unknown which messages were answered: only later ones are read.
        for room, info in joined.items() if since is not None else ():
            try:
                incoming += await self._read_timeline(room, info["timeline"], since)
            except MatrixRefused as error:  # we may have been removed from this room; the others go on
                _log.warning("a room could not be read", room=room, error=str(error))

        self._crypto.save_progress()
        await self._inbound.accept(incoming, SurfaceSynced(surface=SURFACE, cursor=sync["next_batch"]))
        self._crypto.release(decrypted)
        for room in invites:
            await self._join(room)
        await self._send_receipts(incoming)
        for lost in await self._crypto.request_missing_keys():
            await self._on_undecryptable(lost.room, lost.sender, lost.session)
            self._crypto.mark_notified(lost)

    async def _read_timeline(self, room: str, timeline: Json, since: str | None) -> list[Incoming]:
        events = list(timeline.get("events", []))
        if timeline.get("limited") and timeline.get("prev_batch"):
            events = [*await self._read_gap(room, timeline["prev_batch"], since), *events]
        return await self._read(room, self._after_invite(events))

    def _after_invite(self, events: list[Json]) -> list[Json]:
        """Without messages from before our invitation: they are not for us, and in encrypted rooms we have no key."""
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            is_own_membership = (event.get("type"), event.get("state_key")) == ("m.room.member", self._own)
            if is_own_membership and event["content"].get("membership") == "invite":
                return events[index:]
        return events

    async def _read(self, room: str, events: list[Json]) -> list[Incoming]:
        """The new messages and commands among these events, with their files."""
        new: list[Incoming] = []
        for raw in events:
            event = self._crypto.decrypt(room, raw)
            incoming = read_event(room, event, self._own) if event is not None else None
            if incoming is None or self._inbound.inbox.find(incoming) is not None:
                continue
            if not new:
                await self._on_unknown_room(room)
            if isinstance(incoming, IncomingMessage) and event and event["content"].get("msgtype") in MEDIA_TYPES:
                incoming = await self._with_file(incoming, event["content"])
            new.append(incoming)
        return new

    async def _read_gap(self, room: str, start: str, since: str | None) -> list[Json]:
        """The events between the last position and the beginning of this sync's timeline, oldest first."""
        events: list[Json] = []
        position: str | None = start
        for _ in range(_MAX_PAGES):
            page = await self._server.messages_before(room, position or start, since)
            events += page.get("chunk", [])
            position = page.get("end")
            if position is None or not page.get("chunk") or position == since:
                break
        return list(reversed(events))

    async def _with_file(self, incoming: IncomingMessage, content: Json) -> IncomingMessage:
        """The message with its file, which is saved first; if that fails, the text says so."""
        if not self._inbound.is_known(incoming.account):
            return incoming
        name = str(content.get("filename") or content.get("body") or "file")
        media_type = str(content.get("info", {}).get("mimetype", "application/octet-stream"))
        try:
            encrypted = content.get("file")
            uri = encrypted["url"] if isinstance(encrypted, dict) else content["url"]
            async with self._server.download(str(uri)) as chunks:
                decrypted = decrypt_file(chunks, encrypted) if isinstance(encrypted, dict) else chunks
                saved = await self._files(incoming.room).save(incoming.room, name, decrypted, media_type)
            return with_file(incoming, saved)
        except (RoomError, SurfaceError, KeyError) as error:
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


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting], timeout=seconds)
    waiting.cancel()
