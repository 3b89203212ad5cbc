"""A file that an agent sends, piece by piece: on the disk until it is whole, then in the character's workspace. P6"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator

from coterie.engine.files import RoomFiles
from coterie.engine.protocol import Attachment, RoomRef
from coterie.engine.surface_errors import BadFile
from coterie.modes.remote.wire import FileStep, decode_data

_READ_SIZE = 256 * 1024


class IncomingFile:
    def __init__(self, first: FileStep, largest: int) -> None:
        self._name = first.name
        self._media_type = first.media_type
        self._largest = largest
        self._size = 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the parcel

    def add(self, piece: FileStep) -> None:
        data = decode_data(piece.data)
        self._size += len(data)
        if self._size > self._largest:
            raise BadFile(f"The file is larger than {self._largest / 1e6:.0f} MB.", "Send a smaller one.")
        self._file.write(data)

    async def save(self, files: RoomFiles, room: RoomRef) -> Attachment:
        self._file.seek(0)
        try:
            return await files.save(room, self._name, self._chunks(), self._media_type)
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := self._file.read(_READ_SIZE):
            yield chunk
            await asyncio.sleep(0)
