"""Following the homeserver: what is new goes to the reception, in one transaction with how far we have read. Traps 1, 2

Whatever was missed while we were away is read back to where we left, so that every message is heard once, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coterie.base.logging import get_logger
from coterie.engine.errors import RateLimited, RoomError, SurfaceError, Unreachable
from coterie.engine.files import RoomFiles
from coterie.engine.inbox import SurfaceSynced
from coterie.engine.protocol import Incoming, IncomingMessage, RoomRef
from coterie.engine.reception import Reception
from coterie.kernel.jobs import backoff_s
from coterie.surfaces.matrix.errors import MatrixRefused
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.inbound import MEDIA, NAME, read_event, read_invite, with_file

_MOST_PAGES = 100
_log = get_logger(__name__)


class Following:
    def __init__(
        self,
        server: Homeserver,
        own: str,
        reception: Reception,
        files: Callable[[RoomRef], RoomFiles],
        unknown: Callable[[str], Awaitable[None]],
        wait_s: float,
    ) -> None:
        """`unknown` is asked about each room that something is said in, before it is handed over."""
        self._server = server
        self._own = own
        self._reception = reception
        self._files = files
        self._unknown = unknown
        self._wait_s = wait_s

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop. A homeserver that is away is waited for, ever more patiently."""
        tries = 0
        while not stop.is_set():
            try:
                await self.once()
                tries = 0
            except RateLimited as error:
                await _pause(stop, error.retry_after_s)
            except Unreachable as error:
                tries += 1
                _log.warning("the homeserver is away", tries=tries, error=str(error))
                await _pause(stop, backoff_s(tries, longest=60.0))

    async def once(self, wait_s: float | None = None) -> None:
        since = self._reception.inbox.cursor(NAME)
        told = await self._server.sync(since, self._wait_s if wait_s is None else wait_s)
        incoming: list[Incoming] = []
        invited: list[str] = []
        rooms = told.get("rooms", {})
        for room, info in rooms.get("invite", {}).items():
            invited.append(room)
            if (invite := read_invite(room, info, self._own)) is not None:
                incoming.append(invite)
        # Without a place to go on from there is no telling what was answered: only what comes now is.
        for room, info in rooms.get("join", {}).items() if since is not None else ():
            try:
                incoming += await self._heard(room, info["timeline"], since)
            except MatrixRefused as error:  # we may have been sent away: one room's trouble is no other's
                _log.warning("a room could not be read", room=room, error=str(error))
        await self._reception.accept(incoming, SurfaceSynced(surface=NAME, cursor=told["next_batch"]))
        for room in invited:
            await self._join(room)

    async def _heard(self, room: str, timeline: Json, since: str | None) -> list[Incoming]:
        events = list(timeline.get("events", []))
        if timeline.get("limited") and timeline.get("prev_batch"):
            events = [*await self._missed(room, timeline["prev_batch"], since), *events]
        found: list[Incoming] = []
        for event in events:
            incoming = read_event(room, event, self._own)
            if incoming is None or self._reception.inbox.find(incoming) is not None:
                continue
            if not found:
                await self._unknown(room)
            if isinstance(incoming, IncomingMessage) and event["content"].get("msgtype") in MEDIA:
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
        if not self._reception.admits(incoming.account):
            return incoming
        name = str(content.get("filename") or content.get("body") or "file")
        media_type = str(content.get("info", {}).get("mimetype", "application/octet-stream"))
        try:
            async with self._server.download(str(content["url"])) as chunks:
                kept = await self._files(incoming.room).keep(incoming.room, name, chunks, media_type)
            return with_file(incoming, kept)
        except (RoomError, SurfaceError, KeyError) as error:
            _log.warning("a file was not kept", room=incoming.room.id, error=str(error))
            missing = f"{incoming.text}\n(a file came with this and could not be kept)".strip()
            return incoming.model_copy(update={"text": missing})

    async def _join(self, room: str) -> None:
        try:
            await self._server.join(room)
        except SurfaceError as error:  # the invitation may have been withdrawn
            _log.info("an invitation could not be accepted", room=room, error=str(error))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting], timeout=seconds)
    waiting.cancel()
