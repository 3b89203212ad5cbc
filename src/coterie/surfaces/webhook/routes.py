"""Files over the webhook: sent ahead of the message that names them, fetched by the message that was answered with
them. P6, D13

A file is the body of its request and is never whole in memory. Callers see names and numbers; where things are kept is
not theirs to choose, and what was sent to another room cannot be fetched.
"""

from __future__ import annotations

import asyncio
import hmac
import mimetypes
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from coterie.base.ids import new_id
from coterie.messaging import (
    FILES_FOLDER,
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
    room_folder_name,
)
from coterie.surfaces.webhook.surface import CALLER, NAME, WebhookSettings, is_allowed_callback, text_of

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


# `POST /webhook`: a message from a program, durable before it is accepted, answered once however often sent. D13


Secret = Annotated[str, Header(alias="X-Webhook-Secret")]
_NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"


class WebhookRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, use_attribute_docstrings=True)

    text: str = Field(min_length=1, max_length=100_000)
    room: str = Field(default="main", max_length=200, pattern=_NAME_PATTERN)
    """Any name; a chat goes on in the room it began in."""
    id: str | None = Field(default=None, max_length=200, pattern=_NAME_PATTERN)
    """Yours, to make a repeated call the same message; one is made if you give none."""
    sender: str = Field(default=CALLER, alias="from", max_length=200, pattern=_NAME_PATTERN)
    """Who wrote it, where you speak for several people."""
    wait: bool = False
    """Answer only when the reply is there."""
    mode: str = Field(default="", max_length=40)
    """Which kind of chat begins, if this is the first word in the room (`story`, `desk`, …); else the usual one."""
    files: list[str] = Field(default_factory=list, max_length=20)
    """Sent before to `POST /webhook/files`, by what that answered with."""
    callback: str | None = Field(default=None, max_length=2_000)
    """Where the reply is posted to; it must be allowed in `webhook.callbacks`."""


class WebhookReply(BaseModel):
    type: str
    """`message` is a character speaking, `notification` the house, `ui` a question."""
    text: str
    state: str
    """`waiting`, `delivered` or `failed`."""


class WebhookResponse(BaseModel):
    id: str
    room: str
    status: str
    """`accepted` while it is being answered, `answered` afterwards."""
    text: str = ""
    """Everything characters said, joined."""
    files: list[ReplyFile] = Field(default_factory=list)
    """What they sent; to be fetched from `/webhook/{id}/files/{number}`."""
    replies: list[WebhookReply] = Field(default_factory=list)


