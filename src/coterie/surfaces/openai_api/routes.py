"""The OpenAI-compatible API under `/v1`: any chat client can talk to a character.

Clients send the whole conversation with each call; the character has its own memory of it, so only the last message is
passed on. A conversation is recognised by its first message; one without a reply yet starts a new chat.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.values import Int64, Key
from coterie.characters import KEY_PREFIX, OWNER, ApiKeyQueries, Character, NoSuchCharacter, People, Person
from coterie.llm import ModelError, estimate_tokens, token_weights_for
from coterie.messaging import (
    Attachment,
    MessageRouter,
    ReplyDelta,
    ReplyFinished,
    ReplyUpdate,
    RoomFiles,
    RoomRef,
    with_full_text,
)
from coterie.surfaces.openai_api.settings import ApiSettings

NAME = "api"
FilesOf = Callable[[str], RoomFiles]
_DATA_URL = re.compile(r"data:(?P<type>image/[a-z0-9.+-]{1,40});base64,(?P<data>.*)", re.DOTALL)
_MAX_PICTURES = 10
_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": "An error in OpenAI's format.", "content": {"application/json": {}}}
    for status in (400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 502, 503)
}
_MAX_ANSWERED = 1_000
_log = get_logger(__name__)


_Content = Annotated[str, Field(max_length=4_000_000)] | Annotated[list[dict[str, Any]], Field(max_length=10_000)]
"""A conversation is sent as a whole, with pictures in it; the body has a limit of its own."""


class ChatCompletionMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Key
    content: _Content | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")
        return self.content or ""

    def pictures(self) -> list[str]:
        """The addresses of the pictures in it."""
        parts = self.content if isinstance(self.content, list) else []
        images = [part.get("image_url") for part in parts if part.get("type") == "image_url"]
        return [str(image.get("url", "")) if isinstance(image, dict) else str(image) for image in images]


class ChatCompletionRequest(BaseModel):
    """The fields that a conversation needs; others are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: Key
    messages: list[ChatCompletionMessage] = Field(min_length=1, max_length=10_000)
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    user: str | None = Field(default=None, max_length=200)
    mode: str = Field(default="", max_length=40)
    """Not part of OpenAI's API: the mode of a new conversation; the default mode if empty."""

    def last_user_text(self) -> str:
        text = self.messages[-1].text().strip() if self.messages[-1].role == "user" else ""
        if not text and not self.last_pictures():
            raise ValueError("the last message has to be the user's, with some text")
        return text

    def last_pictures(self) -> list[tuple[str, bytes]]:
        """The media types and contents of the pictures in the last message."""
        last = self.messages[-1]
        return [_read_data_url(url) for url in last.pictures()] if last.role == "user" else []

    def first_user_text(self) -> str:
        return next((message.text() for message in self.messages if message.role == "user"), "")

    def has_reply(self) -> bool:
        return any(message.role == "assistant" for message in self.messages)

    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.get("include_usage"))

    def fingerprint(self) -> str:
        """The same for a repeated call with the same conversation."""
        messages = [(message.role, message.text(), *message.pictures()) for message in self.messages]
        return hashlib.sha256(json.dumps([self.model, self.user, messages]).encode()).hexdigest()[:32]


def _read_data_url(url: str) -> tuple[str, bytes]:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise ValueError("a picture has to be a data: URL with base64; addresses are not opened")
    try:
        return match["type"], base64.b64decode(match["data"], validate=True)
    except ValueError:
        raise ValueError("a picture is not valid base64") from None


class _ResponseRenderer:
    kind = ""

    def __init__(self, request: ChatCompletionRequest, now: int) -> None:
        self._base = {"id": f"chatcmpl-{new_id()}", "object": self.kind, "created": now, "model": request.model}
        self._request = request

    def _usage(self, text: str) -> dict[str, int]:
        """Tokens of the conversation as text; the usage records have those of the character's own prompt."""
        weights = token_weights_for(self._request.model)
        prompt = round(sum(estimate_tokens(message.text(), weights) for message in self._request.messages))
        reply = round(estimate_tokens(text, weights))
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


class CompletionRenderer(_ResponseRenderer):
    kind = "chat.completion"

    def render(self, text: str, *, truncated: bool) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        reason = "length" if truncated else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**self._base, "choices": [choice], "usage": self._usage(text)}


