"""A small Bot API server that checks every call against the Bot API's method tables, with faults.

It keeps chats, topics, messages and updates, so that a bot can be restarted against it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Literal

from aiohttp import web

Json = dict[str, Any]
Fault = Literal["patience", "hung up", "taken, then hung up", "refused", "stuck after taking"]
TOKEN = "123456:a-token-of-the-bot"
BOT = {
    "id": 123456,
    "is_bot": True,
    "first_name": "Coterie",
    "username": "coterie_bot",
    "can_join_groups": True,
    "can_read_all_group_messages": False,
    "supports_inline_queries": False,
    "has_topics_enabled": True,
}
METHODS: dict[str, dict[str, str]] = {
    "getMe": {},
    "getUpdates": {"offset": "int", "limit": "int", "timeout": "int", "allowed_updates": "array"},
    "setMyCommands": {"commands!": "array", "scope": "object", "language_code": "str"},
    "deleteWebhook": {"drop_pending_updates": "bool"},
    "setWebhook": {
        "url!": "str",
        "ip_address": "str",
        "max_connections": "int",
        "allowed_updates": "array",
        "drop_pending_updates": "bool",
        "secret_token": "str",
    },
    "sendMessage": {
        "chat_id!": "int",
        "message_thread_id": "int",
        "text!": "str",
        "parse_mode": "str",
        "entities": "array",
        "link_preview_options": "object",
        "disable_notification": "bool",
        "protect_content": "bool",
        "reply_parameters": "object",
        "reply_markup": "object",
    },
    "sendMessageDraft": {
        "chat_id!": "int",
        "message_thread_id": "int",
        "draft_id!": "int",
        "text": "str",
        "parse_mode": "str",
        "entities": "array",
    },
    "editMessageText": {
        "chat_id": "int",
        "message_id": "int",
        "text!": "str",
        "parse_mode": "str",
        "entities": "array",
        "link_preview_options": "object",
        "reply_markup": "object",
    },
    "editMessageReplyMarkup": {"chat_id": "int", "message_id": "int", "reply_markup": "object"},
    "deleteMessage": {"chat_id!": "int", "message_id!": "int"},
    "sendPhoto": {"chat_id!": "int", "message_thread_id": "int", "photo!": "file", "caption": "str"},
    "sendDocument": {"chat_id!": "int", "message_thread_id": "int", "document!": "file", "caption": "str"},
    "sendChatAction": {"chat_id!": "int", "message_thread_id": "int", "action!": "str"},
    "setMessageReaction": {"chat_id!": "int", "message_id!": "int", "reaction": "array", "is_big": "bool"},
    "createForumTopic": {"chat_id!": "int", "name!": "str", "icon_color": "int"},
    "editForumTopic": {"chat_id!": "int", "message_thread_id!": "int", "name": "str"},
    "answerCallbackQuery": {"callback_query_id!": "str", "text": "str", "show_alert": "bool"},
    "getFile": {"file_id!": "str"},
    "leaveChat": {"chat_id!": "int"},
}
"""The parameters of each method with their types; `!` marks what is required."""
_TAGS = {"b", "i", "s", "u", "a", "code", "pre", "blockquote"}
_FAULTY = {"sendMessage", "editMessageText", "sendPhoto", "sendDocument"}
_REACTIONS = {"👍", "👌", "👀", "❤"}


class Refusal(Exception):
    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code, self.parameters = code, parameters


@dataclass
class SentMessage:
    id: int
    chat: int
    topic: int | None
    text: str
    html: str
    reply_to: int | None = None
    buttons: list[list[Json]] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)
    file: tuple[str, bytes] | None = None
    edits: int = 0


@dataclass
class BotApi:
    token: str = TOKEN
    faults: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """Calls that do not fit the method tables."""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    sent: dict[tuple[int, int], SentMessage] = field(default_factory=dict)
    updates: list[Json] = field(default_factory=list)
    topics: dict[tuple[int, int], str] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    """Users who wrote to the bot in private: only to them it can write."""
    files: dict[str, bytes] = field(default_factory=dict)
    edits_refused: bool = False
    forums: bool = True
    down: bool = False
    drafts: list[str] = field(default_factory=list)
    webhook: tuple[str, str] = ("", "")
    """The address and the secret of the webhook."""
    _confirmed: int = 0
    _last_message: int = 100
    _new_update: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_route("*", "/bot{token}/{method}", self._handle)
        app.router.add_get("/file/bot{token}/{path:.+}", self._file)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    # --- users ------------------------------------------------------------------------------------------------

    def message(self, user: Json, chat: Json, text: str = "", topic: int | None = None, **more: Any) -> int:
        """A user writes; returns the id of the message."""
        if chat["type"] == "private":
            self.started.add(user["id"])
        message: Json = {"message_id": self._next_id(), "date": int(time.time()), "chat": chat, "from": user, **more}
        if topic is not None:
            message |= {"message_thread_id": topic, "is_topic_message": True}
        if text:
            message["text"] = text
            message["entities"] = _entities(text)
        self.update(message=message)
        return int(message["message_id"])

    def update(self, **update: Any) -> None:
        self.updates.append({"update_id": 7_000 + len(self.updates), **update})
        self._new_update.set()

    def upload(self, data: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = data
        return name

    def in_chat(self, chat: int, topic: int | None = None) -> list[SentMessage]:
        return [sent for sent in self.sent.values() if (sent.chat, sent.topic) == (chat, topic)]

    # --- the API ----------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        parameters = await self._parameters(request, method)
        if self.down:
            return _error(502, "Bad Gateway")
        if request.match_info["token"] != self.token:
            return _error(401, "Unauthorized")
        self.calls.append((method, parameters))
        if method not in METHODS:
            self.violations.append(f"{method} is no method")
            return _error(404, "Not Found")
        self._check(method, parameters)
        fault = self.faults.pop(0) if self.faults and method in _FAULTY else None
        if fault == "patience":
            return _error(429, "Too Many Requests: retry after 1", retry_after=0.01)
        if fault == "hung up":
            return _error(500, "Internal Server Error")
        if fault == "refused":
            return _error(400, "Bad Request: not this")
        try:
            result = await getattr(self, f"_{method}")(parameters)
        except Refusal as refusal:
            return _error(refusal.code, str(refusal), **refusal.parameters)
        if fault == "stuck after taking":
            await asyncio.sleep(3600)
        if fault == "taken, then hung up" and request.transport is not None:
            request.transport.close()
        return web.json_response({"ok": True, "result": result})

    async def _parameters(self, request: web.Request, method: str) -> Json:
        form = await request.post()
        parameters: Json = {}
        for name, value in form.items():
            if isinstance(value, web.FileField):
                parameters[name] = (value.filename, value.file.read())
            else:
                parameters[name] = value
        return parameters

    def _check(self, method: str, parameters: Json) -> None:
        table = {name.rstrip("!"): kind for name, kind in METHODS[method].items()}
        required = {name[:-1] for name in METHODS[method] if name.endswith("!")}
        files = {name for name, value in parameters.items() if isinstance(value, tuple)}
        for name in required - parameters.keys():
            self.violations.append(f"{method} needs {name}")
        for name in list(parameters):
            if name in files and name not in table:  # an upload, which a parameter names as attach://…
                continue
            if name not in table:
                self.violations.append(f"{method} has no parameter {name}")
            elif not self._fits(table[name], parameters, name):
                self.violations.append(f"{method}.{name} is no {table[name]}: {parameters[name]!r:.80}")

    def _fits(self, kind: str, parameters: Json, name: str) -> bool:
        value = parameters[name]
        if kind == "file":
            if isinstance(value, str) and value.startswith("attach://"):
                parameters[name] = parameters.get(value.removeprefix("attach://"))
            return isinstance(parameters[name], tuple)
        if kind == "str":
            return isinstance(value, str)
        try:
            parsed = json.loads(value)
        except (ValueError, TypeError):
            return False
        parameters[name] = parsed
        return isinstance(parsed, {"int": int, "bool": bool, "array": list, "object": dict}[kind])

    async def _getMe(self, _: Json) -> Json:  # noqa: N802
        return {**BOT, "has_topics_enabled": self.forums}

    async def _getUpdates(self, parameters: Json) -> list[Json]:  # noqa: N802
        offset = parameters.get("offset", self._confirmed)
        self._confirmed = max(self._confirmed, offset)
        ends = time.monotonic() + parameters.get("timeout", 0)
        while True:
            self._new_update.clear()
            waiting = [update for update in self.updates if update["update_id"] >= offset]
            if waiting or time.monotonic() >= ends:
                return waiting[: parameters.get("limit", 100)]
            with suppress(TimeoutError):
                await asyncio.wait_for(self._new_update.wait(), max(ends - time.monotonic(), 0.01))

    async def _setMyCommands(self, _: Json) -> bool:  # noqa: N802
        return True

    async def _deleteWebhook(self, _: Json) -> bool:  # noqa: N802
        return True

    async def _setWebhook(self, parameters: Json) -> bool:  # noqa: N802
        self.webhook = (parameters["url"], parameters.get("secret_token", ""))
        return True

    async def _sendMessage(self, parameters: Json) -> Json:  # noqa: N802
        sent = self._new_message(parameters)
        sent.text, sent.html = _parse(parameters), parameters["text"]
        sent.buttons = parameters.get("reply_markup", {}).get("inline_keyboard", [])
        for button in (button for row in sent.buttons for button in row):
            if not 1 <= len(button["callback_data"].encode()) <= 64:
                raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
        sent.reply_to = parameters.get("reply_parameters", {}).get("message_id")
        return self._keep(sent)

    async def _sendMessageDraft(self, parameters: Json) -> bool:  # noqa: N802
        if parameters["chat_id"] < 0 or not parameters["draft_id"]:
            raise Refusal(400, "Bad Request: drafts are for private chats")
        self.drafts.append(_parse(parameters))
        return True

    async def _editMessageText(self, parameters: Json) -> Json:  # noqa: N802
        sent = self.sent.get((parameters["chat_id"], parameters["message_id"]))
        if sent is None:
            raise Refusal(400, "Bad Request: message to edit not found")
        if self.edits_refused:
            raise Refusal(400, "Bad Request: message can't be edited")
        text = _parse(parameters)
        if (text, parameters["text"]) == (sent.text, sent.html):
            raise Refusal(400, "Bad Request: message is not modified: specified new message content is the same")
        sent.text, sent.html, sent.edits = text, parameters["text"], sent.edits + 1
        return self._as_json(sent)

    async def _editMessageReplyMarkup(self, parameters: Json) -> Json:  # noqa: N802
        sent = self.sent[parameters["chat_id"], parameters["message_id"]]
        sent.buttons = parameters.get("reply_markup", {}).get("inline_keyboard", [])
        return self._as_json(sent)

    async def _deleteMessage(self, parameters: Json) -> bool:  # noqa: N802
        return self.sent.pop((parameters["chat_id"], parameters["message_id"]), None) is not None

    async def _sendPhoto(self, parameters: Json) -> Json:  # noqa: N802
        return self._send_file(parameters, "photo")

    async def _sendDocument(self, parameters: Json) -> Json:  # noqa: N802
        return self._send_file(parameters, "document")

    async def _sendChatAction(self, parameters: Json) -> bool:  # noqa: N802
        self._check_chat(parameters["chat_id"])
        return True

    async def _setMessageReaction(self, parameters: Json) -> bool:  # noqa: N802
        emoji = [reaction["emoji"] for reaction in parameters.get("reaction", [])]
        if not set(emoji) <= _REACTIONS:
            raise Refusal(400, "Bad Request: REACTION_INVALID")
        if (sent := self.sent.get((parameters["chat_id"], parameters["message_id"]))) is not None:
            sent.reactions = emoji
        return True

    async def _createForumTopic(self, parameters: Json) -> Json:  # noqa: N802
        if not self.forums:
            raise Refusal(400, "Bad Request: the chat is not a forum")
        topic = self._next_id()
        self.topics[parameters["chat_id"], topic] = parameters["name"]
        return {"message_thread_id": topic, "name": parameters["name"], "icon_color": 0x6FB9F0}

    async def _editForumTopic(self, parameters: Json) -> bool:  # noqa: N802
        key = (parameters["chat_id"], parameters["message_thread_id"])
        if self.topics.get(key) == parameters["name"]:
            raise Refusal(400, "Bad Request: TOPIC_NOT_MODIFIED")
        self.topics[key] = parameters["name"]
        return True

    async def _answerCallbackQuery(self, _: Json) -> bool:  # noqa: N802
        return True

    async def _getFile(self, parameters: Json) -> Json:  # noqa: N802
        name = parameters["file_id"]
        return {"file_id": name, "file_unique_id": name, "file_size": len(self.files[name]), "file_path": name}

    async def _leaveChat(self, parameters: Json) -> bool:  # noqa: N802
        self.left.add(parameters["chat_id"])
        return True

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["path"]])

    def _send_file(self, parameters: Json, kind: str) -> Json:
        sent = self._new_message(parameters)
        sent.file = parameters[kind]
        return self._keep(sent)

    def _new_message(self, parameters: Json) -> SentMessage:
        chat, topic = parameters["chat_id"], parameters.get("message_thread_id")
        self._check_chat(chat)
        if topic is not None and self.topics.get((chat, topic)) == "deleted":
            topic = None  # Telegram has shown such messages in the main chat
        return SentMessage(self._next_id(), chat, topic, "", "")

    def _check_chat(self, chat: int) -> None:
        if chat in self.left or (chat > 0 and chat not in self.started):
            raise Refusal(403, "Forbidden: bot can't initiate conversation with a user")

    def _keep(self, sent: SentMessage) -> Json:
        self.sent[sent.chat, sent.id] = sent
        return self._as_json(sent)

    def _as_json(self, sent: SentMessage) -> Json:
        kind = {"type": "private", "first_name": "X"} if sent.chat > 0 else {"type": "supergroup", "title": "X"}
        topic = {} if sent.topic is None else {"message_thread_id": sent.topic, "is_topic_message": True}
        base = {"message_id": sent.id, "date": int(time.time()), "chat": {"id": sent.chat, **kind}, "from": BOT}
        return {**base, **topic, "text": sent.text}

    def _next_id(self) -> int:
        self._last_message += 1
        return self._last_message


def _error(code: int, description: str, **parameters: Any) -> web.Response:
    body: Json = {"ok": False, "error_code": code, "description": description}
    if parameters:
        body["parameters"] = parameters
    if code == 502:
        return web.Response(status=502, text="<html>Bad Gateway</html>")
    return web.json_response(body, status=code)


def _parse(parameters: Json) -> str:
    """The text as Telegram shows it; refuses formatting that Telegram does not know."""
    text = parameters["text"]
    if parameters.get("parse_mode") == "HTML":
        open_tags: list[str] = []
        for slash, name in re.findall(r"<(/?)(\w+)[^<>]*>", text):
            if name not in _TAGS:
                raise Refusal(400, f"Bad Request: can't parse entities: unsupported start tag {name}")
            if not slash:
                open_tags.append(name)
            elif not open_tags or open_tags.pop() != name:
                raise Refusal(400, f"Bad Request: can't parse entities: unexpected end tag {name}")
        if open_tags:
            raise Refusal(400, f"Bad Request: can't parse entities: can't find end tag of {open_tags[-1]}")
        text = unescape(re.sub(r"</?\w+[^<>]*>", "", text))
    elif "parse_mode" in parameters:
        raise Refusal(400, "Bad Request: unsupported parse_mode")
    text = text.strip()
    if not text:
        raise Refusal(400, "Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > 4096:
        raise Refusal(400, "Bad Request: message is too long")
    return str(text)


def _entities(text: str) -> list[Json]:
    """Mentions and commands, with offsets in UTF-16."""
    found = [("mention", match) for match in re.finditer(r"@\w+", text)]
    found += [("bot_command", match) for match in re.finditer(r"\A/\w+(@\w+)?", text)]
    return [
        {
            "type": kind,
            "offset": len(text[: match.start()].encode("utf-16-le")) // 2,
            "length": len(match[0].encode("utf-16-le")) // 2,
        }
        for kind, match in found
    ]