def webhook_router(messages: MessageRouter, settings: WebhookSettings, files_of: FilesOf) -> APIRouter:
    router = APIRouter(tags=["webhook"])
    files = WebhookFiles(messages, files_of)

    @router.post(
        "/webhook",
        status_code=202,
        summary="A message from a program; with `wait` the answer is the reply",
        responses={200: {"model": WebhookResponse, "description": "With `wait`: the reply."}},
    )
    async def call(told: WebhookRequest, response: Response, x_webhook_secret: Secret = "") -> WebhookResponse:
        _check(settings.secret, x_webhook_secret)
        if told.callback is not None and not is_allowed_callback(told.callback, settings.callbacks):
            raise HTTPException(400, "This callback address is not allowed; add it to webhook.callbacks in config.toml")
        await _know(told.sender)
        incoming = _incoming(told)
        if told.files and isinstance(incoming, IncomingMessage):
            kept = files.attachments(incoming.account, incoming.room, told.files)
            incoming = incoming.model_copy(update={"attachments": kept})
        if told.mode:
            await _begin(incoming, told.mode)
        (received,) = await messages.inbound.accept([incoming])
        if told.wait:
            try:
                async with asyncio.timeout(settings.wait_s):
                    await messages.inbound.wait_answered(received)
                response.status_code = 200
            except TimeoutError:
                pass  # it goes on being answered; the caller may look later
        return _answer(messages, incoming, received)

    @router.post("/webhook/files", status_code=201, summary="A file for the next message; the body is the file")
    async def send_file(
        request: Request,
        name: Annotated[str, Query(max_length=1_000)] = "file",
        room: Annotated[str, Query(max_length=200, pattern=_NAME_PATTERN)] = "main",
        sender: Annotated[str, Query(alias="from", max_length=200, pattern=_NAME_PATTERN)] = CALLER,
        x_webhook_secret: Secret = "",
    ) -> UploadedFile:
        _check(settings.secret, x_webhook_secret)
        await _know(sender)
        account = Account(surface=NAME, id=sender, name=sender)
        return await files.save(request, account, RoomRef(surface=NAME, id=room), name)

    @router.get("/webhook/{message}/files/{number}", summary="A file that came with a reply", response_model=None)
    async def fetch_file(message: str, number: int, room: str = "main", x_webhook_secret: Secret = "") -> Response:
        _check(settings.secret, x_webhook_secret)
        sought = _incoming(WebhookRequest(text="?", room=room, id=message))
        received = messages.inbound.inbox.find(sought)
        sent = reply_files(_replies(messages, received)) if received is not None else []
        if not 0 <= number < len(sent):
            raise HTTPException(404, "There is no such file in this room")
        return files.stream(sought.room, sent[number][1])

    @router.get("/webhook/{message}", summary="How a message stands, and what was replied")
    async def look(message: str, room: str = "main", x_webhook_secret: Secret = "") -> WebhookResponse:
        _check(settings.secret, x_webhook_secret)
        sought = _incoming(WebhookRequest(text="?", room=room, id=message))
        received = messages.inbound.inbox.find(sought)
        if received is None:
            raise HTTPException(404, "There is no such message in this room")
        return _answer(messages, sought, received)

    async def _know(sender: str) -> None:
        if sender == CALLER:
            await messages.people.link_owner(NAME, CALLER)

    async def _begin(incoming: Incoming, mode: str) -> None:
        person = messages.people.by_account(NAME, incoming.account.id)
        if person is not None and messages.chats.rooms.find(incoming.room) is None:
            await messages.chats.begin_chat(incoming.room, person, mode=mode)

    return router


def _replies(board: MessageRouter, received: int) -> list[QueuedMessage]:
    inbox = board.inbound.inbox
    answered = inbox.state(received) == "answered"
    return board.delivery.outbox.answers_to(inbox.batch_first(received)) if answered else []


def _incoming(told: WebhookRequest) -> Incoming:
    whole: dict[str, Any] = {
        "account": Account(surface=NAME, id=told.sender, name=told.sender),
        "room": RoomRef(surface=NAME, id=told.room),
        "key": told.id or new_id(),
        "thread": told.callback,
    }
    if told.text.startswith("/"):
        name, _, rest = told.text[1:].partition(" ")
        return IncomingCommand(**whole, name=name.lower(), arguments=rest)
    return IncomingMessage(**whole, text=told.text)


def _answer(board: MessageRouter, incoming: Incoming, received: int) -> WebhookResponse:
    replies = _replies(board, received)
    return WebhookResponse(
        id=incoming.key,
        room=incoming.room.id,
        status="answered" if board.inbound.inbox.state(received) == "answered" else "accepted",
        files=[file for file, _ in reply_files(replies)],
        text="\n\n".join(text_of(one.outgoing) for one in replies if one.outgoing.type == "message"),
        replies=[_shape(one) for one in replies],
    )


def _shape(queued: QueuedMessage) -> WebhookReply:
    return WebhookReply(type=queued.outgoing.type, text=text_of(queued.outgoing), state=queued.state)


def _check(secret: SecretStr | None, given: str) -> None:
    if secret is not None and not hmac.compare_digest(secret.get_secret_value().encode(), given.encode()):
        raise HTTPException(401, "The header X-Webhook-Secret is missing or wrong")
