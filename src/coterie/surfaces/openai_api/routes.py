"""The OpenAI-compatible API: any chat client can talk to a character, and the character remembers. P15

Clients send the whole conversation each time; a character has its own memory of it, so only the last message is said.
A conversation is known by how it began. One that begins anew begins a new chat, and what was said before is a memory.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters.errors import NoSuchCharacter
from coterie.characters.people import Person
from coterie.characters.service import OWNER
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import ReplyFinished, ReplyText, ReplyUpdate
from coterie.messaging.protocol import RoomRef
from coterie.surfaces.openai_api.schemas import ChatCompletionRequest, ChunkRenderer, CompletionRenderer, error_response
from coterie.surfaces.openai_api.settings import ApiSettings

NAME = "api"
_REMEMBERED = 1_000
_log = get_logger(__name__)


class Completions:
    def __init__(self, board: MessageRouter, clock: Clock) -> None:
        self._board = board
        self._clock = clock
        self._heard: OrderedDict[str, None] = OrderedDict()
        """Conversations that were answered as they stand: asked again, another answer is wanted."""

    def models(self) -> list[dict[str, object]]:
        return [
            {"id": bot.name, "object": "model", "created": 0, "owned_by": "coterie"}
            for bot in self._board.chats.characters.all()
        ]

    async def reply(self, asked: ChatCompletionRequest, *, again: bool) -> AsyncIterator[ReplyUpdate]:
        """What the character says. `again` where the client repeats a call that it got no answer to."""
        talk = self._board.chats
        bot = talk.characters.find(asked.model)
        you, text, key = self._you(), asked.last_user_text(), _fingerprint(asked)
        first = hashlib.sha256(asked.first_user_text().encode()).hexdigest()[:16]
        room = RoomRef(surface=NAME, id=f"{bot.id}/{asked.user or ''}/{first}")
        bound = talk.rooms.find(room)
        if bound is None:
            bound, _ = await talk.begin_chat(room, you, bot.id, mode=asked.mode)
        elif not asked.has_reply() and not again:
            await talk.restart_chat(bound, you, mode=asked.mode)
            bound = talk.rooms.get(room)
            self._heard.pop(key, None)
        conversation = talk.conversation(bound.mode)
        if key in self._heard and not again:
            speech = conversation.retry(bound.context, person=you.id)
        else:
            speech = conversation.send_message(bound.context, text, person=you.id, key=f"{NAME}:{key}")
        async for one in speech:
            yield one
        self._heard[key] = None
        while len(self._heard) > _REMEMBERED:
            self._heard.popitem(last=False)

    def now(self) -> int:
        return int(self._clock.now().timestamp())

    def _you(self) -> Person:
        return self._board.people.person(OWNER)


def openai_router(board: MessageRouter, settings: ApiSettings, clock: Clock) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["openai"])
    completions = Completions(board, clock)

    @router.get("/models", summary="Every character, as a model", response_model=None)
    async def models(authorization: Annotated[str, Header()] = "") -> JSONResponse:
        if (refused := _refused(settings, authorization)) is not None:
            return refused
        return JSONResponse({"object": "list", "data": completions.models()})

    @router.post(
        "/chat/completions",
        summary="Say something to a character; `stream` gives the reply as it is spoken",
        response_model=None,
        openapi_extra={
            "requestBody": {"content": {"application/json": {"schema": ChatCompletionRequest.model_json_schema()}}}
        },
    )
    async def complete(
        request: Request,
        authorization: Annotated[str, Header()] = "",
        retry_count: Annotated[int, Header(alias="x-stainless-retry-count")] = 0,
    ) -> JSONResponse | StreamingResponse:
        if (refused := _refused(settings, authorization)) is not None:
            return refused
        try:
            asked = ChatCompletionRequest.model_validate_json(await request.body())
            asked.last_user_text()
        except (ValidationError, ValueError) as error:
            told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            return error_response(400, f"The request does not fit: {told}", "invalid_request_error")
        speech = completions.reply(asked, again=retry_count > 0)
        if asked.stream:
            try:
                first = await anext(speech)  # what fails at once is an error, not a stream
            except CoterieError as error:
                return _coterie_error(error)
            told_parts = _stream(first, speech, asked, completions.now())
            return StreamingResponse(told_parts, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        return await _whole(speech, asked, completions.now())

    return router


async def _whole(speech: AsyncIterator[ReplyUpdate], asked: ChatCompletionRequest, now: int) -> JSONResponse:
    spoken = ReplyFinished("", "")
    try:
        async for one in speech:
            if isinstance(one, ReplyFinished):
                spoken = one
    except CoterieError as error:
        return _coterie_error(error)
    if spoken.error and not spoken.text:
        return error_response(502, redact(spoken.error), "server_error")
    return JSONResponse(CompletionRenderer(_id(), asked, now).render(spoken.text, cut=bool(spoken.error)))


async def _stream(
    first: ReplyUpdate, rest: AsyncIterator[ReplyUpdate], asked: ChatCompletionRequest, now: int
) -> AsyncIterator[str]:
    piece = ChunkRenderer(_id(), asked, now)
    yield _sse(piece.begin())
    told, spoken = "", ReplyFinished("", "")
    try:
        async for one in _joined(first, rest):
            if isinstance(one, ReplyText):
                told += one.text
                yield _sse(piece.text(one.text))
            elif isinstance(one, ReplyFinished):
                spoken = one
        if spoken.text.startswith(told) and len(spoken.text) > len(told):
            yield _sse(piece.text(spoken.text[len(told) :]))  # words that came with the end
        if spoken.error:
            yield _sse({"error": {"message": redact(spoken.error), "type": "server_error"}})
        else:
            yield _sse(piece.end())
            if asked.wants_usage():
                yield _sse(piece.usage(spoken.text))
    except CoterieError as error:
        yield _sse({"error": {"message": redact(str(error)), "type": "server_error"}})
    except Exception:
        _log.exception("a completion failed")
        yield _sse({"error": {"message": "Something unexpected went wrong.", "type": "server_error"}})
    yield "data: [DONE]\n\n"


async def _joined(first: ReplyUpdate, rest: AsyncIterator[ReplyUpdate]) -> AsyncIterator[ReplyUpdate]:
    yield first
    async for one in rest:
        yield one


def _refused(settings: ApiSettings, authorization: str) -> JSONResponse | None:
    if settings.key is None:
        return None  # the server listens on this machine only
    given = authorization.removeprefix("Bearer ").strip()
    if hmac.compare_digest(settings.key.get_secret_value().encode(), given.encode()):
        return None
    return error_response(401, "The API key is missing or wrong.", "invalid_request_error", "invalid_api_key")


def _coterie_error(error: CoterieError) -> JSONResponse:
    if isinstance(error, NoSuchCharacter):
        return error_response(404, redact(str(error)), "invalid_request_error", "model_not_found")
    return error_response(502, redact(str(error)), "server_error")


def _fingerprint(asked: ChatCompletionRequest) -> str:
    told = json.dumps([asked.model, asked.user, [(m.role, m.text()) for m in asked.messages]])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _id() -> str:
    return f"chatcmpl-{new_id()}"


def _sse(told: dict[str, object]) -> str:
    return f"data: {json.dumps(told, ensure_ascii=False)}\n\n"
