"""`POST /webhook`: a message from a program, durable before it is accepted, answered once however often it is sent.

Files are uploaded before the message that names them, and downloaded by the id of the message they answer. Callers see
names and numbers, never paths, and only files of their own room.
"""

from __future__ import annotations

import asyncio
import hmac
import mimetypes
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.base.values import Count, FilePath
from coterie.messaging import (
    Account,
    Attachment,
    BadFile,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    MessageRouter,
    OutgoingMessage,
    QueuedMessage,
    RoomFiles,
    RoomRef,
)
from coterie.surfaces.webhook.surface import CALLER, NAME, WebhookSettings, is_allowed_callback, text_of

FilesOf = Callable[[str], RoomFiles]


class UploadedFile(BaseModel):
    file: str
    """The name to list in `files` of the message it belongs to."""
    name: str
    size: int


class ReplyFile(BaseModel):
    name: str
    media_type: str
    size: int
    number: int
    """Its number for `/webhook/{message}/files/{number}`."""


class WebhookFiles:
    def __init__(self, messages: MessageRouter, files_of: FilesOf) -> None:
        self._messages = messages
        self._files_of = files_of

    async def save(self, request: Request, sender: Account, room: RoomRef, name: str) -> UploadedFile:
        media_type = request.headers.get("content-type", "application/octet-stream")
        files, person = self._files(sender, room)
        saved = await files.save(room, name, request.stream(), media_type, sender=person)
        return UploadedFile(file=saved.path.rpartition("/")[2], name=saved.name, size=saved.size)

    def attachments(self, sender: Account, room: RoomRef, names: Sequence[str]) -> tuple[Attachment, ...]:
        """The files that were uploaded to this room under these names."""
        return tuple(self._attachment(sender, room, name) for name in names)

    def stream(self, room: RoomRef, file: Attachment) -> StreamingResponse:
        binding = self._messages.chats.rooms.get(room)
        # Not compressed: large files usually are already.
        headers = {"Content-Length": str(file.size), "Content-Encoding": "identity"}
        headers["Content-Disposition"] = "attachment"
        files = self._files_of(binding.character)
        files.open(file.path, room).close()  # a missing file is an error before the response starts
        return StreamingResponse(files.read(file, room), media_type="application/octet-stream", headers=headers)

    def _attachment(self, sender: Account, room: RoomRef, name: str) -> Attachment:
        if "/" in name:
            raise BadFile("This is not the name of an uploaded file.", "Use the name that the upload returned.")
        files, person = self._files(sender, room)
        path = f"{files.folder_path(room, person)}/{name}"
        with files.open(path, room) as file:
            size = file.seek(0, 2)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Attachment(name=name, path=path, media_type=media_type, size=size)

    def _files(self, sender: Account, room: RoomRef) -> tuple[RoomFiles, str]:
        """The files of the character who answers in the room, and the person who sends; 403 for strangers."""
        chats = self._messages.chats
        person, binding = self._messages.people.by_account(sender.surface, sender.id), chats.rooms.find(room)
        if person is None:
            raise HTTPException(403, "I am sorry, I only take files from people I know.")
        if binding is not None:
            chats.check_room(person, binding)
            return self._files_of(binding.character), person.id
        return self._files_of(chats.characters.find(chats.default_character(room, person)).id), person.id


def reply_files(replies: Sequence[QueuedMessage]) -> list[tuple[ReplyFile, Attachment]]:
    """The files of an answer, numbered."""
    messages = (reply.outgoing for reply in replies)
    attachments = [file for message in messages if isinstance(message, OutgoingMessage) for file in message.attachments]
    return [
        (ReplyFile(name=file.name, media_type=file.media_type, size=file.size, number=number), file)
        for number, file in enumerate(attachments)
    ]


_NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"
_Room = Annotated[str, Query(max_length=200, pattern=_NAME_PATTERN)]
_Message = Annotated[str, Path(max_length=200, pattern=_NAME_PATTERN)]
_HEADER = "X-Webhook-Secret"


class WebhookRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, use_attribute_docstrings=True)

    text: str = Field(min_length=1, max_length=100_000)
    room: str = Field(default="main", max_length=200, pattern=_NAME_PATTERN)
    """Any name; each room has a chat of its own."""
    id: str | None = Field(default=None, max_length=200, pattern=_NAME_PATTERN)
    """Your id of the message: a repeated call with it is the same message. One is generated if you give none."""
    sender: str = Field(default=CALLER, alias="from", max_length=200, pattern=_NAME_PATTERN)
    """The sender, if you send messages of several people."""
    wait: bool = False
    """Wait for the reply before responding."""
    mode: str = Field(default="", max_length=40)
    """The mode of the chat, if this is the first message in the room (`story`, `desk`, …); default if empty."""
    files: list[FilePath] = Field(default_factory=list, max_length=20)
    """The names that `POST /webhook/files` returned."""
    callback: str | None = Field(default=None, max_length=2_000)
    """The address to post the reply to; it must be allowed in `webhook.callbacks`."""


class WebhookReply(BaseModel):
    type: str
    """`message` is from a character, `notification` from the server, `ui` is a question."""
    text: str
    state: str
    """`waiting`, `delivered` or `failed`."""


class WebhookResponse(BaseModel):
    id: str
    room: str
    status: str
    """`accepted` until it is answered, then `answered`."""
    text: str = ""
    """The text of all messages from characters."""
    files: list[ReplyFile] = Field(default_factory=list)
    """Files of the reply; download them from `/webhook/{id}/files/{number}`."""
    replies: list[WebhookReply] = Field(default_factory=list)


