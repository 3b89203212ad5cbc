"""P6, D17: a process swaps the folder of a room with a link while files are stored there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from coterie.base.errors import CoterieError
from coterie.messaging.files import FILES_FOLDER, RoomFiles, room_folder_name
from coterie.messaging.protocol import RoomRef
from tests.swapping import swapping

ROOM = RoomRef(surface="matrix", id="!kitchen:here")
ATTEMPTS = 2_000


async def chunks() -> AsyncIterator[bytes]:
    yield b"x"


async def test_p6_no_upload_lands_outside_while_its_folder_is_swapped(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "mara", tmp_path / "outside"
    outside.mkdir()
    files, stored = RoomFiles(workspace), 0
    with swapping(workspace / FILES_FOLDER / room_folder_name(ROOM), outside):
        for number in range(50 * ATTEMPTS):
            if number > ATTEMPTS and 0 < stored < number:
                break
            with suppress(CoterieError):
                await files.save(ROOM, f"{number}.txt", chunks())
                stored += 1
    assert list(outside.iterdir()) == []
    assert 0 < stored < number, "both states must have been met"
