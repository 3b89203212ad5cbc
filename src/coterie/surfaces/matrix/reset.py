"""`coterie matrix reset`: starting over on Matrix, locally or on the homeserver too. P11"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from coterie.eventstore import NewEvent, Store
from coterie.messaging.errors import SurfaceError
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.rooms import RoomForgotten, Rooms
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.messages import SURFACE

ResetMode = Literal["local-only", "server-leave-forget"]


async def reset(
    store: Store,
    server: Homeserver | None,
    login: Path,
    mode: ResetMode,
    *,
    dry_run: bool,
    report: Callable[[str], None],
) -> None:
    """Says what it does, or would do. Chats and memories stay: only the rooms' way to them is forgotten."""
    would = "would be " if dry_run else ""
    rooms = Rooms(store).on_surface(SURFACE)
    if mode == "server-leave-forget" and server is not None:
        for room in await server.joined_rooms():
            report(f"{room}: {would}left and forgotten on the homeserver")
            if not dry_run:
                await _leave(server, room, report)
    for bound in rooms:
        report(f"{bound.room.id} (“{bound.title}”): {would}forgotten here; its chat stays")
    if mode == "local-only":
        report(f"{login.name}, the login: {would}kept")
    else:
        report(f"{login.name}: {would}removed, and its device with its keys on the homeserver; the identity is kept")
    if not dry_run:
        drafts = [NewEvent(f"surface:{SURFACE}", RoomForgotten(room=bound.room)) for bound in rooms]
        await store.append([*drafts, NewEvent(f"surface:{SURFACE}", SurfaceSynced(surface=SURFACE, cursor=""))])
        if mode == "server-leave-forget" and server is not None:
            await _log_out(server, report)
            await asyncio.to_thread(login.unlink, missing_ok=True)
    report("Left to do by hand in your client: leave the rooms and the Space there, and invite the account anew.")


async def _leave(server: Homeserver, room: str, tell: Callable[[str], None]) -> None:
    try:
        await server.leave(room)
        await server.forget(room)
    except SurfaceError as error:
        tell(f"{room}: not done ({error.what})")


async def _log_out(server: Homeserver, tell: Callable[[str], None]) -> None:
    try:
        await server.logout()
    except SurfaceError as error:
        tell(f"the device: not removed ({error.what})")