def webhook_router(messages: MessageRouter, settings: WebhookSettings, files_of: FilesOf) -> APIRouter:
    class SecretRoute(APIRoute):
        """Checks the secret before the framework reads the body."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def check_and_handle(request: Request) -> Response:
                _check_secret(settings.secret, request.headers.get(_HEADER, ""))
                return await handle(request)

            return check_and_handle

    async def describe_secret(_secret: Annotated[str, Header(alias=_HEADER)] = "") -> None:
        """Adds the header to the description of every route."""

    router = APIRouter(tags=["webhook"], route_class=SecretRoute, dependencies=[Depends(describe_secret)])
    files = WebhookFiles(messages, files_of)

    @router.post(
        "/webhook",
        status_code=202,
        summary="Send a message; with `wait` the response has the reply",
        responses={200: {"model": WebhookResponse, "description": "With `wait`: the reply."}},
    )
    async def send_message(request: WebhookRequest, response: Response) -> WebhookResponse:
        redact.check_names(request.room, request.id, request.sender, request.callback)
        if request.callback is not None and not is_allowed_callback(request.callback, settings.callbacks):
            raise HTTPException(400, "This callback address is not allowed; add it to webhook.callbacks in config.toml")
        await _link_caller(request.sender)
        incoming = _incoming(request)
        if request.files and isinstance(incoming, IncomingMessage):
            attachments = files.attachments(incoming.account, incoming.room, request.files)
            incoming = incoming.model_copy(update={"attachments": attachments})
        if request.mode:
            await _begin_chat(incoming, request.mode)
        (received_id,) = await messages.inbound.accept([incoming])
        if request.wait:
            try:
                async with asyncio.timeout(settings.wait_s):
                    await messages.inbound.wait_answered(received_id)
                response.status_code = 200
            except TimeoutError:
                pass  # it is still answered; the caller can ask for it later
        return _response(messages, incoming, received_id)

    @router.post(
        "/webhook/files", status_code=201, summary="Upload a file for the next message; the request body is the file"
    )
    async def upload_file(
        request: Request,
        name: Annotated[str, Query(max_length=1_000)] = "file",
        room: _Room = "main",
        sender: Annotated[str, Query(alias="from", max_length=200, pattern=_NAME_PATTERN)] = CALLER,
    ) -> UploadedFile:
        redact.check_names(room, sender)
        await _link_caller(sender)
        account = Account(surface=NAME, id=sender, name=sender)
        return await files.save(request, account, RoomRef(surface=NAME, id=room), name)

    @router.get("/webhook/{message}/files/{number}", summary="Download a file of a reply", response_model=None)
    async def download_file(message: _Message, number: Count, room: _Room = "main") -> Response:
        incoming = _incoming(WebhookRequest(text="?", room=room, id=message))
        received_id = messages.inbound.inbox.find(incoming)
        available = reply_files(_replies(messages, received_id)) if received_id is not None else []
        if not 0 <= number < len(available):
            raise HTTPException(404, "There is no such file in this room")
        return files.stream(incoming.room, available[number][1])

    @router.get("/webhook/{message}", summary="The status of a message, and its replies")
    async def read_message(message: _Message, room: _Room = "main") -> WebhookResponse:
        incoming = _incoming(WebhookRequest(text="?", room=room, id=message))
        received_id = messages.inbound.inbox.find(incoming)
        if received_id is None:
            raise HTTPException(404, "There is no such message in this room")
        return _response(messages, incoming, received_id)

    async def _link_caller(sender: str) -> None:
        if sender == CALLER:
            await messages.people.link_owner(NAME, CALLER)

    async def _begin_chat(incoming: Incoming, mode: str) -> None:
        person = messages.people.by_account(NAME, incoming.account.id)
        if person is not None and messages.chats.rooms.find(incoming.room) is None:
            await messages.chats.begin_chat(incoming.room, person, mode=mode)

    return router


def _replies(messages: MessageRouter, received_id: int) -> list[QueuedMessage]:
    inbox = messages.inbound.inbox
    answered = inbox.state(received_id) == "answered"
    return messages.delivery.outbox.answers_to(inbox.first_of_batch(received_id)) if answered else []


def _incoming(request: WebhookRequest) -> Incoming:
    fields: dict[str, Any] = {
        "account": Account(surface=NAME, id=request.sender, name=request.sender),
        "room": RoomRef(surface=NAME, id=request.room),
        "key": request.id or new_id(),
        "thread": request.callback,
    }
    if request.text.startswith("/"):
        name, _, rest = request.text[1:].partition(" ")
        return IncomingCommand(**fields, name=name.lower(), arguments=rest)
    return IncomingMessage(**fields, text=request.text)


def _response(messages: MessageRouter, incoming: Incoming, received_id: int) -> WebhookResponse:
    replies = _replies(messages, received_id)
    return WebhookResponse(
        id=incoming.key,
        room=incoming.room.id,
        status="answered" if messages.inbound.inbox.state(received_id) == "answered" else "accepted",
        files=[file for file, _ in reply_files(replies)],
        text="\n\n".join(text_of(reply.outgoing) for reply in replies if reply.outgoing.type == "message"),
        replies=[
            WebhookReply(type=reply.outgoing.type, text=text_of(reply.outgoing), state=reply.state) for reply in replies
        ],
    )


def _check_secret(secret: SecretStr | None, header: str) -> None:
    if secret is not None and not hmac.compare_digest(secret.get_secret_value().encode(), header.encode()):
        raise HTTPException(401, f"The header {_HEADER} is missing or wrong")
