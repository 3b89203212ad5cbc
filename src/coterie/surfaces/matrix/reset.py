"""`coterie matrix reset`: starting over on Matrix, locally or on the homeserver too. P11"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from coterie.engine.inbox import SurfaceSynced
from coterie.engine.rooms import RoomBook, RoomForgotten
from coterie.engine.surface_errors import SurfaceError
from coterie.kernel import Draft, Store
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.inbound import NAME

Mode = Literal["local-only", "server-leave-forget"]


async def reset(
    store: Store, server: Homeserver | None, login: Path, mode: Mode, *, dry_run: bool, tell: Callable[[str], None]
) -> None:
    """Says what it does, or would do. Chats and memories stay: only the rooms' way to them is forgotten."""
    would = "would be " if dry_run else ""
    rooms = RoomBook(store).all_on(NAME)
    if mode == "server-leave-forget" and server is not None:
        for room in await server.joined_rooms():
            tell(f"{room}: {would}left and forgotten on the homeserver")
            if not dry_run:
                await _leave(server, room, tell)
    for bound in rooms:
        tell(f"{bound.room.id} (“{bound.title}”): {would}forgotten here; its chat stays")
    if mode == "local-only":
        tell(f"{login.name}, the login: {would}kept")
    else:
        tell(f"{login.name}: {would}removed, and its device with its keys on the homeserver; the identity is kept")
    if not dry_run:
        drafts = [Draft(f"surface:{NAME}", RoomForgotten(room=bound.room)) for bound in rooms]
        await store.append([*drafts, Draft(f"surface:{NAME}", SurfaceSynced(surface=NAME, cursor=""))])
        if mode == "server-leave-forget" and server is not None:
            await _log_out(server, tell)
            await asyncio.to_thread(login.unlink, missing_ok=True)
    tell("Left to do by hand in your client: leave the rooms and the Space there, and invite the account anew.")


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
