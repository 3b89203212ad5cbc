"""Set up messengers: paste a token, see at once who the bot is, and how the connection stands.

A messenger appears here by its class alone (`coterie.messaging.Messenger`): its fields make the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, HTTPException, Response
from pydantic import Field

from coterie.base.values import Key
from coterie.messaging import ConnectionState, Messenger, MessengerStatus
from coterie.surfaces.web.shared.dependencies import LinkCodeMinutes, MessengersDep, PeopleDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response
from coterie.surfaces.web.story.schemas import RequestModel, ResponseModel

router = APIRouter(prefix="/messengers", tags=["messengers"], responses=ERROR_RESPONSES)
pages = PageRouter(prefix="/settings")


class ChoiceResponse(ResponseModel):
    value: str
    label: str


class QuestionResponse(ResponseModel):
    """A question about the connection."""

    id: str
    text: str
    choices: list[ChoiceResponse]


class MessengerResponse(ResponseModel):
    name: str
    label: str
    state: ConnectionState
    """`off`, `connecting`, `connected`, or `retrying` with a problem."""
    account: str
    """Who the bot is."""
    link: str
    """The address that opens a chat with it."""
    problem: str
    fix: str
    note: str
    """What would work better with another setting of the platform."""
    last_message: datetime | None
    questions: list[QuestionResponse]

    @classmethod
    def of(cls, messenger: Messenger, status: MessengerStatus | None = None) -> MessengerResponse:
        status = status or messenger.status
        return cls(
            name=messenger.name,
            label=messenger.label,
            state=status.state,
            account=status.account,
            link=status.link,
            problem=status.problem,
            fix=status.fix,
            note=status.note,
            last_message=status.last_message,
            questions=[
                QuestionResponse(
                    id=one.id,
                    text=one.text,
                    choices=[ChoiceResponse(value=value, label=label) for value, label in one.choices],
                )
                for one in status.questions
            ],
        )


class ConnectRequest(RequestModel):
    values: Annotated[dict[Key, Annotated[str, Field(max_length=2_000)]], Field(max_length=20)]
    """Field → value, as the messenger needs them; a token for Telegram."""


class AnswerRequest(RequestModel):
    question: Key
    """The id of the question."""
    choice: Key
    """The value of the choice."""


class ResetRequest(RequestModel):
    mode: Key
    """`local-only`, or `server-leave-forget` to leave the rooms on the homeserver too."""
    dry_run: bool = False
    """Only say what would be done."""


class ResetResponse(ResponseModel):
    lines: list[str]
    """What was done, step by step, and what is left to do by hand."""


class OpenChatResponse(ResponseModel):
    link: str
    """The address that opens a chat with the bot, or adds it to a server."""
    write: str
    """What to write to the bot so that your account is linked; empty if the address does that. It works once."""
    minutes: int
    qr: str
    """The address as a QR code, in SVG."""


@router.get("", summary="The messengers and how their connections stand")
async def list_messengers(messengers: MessengersDep) -> list[MessengerResponse]:
    return [MessengerResponse.of(messenger) for messenger in messengers.values()]


@router.post("/{name}", summary="Test what was entered for a messenger, save it encrypted, and connect")
async def connect(messengers: MessengersDep, name: str, body: ConnectRequest) -> MessengerResponse:
    messenger = _find(messengers, name)
    return MessengerResponse.of(messenger, await messenger.connect(body.values))


@router.delete("/{name}", summary="Disconnect a messenger; chats are kept")
async def disconnect(messengers: MessengersDep, name: str) -> MessengerResponse:
    messenger = _find(messengers, name)
    await messenger.disconnect()
    return MessengerResponse.of(messenger)


@router.post("/{name}/open", summary="A link and a QR code that open a chat with the bot and link your account")
async def open_chat(
    messengers: MessengersDep, people: PeopleDep, code_minutes: LinkCodeMinutes, name: str
) -> OpenChatResponse:
    import segno

    messenger = _find(messengers, name)
    if not messenger.status.link:
        raise HTTPException(409, "This messenger is not connected")
    chat = messenger.open_chat(await people.issue_code("you", code_minutes))
    qr = segno.make(chat.link).svg_inline(scale=4, border=2, dark="#000", light="#fff")
    return OpenChatResponse(link=chat.link, write=chat.write, minutes=code_minutes, qr=qr)


@router.post("/{name}/reset", summary="Forget the rooms on Matrix; chats and memories stay")
async def reset(messengers: MessengersDep, name: str, body: ResetRequest) -> ResetResponse:
    return ResetResponse(lines=await _find(messengers, name).reset(body.mode, dry_run=body.dry_run))


@router.post("/{name}/answer", summary="Answer a question about the connection, such as whether emoji match")
async def answer(messengers: MessengersDep, name: str, body: AnswerRequest) -> MessengerResponse:
    messenger = _find(messengers, name)
    await messenger.answer(body.question, body.choice)
    return MessengerResponse.of(messenger)


@pages.get("/messengers/{name}")
async def messenger_status(messengers: MessengersDep, name: str) -> Response:
    return fragment_response("settings/messenger_status.html", shown=_find(messengers, name))


def _find(messengers: Mapping[str, Messenger], name: str) -> Messenger:
    if name not in messengers:
        raise HTTPException(404, f"There is no messenger called {name[:40]}")
    return messengers[name]
