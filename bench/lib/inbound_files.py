"""Parsers of imported files, of Discord's messages and of a provider's stream, with examples of their input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

import discord
from pydantic import SecretStr

from coterie.llm import Prompt
from coterie.llm.hosted import HostedProvider, real_requests
from coterie.llm.messages import CompletionRequest, PromptMessage
from coterie.llm.samplers import import_sillytavern
from coterie.llm.settings import ProviderSpec
from coterie.messaging.inbox import MessageReceived
from coterie.modes.crowd.session.stream_sources import _cues
from coterie.modes.story.sillytavern import source
from coterie.surfaces.discord.service import DiscordService, GatewayConnection
from coterie.surfaces.discord.settings import DiscordSettings


class NamedParser(NamedTuple):
    name: str
    examples: tuple[bytes, ...]
    parse: Callable[[bytes], object]
    weight: int = 50


def _json(*values: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


_ENTRY = {"uid": 0, "key": ["lamp"], "keysecondary": [], "content": "@@depth 2\nBright.", "order": 100, "position": 4}
_GROUP = {"id": "1", "name": "Crew", "members": ["Mara.png", "Io.png"], "chats": ["a"], "chat_id": "a"}
_SETTINGS = {
    "username": "Ana",
    "user_avatar": "ana.png",
    "power_user": {
        "personas": {"ana.png": "Ana", "cap.png": "Captain"},
        "persona_descriptions": {"ana.png": {"description": "A sailor.", "position": 0}},
        "default_persona": "cap.png",
    },
}
_PRESET = {"temp": 0.9, "top_p": 0.95, "top_k": 40, "rep_pen": 1.1, "genamt": 300, "custom_stopping_strings": '["\\n"]'}
_QUICK = {"name": "Set", "qrList": [{"label": "Hi", "message": "/send Hi", "isHidden": False}]}
_SUBTITLES = b"WEBVTT\n\n1\n00:00:01.000 --> 00:00:03.500\nChat, which door?\n\n00:04,000 --> 00:05,000\nThe left.\n"


def file_parsers() -> list[NamedParser]:
    return [
        NamedParser("sampler_preset", _json(_PRESET), import_sillytavern),
        NamedParser("tavern_preset", _json(_PRESET), source.read_preset),
        NamedParser("tavern_book", _json({"entries": {"0": _ENTRY}, "name": "Coast"}), source.read_book),
        NamedParser("tavern_group", _json(_GROUP), source.read_group),
        NamedParser("tavern_settings", _json(_SETTINGS), _personas),
        NamedParser("tavern_quick_replies", _json(_QUICK), source.read_quick_replies),
        NamedParser("subtitles", (_SUBTITLES,), lambda data: list(_cues(data.decode("utf-8", "replace")))),
    ]


def _personas(data: bytes) -> None:
    for persona in source.read_personas(data):
        json.dumps(persona.document).encode()


_USER = {"id": "7", "username": "ana", "discriminator": "0", "avatar": None, "global_name": "Ana"}
_MESSAGE = {
    "id": "5",
    "channel_id": "9",
    "author": _USER,
    "content": "<@1> hello <@8>",
    "timestamp": "2024-01-01T00:00:00+00:00",
    "edited_timestamp": None,
    "tts": False,
    "mention_everyone": False,
    "mentions": [{**_USER, "id": "8"}],
    "mention_roles": [],
    "attachments": [{"id": "3", "filename": "a.png", "size": 5, "url": "http://x/a", "proxy_url": "http://x/a"}],
    "embeds": [],
    "pinned": False,
    "type": 0,
    "flags": 0,
    "components": [],
    "sticker_items": [{"id": "4", "name": "wave", "format_type": 1}],
    "message_reference": {"message_id": "4", "channel_id": "9", "type": 0},
}


class DiscordReceiver:
    """A bot in a channel with strangers. What the library cannot read never reaches us."""

    examples = _json(_MESSAGE, {**_MESSAGE, "type": 19, "content": "!start a b"}, {**_MESSAGE, "type": 1})

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = discord.Client(intents=discord.Intents.none())
        state = self._client._connection
        state.user = discord.ClientUser(state=state, data={**_USER, "id": "1", "bot": True})  # type: ignore[typeddict-item]
        self._state = state
        self._channel = discord.PartialMessageable(state=state, id=9)
        router: Any = SimpleNamespace(inbound=self)
        self.inbox = SimpleNamespace(find=lambda _: None, cursor=lambda _: None)
        service = DiscordService(router, DiscordSettings(), lambda _: router)
        self._connection = GatewayConnection(service, self._client, router)

    def receive(self, data: bytes) -> None:
        message: Any = None
        with suppress(Exception):
            message = discord.Message(state=self._state, channel=self._channel, data=json.loads(data))
        if message is not None:
            self._loop.run_until_complete(self._connection._store([message]))

    async def accept(self, incoming: Any, cursor: Any = None, skipped: Any = ()) -> None:
        for payload in (*skipped, *(MessageReceived(incoming=event) for event in incoming)):
            payload.model_dump_json()

    def is_known(self, _account: object) -> bool:
        return False

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _events(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


class ProviderReceiver:
    """A provider whose server answers every request with the given stream."""

    examples = (
        _events(
            {**_CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}}]},
            {**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**_CHUNK, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}},
        ),
        _events(
            {
                **_CHUNK,
                "choices": [
                    {
                        "index": 0,
                        "delta": {
                            "tool_calls": [
                                {
                                    "index": 0,
                                    "id": "t",
                                    "type": "function",
                                    "function": {"name": "a", "arguments": "{}"},
                                }
                            ]
                        },
                        "finish_reason": "tool_calls",
                    }
                ],
            },
        ),
        b'{"error": {"message": "no", "type": "x", "code": 500}}',
    )

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._data = b""
        self._server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        spec = ProviderSpec("p", "openai", address, SecretStr("key"), False, True, True, 5.0, 5.0)
        self._provider = HostedProvider(spec)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length"))
            await reader.readexactly(length)
            kind = b"application/json" if self._data[:1] == b"{" else b"text/event-stream"
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: %s\r\n\r\n%s" % (kind, self._data))
            await writer.drain()
        writer.close()

    def receive(self, data: bytes) -> None:
        self._data = data
        self._loop.run_until_complete(self._read())

    async def _read(self) -> None:
        request = CompletionRequest(model="m", prompt=Prompt(messages=(PromptMessage(role="user", text="hi"),)))
        with real_requests(allowed=True):
            async for chunk in self._provider.stream(request):
                chunk.model_dump_json()

    def close(self) -> None:
        self._loop.run_until_complete(self._provider.close())
        self._server.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
