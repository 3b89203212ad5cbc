"""Files over the webhook: sent ahead of the message that names them, fetched by the message that was answered with
them. P6, D13

A file is the body of its request and is never whole in memory. Callers see names and numbers; where things are kept is
not theirs to choose, and what was sent to another room cannot be fetched.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Sequence

from fastapi import HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from coterie.engine.files import FILES_FOLDER, RoomFiles, room_folder_name
from coterie.engine.outbox import QueuedMessage
from coterie.engine.protocol import Account, Attachment, OutgoingMessage, RoomRef
from coterie.engine.surface_errors import BadFile
from coterie.engine.switchboard import MessageRouter

FilesOf = Callable[[str], RoomFiles]


class UploadedFile(BaseModel):
    file: str
    """Name it in `files` of the message that it belongs to."""
    name: str
    size: int


class ReplyFile(BaseModel):
    name: str
    media_type: str
    size: int
    number: int
    """To be had at `/webhook/{message}/files/{number}`."""


class WebhookFiles:
    def __init__(self, board: MessageRouter, files_of: FilesOf) -> None:
        self._board = board
        self._files_of = files_of

    async def save(self, request: Request, sender: Account, room: RoomRef, name: str) -> UploadedFile:
        media_type = request.headers.get("content-type", "application/octet-stream")
        kept = await self._files(sender, room).save(room, name, request.stream(), media_type)
        return UploadedFile(file=kept.path.rpartition("/")[2], name=kept.name, size=kept.size)

    def attachments(self, sender: Account, room: RoomRef, names: Sequence[str]) -> tuple[Attachment, ...]:
        """The files that were sent to this room under these names."""
        return tuple(self._named(sender, room, name) for name in names)

    def stream(self, room: RoomRef, file: Attachment) -> StreamingResponse:
        bound = self._board.chats.rooms.get(room)
        # Compressing it would only take time: what is large is compressed already.
        headers = {"Content-Length": str(file.size), "Content-Encoding": "identity"}
        headers["Content-Disposition"] = "attachment"
        files = self._files_of(bound.character)
        files.open(file.path).close()  # what is gone is an error now, not halfway
        return StreamingResponse(files.read(file), media_type="application/octet-stream", headers=headers)

    def _named(self, sender: Account, room: RoomRef, name: str) -> Attachment:
        if "/" in name:
            raise BadFile("This is not the name of a file that was sent.", "Use what the upload answered with.")
        path = f"{FILES_FOLDER}/{room_folder_name(room)}/{name}"
        with self._files(sender, room).open(path) as file:
            size = file.seek(0, 2)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Attachment(name=name, path=path, media_type=media_type, size=size)

    def _files(self, sender: Account, room: RoomRef) -> RoomFiles:
        """Those of whoever answers in the room. A stranger has nobody to send anything to."""
        talk = self._board.chats
        person, bound = self._board.people.by_account(sender.surface, sender.id), talk.rooms.find(room)
        if person is None:
            raise HTTPException(403, "I am sorry, I only take files from people I know.")
        if bound is not None:
            talk.check_room(person, bound)
            return self._files_of(bound.character)
        return self._files_of(talk.characters.find(talk.default_character(room, person)).id)


def reply_files(replies: Sequence[QueuedMessage]) -> list[tuple[ReplyFile, Attachment]]:
    """Every file of an answer, numbered."""
    found = [file for one in replies if isinstance(one.outgoing, OutgoingMessage) for file in one.outgoing.attachments]
    return [
        (ReplyFile(name=file.name, media_type=file.media_type, size=file.size, number=number), file)
        for number, file in enumerate(found)
    ]
