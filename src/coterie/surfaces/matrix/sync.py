"""Following the homeserver: what is new goes to the reception, in one transaction with how far we have read. Traps 1, 2

Whatever was missed while we were away is read back to where we left, so that every message is heard once, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coterie.base.logging import get_logger
from coterie.conversation.errors import RoomError
from coterie.eventstore.jobs import backoff_s
from coterie.messaging.errors import PlatformRateLimited, PlatformUnreachable, SurfaceError
from coterie.messaging.files import RoomFiles
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.message_router import InboundProcessor
from coterie.messaging.protocol import Incoming, IncomingMessage, MemberChange, RoomRef
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.crypto.primitives import decrypt_file
from coterie.surfaces.matrix.homeserver import Homeserver, Json, MatrixRefused
from coterie.surfaces.matrix.messages import MEDIA_TYPES, SURFACE, read_event, read_invite, with_file

_MOST_PAGES = 100
_SOON_S = 2.0
"""How long to wait for news while something cannot be opened: there may be more to do about it."""
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
        """`unknown` is asked about each room that something is said in, before it is handed over; `unread` is told
        the room, the person and the key of what will not be opened any more."""
        self._server = server
        self._own = own
        self._reception = inbound
        self._files = files
        self._unknown = on_unknown_room
        self._wait_s = wait_s
        self._crypto = crypto
        self._unread = on_undecryptable

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop. A homeserver that is away is waited for, ever more patiently."""
        tries = 0
        while not stop.is_set():
            try:
                await self.sync_once()
                tries = 0
            except PlatformRateLimited as error:
                await _pause(stop, error.retry_after_s)
            except PlatformUnreachable as error:
                tries += 1
                _log.warning("the homeserver is away", tries=tries, error=str(error))
                await _pause(stop, backoff_s(tries, maximum=60.0))

    async def sync_once(self, wait_s: float | None = None) -> None:
        since = self._reception.inbox.cursor(SURFACE)
        wait_s = self._wait_s if wait_s is None else wait_s
        told = await self._server.sync(since, min(wait_s, _SOON_S) if self._crypto.has_pending else wait_s)
        rooms = told.get("rooms", {})
        for room, info in rooms.get("join", {}).items():
            self._crypto.observe_state(
                room, [*info.get("state", {}).get("events", []), *info["timeline"].get("events", [])]
            )
            if info["timeline"].get("limited"):
                self._crypto.forget_members(room)
        waited = await self._crypto.receive_sync(told, first=since is None)
        incoming: list[Incoming] = []
        for room, event in waited:
            incoming += await self._read(room, [event])
        invites = rooms.get("invite", {})
        found = (read_invite(room, info, self._own) for room, info in invites.items())
        incoming += [invite for invite in found if invite is not None]
        # Without a place to go on from there is no telling what was answered: only what comes now is.
        for room, info in rooms.get("join", {}).items() if since is not None else ():
            try:
                incoming += await self._heard(room, info["timeline"], since)
            except MatrixRefused as error:  # we may have been sent away: one room's trouble is no other's
                _log.warning("a room could not be read", room=room, error=str(error))
        self._crypto.save_progress()
        await self._reception.accept(incoming, SurfaceSynced(surface=SURFACE, cursor=told["next_batch"]))
        self._crypto.release(waited)
        for room in invites:
            await self._join(room)
        await self._acknowledge(incoming)
        for lost in await self._crypto.request_missing_keys():
            await self._unread(lost.room, lost.sender, lost.session)
            self._crypto.mark_notified(lost)

    async def _heard(self, room: str, timeline: Json, since: str | None) -> list[Incoming]:
        events = list(timeline.get("events", []))
        if timeline.get("limited") and timeline.get("prev_batch"):
            events = [*await self._missed(room, timeline["prev_batch"], since), *events]
        return await self._read(room, self._meant_for_us(events))

    def _meant_for_us(self, events: list[Json]) -> list[Json]:
        """Without what was said before we were invited: it was not said to us, and sealed rooms give no key to it."""
        for at in range(len(events) - 1, -1, -1):
            about = (events[at].get("type"), events[at].get("state_key"))
            if about == ("m.room.member", self._own) and events[at]["content"].get("membership") == "invite":
                return events[at:]
        return events

    async def _read(self, room: str, events: list[Json]) -> list[Incoming]:
        found: list[Incoming] = []
        for sealed in events:
            event = self._crypto.decrypt(room, sealed)
            incoming = read_event(room, event, self._own) if event is not None else None
            if incoming is None or self._reception.inbox.find(incoming) is not None:
                continue
            if not found:
                await self._unknown(room)
            if isinstance(incoming, IncomingMessage) and event and event["content"].get("msgtype") in MEDIA_TYPES:
                incoming = await self._with_file(incoming, event["content"])
            found.append(incoming)
        return found

    async def _missed(self, room: str, start: str, since: str | None) -> list[Json]:
        """What lies between where we left and where the homeserver began to tell, oldest first."""
        pages: list[Json] = []
        position: str | None = start
        for _ in range(_MOST_PAGES):
            told = await self._server.messages_before(room, position or start, since)
            pages += told.get("chunk", [])
            position = told.get("end")
            if position is None or not told.get("chunk") or position == since:
                break
        return list(reversed(pages))

    async def _with_file(self, incoming: IncomingMessage, content: Json) -> IncomingMessage:
        """The file is saved before the message counts as heard; one that cannot be had is said to be missing."""
        if not self._reception.is_known(incoming.account):
            return incoming
        name = str(content.get("filename") or content.get("body") or "file")
        media_type = str(content.get("info", {}).get("mimetype", "application/octet-stream"))
        try:
            sealed = content.get("file")
            uri = sealed["url"] if isinstance(sealed, dict) else content["url"]
            async with self._server.download(str(uri)) as chunks:
                plain = decrypt_file(chunks, sealed) if isinstance(sealed, dict) else chunks
                kept = await self._files(incoming.room).save(incoming.room, name, plain, media_type)
            return with_file(incoming, kept)
        except (RoomError, SurfaceError, KeyError) as error:
            _log.warning("a file was not kept", room=incoming.room.id, error=str(error))
            missing = f"{incoming.text}\n(a file came with this and could not be kept)".strip()
            return incoming.model_copy(update={"text": missing})

    async def _acknowledge(self, incoming: list[Incoming]) -> None:
        """Let people see that it was read. Nothing depends on it."""
        last = {one.room.id: one.key for one in incoming if not isinstance(one, MemberChange)}
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