class ChunkRenderer(_ResponseRenderer):
    kind = "chat.completion.chunk"

    def begin(self) -> dict[str, object]:
        return self._render({"role": "assistant", "content": ""})

    def text(self, text: str) -> dict[str, object]:
        return self._render({"content": text})

    def end(self) -> dict[str, object]:
        return self._render({}, "stop")

    def usage(self, text: str) -> dict[str, object]:
        return {**self._base, "choices": [], "usage": self._usage(text)}

    def _render(self, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
        return {**self._base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}


class Completions:
    def __init__(self, messages: MessageRouter, clock: Clock, files_of: FilesOf) -> None:
        self._chats = messages.chats
        self._files_of = files_of
        self._clock = clock
        self._answered: OrderedDict[str, None] = OrderedDict()
        """Fingerprints of answered conversations: the same call again asks for another reply."""

    def models(self, person: Person) -> list[dict[str, object]]:
        return [
            {"id": character.name, "object": "model", "created": 0, "owned_by": "coterie"}
            for character in self._chats.characters_for(person)
        ]

    async def reply(
        self, request: ChatCompletionRequest, person: Person, *, is_retry: bool
    ) -> AsyncIterator[ReplyUpdate]:
        """The character's reply to a person. `is_retry` if the client repeats a call that it got no answer to."""
        character = self._find_character(request.model, person)
        text, key = request.last_user_text(), request.fingerprint()
        first = hashlib.sha256(request.first_user_text().encode()).hexdigest()[:16]
        chat = f"{character.id}/{request.user or ''}/{first}"
        if not person.is_owner:  # a chat and its replies are a person's own, whatever a client sends
            chat, key = f"{person.id}/{chat}", f"{person.id}:{key}"
        room = RoomRef(surface=NAME, id=chat)
        binding = self._chats.rooms.find(room)
        if binding is None:
            binding, _ = await self._chats.begin_chat(room, person, character.id, mode=request.mode)
        elif not request.has_reply() and not is_retry:
            await self._chats.restart_chat(binding, person, mode=request.mode)
            binding = self._chats.rooms.get(room)
            self._answered.pop(key, None)
        self._chats.check_room(person, binding)
        conversation = self._chats.conversation(binding.mode)
        if key in self._answered and not is_retry:
            updates = conversation.retry(binding.context, person=person.id)
        else:
            files = await self._save_pictures(request, room, character, person)
            updates = conversation.send_message(
                binding.context, text, person=person.id, key=f"{NAME}:{key}", attachments=files
            )
        async for update in with_full_text(updates):
            yield update
        self._answered[key] = None
        while len(self._answered) > _MAX_ANSWERED:
            self._answered.popitem(last=False)

    async def _save_pictures(
        self, request: ChatCompletionRequest, room: RoomRef, character: Character, person: Person
    ) -> list[Attachment]:
        """Store the pictures of the last message as files of the room."""
        saved = []
        for number, (media_type, data) in enumerate(request.last_pictures()[:_MAX_PICTURES], start=1):

            async def content(data: bytes = data) -> AsyncIterator[bytes]:
                yield data

            name = f"picture {number}.{media_type.rpartition('/')[2]}"
            files = self._files_of(character.id)
            saved.append(await files.save(room, name, content(), media_type, sender=person.id))
        return saved

    def _find_character(self, name: str, person: Person) -> Character:
        """A character with whom the person may talk. Others do not exist for them, not even in an error."""
        if person.is_owner:
            return self._chats.characters.find(name)
        for character in self._chats.characters_for(person):
            if name.lower() in (character.id.lower(), character.name.lower()):
                return character
        raise NoSuchCharacter(f"There is no character called {name[:80]}.", "GET /v1/models lists them.")

    def now(self) -> int:
        return int(self._clock.now().timestamp())


def openai_router(
    messages: MessageRouter,
    settings: ApiSettings,
    clock: Clock,
    keys: ApiKeyQueries,
    *,
    files_of: FilesOf,
    keyless: bool = True,
) -> APIRouter:
    """`files_of` gives the files of a character by its id.

    `keyless` if calls without a valid key are the owner's: those that only this machine can make.
    """
    keyless = keyless and settings.key is None
    caller = partial(_caller, messages.people, keys, settings, keyless=keyless)
    router = APIRouter(prefix="/v1", tags=["openai"], responses=_ERROR_RESPONSES)
    completions = Completions(messages, clock, files_of)

    @router.get("/models", summary="Every character, as a model", response_model=None)
    async def models(authorization: Annotated[str, Header()] = "") -> JSONResponse:
        if (person := caller(authorization)) is None:
            return _key_refused()
        return JSONResponse({"object": "list", "data": completions.models(person)})

    @router.post(
        "/chat/completions",
        summary="Send a message to a character; `stream` streams the reply",
        response_model=None,
        openapi_extra={
            "requestBody": {"content": {"application/json": {"schema": ChatCompletionRequest.model_json_schema()}}}
        },
    )
    async def complete(
        request: Request,
        authorization: Annotated[str, Header()] = "",
        retry_count: Annotated[Int64, Header(alias="x-stainless-retry-count")] = 0,
    ) -> JSONResponse | StreamingResponse:
        if (person := caller(authorization)) is None:
            return _key_refused()
        try:
            completion = ChatCompletionRequest.model_validate_json(await request.body())
            completion.last_user_text(), completion.last_pictures()
        except HTTPException as error:
            return error_response(error.status_code, error.detail, "invalid_request_error")
        except (ValidationError, ValueError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            return error_response(400, f"The request is not valid: {reason}", "invalid_request_error")
        updates = completions.reply(completion, person, is_retry=retry_count > 0)
        if not completion.stream:
            return await _complete_response(updates, completion, completions.now())
        try:
            first = await anext(updates)  # an immediate failure is an error response, not a stream
        except CoterieError as error:
            return _coterie_error(error)
        frames = _stream(first, updates, completion, completions.now())
        return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    return router


async def _complete_response(
    updates: AsyncIterator[ReplyUpdate], request: ChatCompletionRequest, now: int
) -> JSONResponse:
    finished = ReplyFinished("", "")
    try:
        async for update in updates:
            if isinstance(update, ReplyFinished):
                finished = update
    except CoterieError as error:
        return _coterie_error(error)
    if finished.error and not finished.text:
        return error_response(502, redact(finished.error), "server_error")
    return JSONResponse(CompletionRenderer(request, now).render(finished.text, truncated=bool(finished.error)))


async def _stream(
    first: ReplyUpdate, rest: AsyncIterator[ReplyUpdate], request: ChatCompletionRequest, now: int
) -> AsyncIterator[str]:
    chunk = ChunkRenderer(request, now)
    yield _sse(chunk.begin())
    finished = ReplyFinished("", "")
    try:
        async for update in _chain(first, rest):
            if isinstance(update, ReplyDelta):
                yield _sse(chunk.text(update.text))
            elif isinstance(update, ReplyFinished):
                finished = update
        if finished.error:
            yield _sse({"error": {"message": redact(finished.error), "type": "server_error"}})
        else:
            yield _sse(chunk.end())
            if request.wants_usage():
                yield _sse(chunk.usage(finished.text))
    except CoterieError as error:
        yield _sse({"error": {"message": redact(str(error)), "type": "server_error"}})
    except Exception:
        _log.exception("a completion failed")
        yield _sse({"error": {"message": "Something unexpected went wrong.", "type": "server_error"}})
    yield "data: [DONE]\n\n"


async def _chain(first: ReplyUpdate, rest: AsyncIterator[ReplyUpdate]) -> AsyncIterator[ReplyUpdate]:
    yield first
    async for update in rest:
        yield update


def error_response(status: int, message: str, kind: str, code: str | None = None) -> JSONResponse:
    """An error in OpenAI's format."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status_code=status)


def _caller(
    people: People, keys: ApiKeyQueries, settings: ApiSettings, authorization: str, *, keyless: bool
) -> Person | None:
    """The person who calls: the owner with the configured key, anybody with a key of their own; None for nobody."""
    token = authorization.removeprefix("Bearer ").strip()
    if settings.key is not None and hmac.compare_digest(settings.key.get_secret_value().encode(), token.encode()):
        return people.person(OWNER)
    if token.startswith(KEY_PREFIX):  # one that was revoked is never the owner's
        return keys.find_person(token)
    return people.person(OWNER) if keyless else None


def _key_refused() -> JSONResponse:
    return error_response(401, "The API key is missing or wrong.", "invalid_request_error", "invalid_api_key")


def _coterie_error(error: CoterieError) -> JSONResponse:
    if isinstance(error, NoSuchCharacter):
        return error_response(404, redact(str(error)), "invalid_request_error", "model_not_found")
    if not isinstance(error, ModelError) and error.http_status < 500:
        return error_response(error.http_status, redact(str(error)), "invalid_request_error")
    return error_response(502, redact(str(error)), "server_error")


def _sse(data: dict[str, object]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
