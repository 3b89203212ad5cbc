"""`POST /webhook`: a message from a program, durable before it is accepted, answered once however often sent. D13"""

from __future__ import annotations

import asyncio
import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from coterie.base.ids import new_id
from coterie.engine.outbox import Queued
from coterie.engine.protocol import Account, Incoming, IncomingCommand, IncomingMessage, RoomRef
from coterie.engine.switchboard import Switchboard
from coterie.surfaces.webhook.settings import WebhookSettings, may_call
from coterie.surfaces.webhook.surface import CALLER, NAME, text_of

Secret = Annotated[str, Header(alias="X-Webhook-Secret")]
_NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"


class Call(BaseModel):
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
    callback: str | None = Field(default=None, max_length=2_000)
    """Where the reply is posted to; it must be allowed in `webhook.callbacks`."""


class Reply(BaseModel):
    type: str
    """`message` is a character speaking, `notification` the house, `ui` a question."""
    text: str
    state: str
    """`waiting`, `delivered` or `failed`."""


class Answer(BaseModel):
    id: str
    room: str
    status: str
    """`accepted` while it is being answered, `answered` afterwards."""
    text: str = ""
    """Everything characters said, joined."""
    replies: list[Reply] = Field(default_factory=list)


def hook_router(board: Switchboard, settings: WebhookSettings) -> APIRouter:
    router = APIRouter(tags=["webhook"])

    @router.post(
        "/webhook",
        status_code=202,
        summary="A message from a program; with `wait` the answer is the reply",
        responses={200: {"model": Answer, "description": "With `wait`: the reply."}},
    )
    async def call(told: Call, response: Response, x_webhook_secret: Secret = "") -> Answer:
        _check(settings.secret, x_webhook_secret)
        if told.callback is not None and not may_call(told.callback, settings.callbacks):
            raise HTTPException(400, "This callback address is not allowed; add it to webhook.callbacks in config.toml")
        if told.sender == CALLER:
            await board.people.link_owner(NAME, CALLER)
        incoming = _incoming(told)
        (received,) = await board.reception.accept([incoming])
        if told.wait:
            try:
                async with asyncio.timeout(settings.wait_s):
                    await board.reception.answered(received)
                response.status_code = 200
            except TimeoutError:
                pass  # it goes on being answered; the caller may look later
        return _answer(board, incoming, received)

    @router.get("/webhook/{message}", summary="How a message stands, and what was replied")
    async def look(message: str, room: str = "main", x_webhook_secret: Secret = "") -> Answer:
        _check(settings.secret, x_webhook_secret)
        sought = _incoming(Call(text="?", room=room, id=message))
        received = board.reception.inbox.find(sought)
        if received is None:
            raise HTTPException(404, "There is no such message in this room")
        return _answer(board, sought, received)

    return router


def _incoming(told: Call) -> Incoming:
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


def _answer(board: Switchboard, incoming: Incoming, received: int) -> Answer:
    inbox = board.reception.inbox
    answered = inbox.state(received) == "answered"
    replies = board.postman.book.answers_to(inbox.answered_with(received)) if answered else []
    return Answer(
        id=incoming.key,
        room=incoming.room.id,
        status="answered" if answered else "accepted",
        text="\n\n".join(text_of(one.outgoing) for one in replies if one.outgoing.type == "message"),
        replies=[_shape(one) for one in replies],
    )


def _shape(queued: Queued) -> Reply:
    return Reply(type=queued.outgoing.type, text=text_of(queued.outgoing), state=queued.state)


def _check(secret: SecretStr | None, given: str) -> None:
    if secret is not None and not hmac.compare_digest(secret.get_secret_value().encode(), given.encode()):
        raise HTTPException(401, "The header X-Webhook-Secret is missing or wrong")
