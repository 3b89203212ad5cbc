"""The Matrix adapter: sends and edits messages and files, with the delivery token as transaction id."""

from __future__ import annotations

from collections.abc import Callable

from coterie.messaging import (
    Account,
    Attachment,
    Capabilities,
    Deliverable,
    EditPace,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingReaction,
    PlatformRefused,
    RoomFiles,
    RoomRef,
)
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.crypto.primitives import EncryptedFile
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.rooms import MatrixRooms
from coterie.surfaces.matrix.schemas import COMMAND_PREFIX, SURFACE, room_ref, to_html

FilesOf = Callable[[RoomRef], RoomFiles]
"""The files of the character who answers in a room."""
_MAX_TEXT_BYTES = 8_000
"""An event may have 65,536 bytes, and an edit has the text four times: twice as plain text and twice as HTML."""
_MAX_HTML_BYTES = 14_000
"""Twice this and twice the text still fit when encrypted. Longer HTML is left out."""
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


class MatrixSurface:
    name = SURFACE
    capabilities = Capabilities(
        max_length=_MAX_TEXT_BYTES,
        length_unit="bytes",
        deduplicates=True,
        can_edit=True,
        reactions=True,
        can_create_rooms=True,
        command_prefix=COMMAND_PREFIX,
        # Homeservers allow a message every five seconds in the long run.
        pace=EditPace(min_interval_s=1.0, max_interval_s=3.0, idle_s=1.0, max_edits=30),
    )

    def __init__(self, server: Homeserver, crypto: OlmMachine, rooms: MatrixRooms, files: FilesOf) -> None:
        self._server = server
        self._crypto = crypto
        self._rooms = rooms
        self._files = files

    async def send(self, outgoing: Deliverable, token: str) -> str:
        room = outgoing.room.id
        if isinstance(outgoing, OutgoingReaction):
            relation = {"rel_type": "m.annotation", "event_id": outgoing.to, "key": outgoing.emoji}
            return await self._crypto.send(room, "m.reaction", {"m.relates_to": relation}, token)
        message = ""
        if _text(outgoing) or not _attachments(outgoing):
            message = await self._crypto.send(room, "m.room.message", _content(outgoing), token)
        for number, file in enumerate(_attachments(outgoing)):
            sent = await self._send_file(outgoing, file, f"{token}.f{number}")
            message = message or sent
        return message

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        new = _content(outgoing)
        relation = {"rel_type": "m.replace", "event_id": message}
        new.pop("m.relates_to", None)  # the replaced message is in its thread already
        content = {**new, "body": f"* {new['body']}", "m.new_content": new, "m.relates_to": relation}
        await self._crypto.send(outgoing.room.id, "m.room.message", content, token)
        for number, file in enumerate(_attachments(outgoing)):
            await self._send_file(outgoing, file, f"{token}.f{number}")

    async def typing(self, room: RoomRef, on: bool) -> None:
        await self._server.typing(room.id, self._rooms.user, on)

    async def preview(self, outgoing: OutgoingMessage, token: str) -> None:
        raise PlatformRefused("Matrix has no previews.", "Messages are edited instead.")

    async def create_room(self, person: Account, title: str, key: str, asked_in: RoomRef) -> RoomRef:
        return room_ref(await self._rooms.room_for(person.id, title, "A chat of its own.", {"key": key}))

    async def is_private(self, room: RoomRef, account: Account) -> bool:
        return set(await self._server.members(room.id)) <= {self._rooms.user, account.id}

    async def rename_room(self, room: RoomRef, title: str) -> None:
        if room.id in self._rooms.rooms:
            await self._server.put_state(room.id, "m.room.name", "", {"name": title})

    async def leave_room(self, room: RoomRef) -> None:
        await self._rooms.leave(room.id)

    async def direct_room(self, person: Account) -> RoomRef | None:
        return None  # people invite us; a room for every stranger in a group would be spam

    async def _send_file(self, outgoing: Deliverable, file: Attachment, token: str) -> str:
        chunks = self._files(outgoing.room).read(file, outgoing.room)
        content: Json = {
            "msgtype": _KINDS.get(file.media_type.partition("/")[0], "m.file"),
            "body": file.name,
            "filename": file.name,
            "info": {"mimetype": file.media_type, "size": file.size},
        }
        if await self._crypto.is_encrypted(outgoing.room.id):
            encrypted = EncryptedFile(chunks)
            uri = await self._server.upload(encrypted.chunks(), file.size, "application/octet-stream", "")
            content["file"] = encrypted.metadata(uri)
        else:
            content["url"] = await self._server.upload(chunks, file.size, file.media_type, file.name)
        if outgoing.thread is not None:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": outgoing.thread}
        return await self._crypto.send(outgoing.room.id, "m.room.message", content, token)


def _text(outgoing: Deliverable) -> str:
    return outgoing.emoji if isinstance(outgoing, OutgoingReaction) else outgoing.text


def _attachments(outgoing: Deliverable) -> tuple[Attachment, ...]:
    return outgoing.attachments if isinstance(outgoing, OutgoingMessage) else ()


def _content(outgoing: Deliverable) -> Json:
    text = _text(outgoing)
    content: Json = {"msgtype": "m.notice" if isinstance(outgoing, OutgoingNotification) else "m.text", "body": text}
    html = to_html(outgoing.markdown) if isinstance(outgoing, OutgoingMessage) else None
    if html is not None and len(html.encode()) <= _MAX_HTML_BYTES:
        content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    reply = outgoing.reply_to if isinstance(outgoing, OutgoingMessage) else None
    if outgoing.thread is not None:
        # Clients without threads show it as a reply to the thread's first message.
        in_reply = {"event_id": reply or outgoing.thread}
        relation = {"rel_type": "m.thread", "event_id": outgoing.thread, "m.in_reply_to": in_reply}
        content["m.relates_to"] = {**relation, "is_falling_back": reply is None}
    elif reply is not None:
        content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply}}
    return content
