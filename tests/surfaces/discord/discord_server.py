"""A small Discord of our own: gateway and REST, checking every call against tables of its fields, with faults.

It keeps users, one server with its channels and threads, direct chats and messages, so that a bot can be restarted
against it. Sessions of the gateway can be cut, resumed and invalidated.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.contracts.loopback import Fault

Json = dict[str, Any]
TOKEN = "MTIz.a-token-of-the-bot"
BOT: Json = {"id": "500", "username": "coterie", "discriminator": "0000", "avatar": None, "global_name": "Coterie"}
BOT |= {"bot": True}
APPLICATION, GUILD, CHANNEL, BOT_ROLE = "500", "900", "901", "902"
_EPOCH_MS = 1_420_070_400_000
_CONTENT_FLAG, _MEMBERS_FLAG = 1 << 19, 1 << 15
_INTENTS = {"guilds": 1, "members": 1 << 1, "guild messages": 1 << 9, "direct messages": 1 << 12, "content": 1 << 15}
_MESSAGE = {
    "content": (str, type(None)),
    "nonce": str,
    "enforce_nonce": bool,
    "tts": bool,
    "message_reference": dict,
    "allowed_mentions": dict,
    "components": list,
    "attachments": list,
    "flags": int,
    "embeds": list,
}
_EDIT = {
    name: _MESSAGE[name]
    for name in ("content", "allowed_mentions", "components", "attachments", "flags", "embeds", "tts")
}
_THREAD = {
    "name!": str,
    "auto_archive_duration": int,
    "type!": int,
    "invitable": bool,
    "rate_limit_per_user": (int, type(None)),
}
ROUTES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("GET", r"/users/@me", "me", {}),
    ("GET", r"/oauth2/applications/@me", "application", {}),
    ("GET", r"/gateway", "gateway_address", {}),
    ("GET", r"/users/(\d+)", "user", {}),
    ("POST", r"/users/@me/channels", "open_dm", {"recipient_id!": (str, int)}),
    ("DELETE", r"/users/@me/guilds/(\d+)", "leave_guild", {}),
    ("PUT", r"/applications/(\d+)/commands", "set_commands", {"*": list}),
    ("GET", r"/channels/(\d+)", "channel", {}),
    ("PATCH", r"/channels/(\d+)", "edit_channel", {"name": str}),
    ("GET", r"/channels/(\d+)/messages", "history", {}),
    ("POST", r"/channels/(\d+)/messages", "create_message", _MESSAGE),
    ("PATCH", r"/channels/(\d+)/messages/(\d+)", "edit_message", _EDIT),
    ("PUT", r"/channels/(\d+)/messages/(\d+)/reactions/(.+)/@me", "react", {}),
    ("POST", r"/channels/(\d+)/typing", "typing", {}),
    ("POST", r"/channels/(\d+)/threads", "create_thread", _THREAD),
    ("PUT", r"/channels/(\d+)/thread-members/(\d+)", "add_thread_member", {}),
    ("DELETE", r"/channels/(\d+)/thread-members/@me", "leave_thread", {}),
    ("POST", r"/interactions/(\d+)/([^/]+)/callback", "respond", {"type!": int, "data": dict}),
    ("PATCH", r"/webhooks/(\d+)/([^/]+)/messages/@original", "edit_response", _EDIT),
    ("DELETE", r"/webhooks/(\d+)/([^/]+)/messages/@original", "delete_response", {}),
]


class Refusal(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Session:
    """A session of the gateway; it outlives its connection."""

    id: str
    socket: web.WebSocketResponse | None
    sent: list[Json] = field(default_factory=list)


@dataclass
class Sent:
    """A message of the bot."""

    json: Json
    channel: str
    edits: int = 0
    reactions: list[str] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)
    created: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        return str(self.json["id"])

    @property
    def text(self) -> str:
        return str(self.json["content"])

    @property
    def buttons(self) -> list[Json]:
        return [button for row in self.json["components"] for button in row["components"]]


@dataclass
class DiscordServer:
    token: str = TOKEN
    faults: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """What does not fit Discord's interface."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    sent: dict[str, Sent] = field(default_factory=dict)
    messages: dict[str, list[Json]] = field(default_factory=lambda: defaultdict(list))
    channels: dict[str, Json] = field(default_factory=dict)
    users: dict[str, Json] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of threads."""
    commands: list[Json] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    reads_content: bool = True
    sees_members: bool = False
    edits_refused: bool = False
    private_threads: bool = True
    down: bool = False
    nonce_window_s: float = 300.0
    muted: bool = False
    """The gateway sends nothing, as if the bot were away."""
    sessions: dict[str, Session] = field(default_factory=dict)
    resumed: int = 0
    identified: int = 0
    _nonces: dict[str, Sent] = field(default_factory=dict)
    _interactions: dict[str, tuple[float, Json]] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _last_id: int = 0

    def __post_init__(self) -> None:
        self.channels[CHANNEL] = {
            "id": CHANNEL,
            "type": 0,
            "guild_id": GUILD,
            "name": "general",
            "position": 0,
            "permission_overwrites": [],
            "last_message_id": None,
        }

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_get("/gateway-socket", self._gateway)
        app.router.add_get("/files/{name}/{file}", self._file)
        app.router.add_route("*", "/api{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self._port = runner.addresses[0][1]
        try:
            yield f"http://127.0.0.1:{self._port}/api"
        finally:
            await self.cut()
            await runner.cleanup()

    # --- users ------------------------------------------------------------------------------------------------

    def user(self, name: str) -> Json:
        found = next((user for user in self.users.values() if user["username"] == name), None)
        if found is None:
            number = str(1_000 + len(self.users))
            found = {"id": number, "username": name, "discriminator": "0", "avatar": None, "global_name": name.title()}
            self.users[number] = found
        return found

    def direct_chat(self, user: Json) -> Json:
        found = next((one for one in self.channels.values() if one["type"] == 1 and one["recipients"] == [user]), None)
        if found is None:
            found = {"id": self.next_id(), "type": 1, "recipients": [user], "last_message_id": None}
            self.channels[found["id"]] = found
        return found

    def thread(self, owner: str, name: str, people: list[str], *, private: bool) -> Json:
        """A thread that somebody made, with the bot in it."""
        channel: Json = {
            "id": self.next_id(),
            "type": 12 if private else 11,
            "guild_id": GUILD,
            "parent_id": CHANNEL,
            "owner_id": owner,
            "name": name,
            "message_count": 0,
            "member_count": 0,
            "last_message_id": None,
            "thread_metadata": {
                "archived": False,
                "auto_archive_duration": 1440,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
                "locked": False,
            },
        }
        self.channels[channel["id"]] = channel
        self.members[channel["id"]] = {BOT["id"], *people}
        channel["member_count"] = len(self.members[channel["id"]])
        return channel

    async def write(self, user: Json, channel: Json, text: str, **more: Any) -> Json:
        """A user writes; the gateway tells the bot."""
        mentions = [self._user_json(number) for number in re.findall(r"<@!?(\d+)>", text)]
        message = self._new_message(user, channel, text, mentions=mentions, **more)
        await self.dispatch("MESSAGE_CREATE", self._for_bot(message))
        return message

    async def interact(self, user: Json, channel: Json, kind: int, data: Json, **more: Any) -> None:
        number = self.next_id()
        interaction: Json = {
            "id": number,
            "application_id": APPLICATION,
            "type": kind,
            "data": data,
            "token": f"token-{number}",
            "version": 1,
            "channel_id": channel["id"],
            "channel": channel,
            "attachment_size_limit": 10_485_760,
            "entitlements": [],
            "locale": "en-US",
            "app_permissions": "0",
            **more,
        }
        if "guild_id" in channel:
            member = {
                "user": user,
                "roles": [],
                "joined_at": "2026-01-01T00:00:00+00:00",
                "flags": 0,
                "permissions": "0",
            }
            guild = {"id": GUILD, "locale": "en-US", "features": []}
            interaction |= {"guild_id": GUILD, "member": {**member, "deaf": False, "mute": False}, "guild": guild}
        else:
            interaction["user"] = user
        self._interactions[number] = (time.monotonic(), interaction)
        await self.dispatch("INTERACTION_CREATE", interaction)

    async def slash(self, user: Json, channel: Json, name: str, text: str = "") -> None:
        """A user gives a command; only one that the bot registered can be given."""
        command = next(one for one in self.commands if one["name"] == name)
        options = [{"name": "text", "type": 3, "value": text}] if text else []
        if text and not command.get("options"):
            raise AssertionError(f"/{name} takes nothing")
        await self.interact(user, channel, 2, {"id": command["id"], "name": name, "type": 1, "options": options})

    async def press(self, user: Json, channel: Json, sent: Sent, custom_id: str) -> None:
        data = {"custom_id": custom_id, "component_type": 2}
        await self.interact(user, channel, 3, data, message=sent.json)

    def upload(self, name: str, data: bytes) -> Json:
        number = self.next_id()
        self.files[number] = data
        url = f"http://127.0.0.1:{self._port}/files/{number}/{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
        return {"id": number, "filename": name, "size": len(data), "url": url, "proxy_url": url}

    def in_channel(self, channel: str) -> list[Sent]:
        return [sent for sent in self.sent.values() if sent.channel == channel]

    # --- the gateway ------------------------------------------------------------------------------------------

    async def dispatch(self, kind: str, data: Json) -> None:
        if self.muted:
            return
        for session in self.sessions.values():
            await self._send(session, kind, data)

    async def cut(self) -> None:
        """The connections break; sessions can be resumed."""
        for session in self.sessions.values():
            if session.socket is not None and not session.socket.closed:
                await session.socket.close(code=4000)

    async def close_sessions(self, code: int) -> None:
        for session in list(self.sessions.values()):
            if session.socket is not None and not session.socket.closed:
                await session.socket.close(code=code)
        self.sessions.clear()

    async def _send(self, session: Session, kind: str, data: Json) -> None:
        event = {"op": 0, "t": kind, "s": len(session.sent) + 1, "d": data}
        session.sent.append(event)
        if session.socket is not None and not session.socket.closed:
            with suppress(ConnectionError):  # the client was killed
                await session.socket.send_str(json.dumps(event))

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        if self.down:
            raise web.HTTPServiceUnavailable
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if request.query.get("v") != "10" or request.query.get("encoding") != "json":
            self.violations.append(f"the gateway was asked for {dict(request.query)}")
        await socket.send_str(json.dumps({"op": 10, "d": {"heartbeat_interval": 41_250}}))
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            body = json.loads(message.data)
            if body["op"] == 1:
                await socket.send_str(json.dumps({"op": 11}))
            elif body["op"] == 2:
                await self._identify(socket, body["d"])
            elif body["op"] == 6:
                await self._resume(socket, body["d"])
        return socket

    async def _identify(self, socket: web.WebSocketResponse, data: Json) -> None:
        if data["token"] != self.token:
            await socket.close(code=4004)
            return
        intents = data["intents"]
        wanted = {name for name, bit in _INTENTS.items() if intents & bit}
        if intents & ~sum(_INTENTS.values()) or not {"guilds", "guild messages", "direct messages"} <= wanted:
            self.violations.append(f"intents {intents}")
        if ("content" in wanted and not self.reads_content) or ("members" in wanted and not self.sees_members):
            await socket.close(code=4014)
            return
        self.identified += 1
        for session in [*self.sessions.values()]:
            if session.socket is None or session.socket.closed:
                del self.sessions[session.id]
        session = Session(f"session-{self.identified}", socket)
        self.sessions[session.id] = session
        ready: Json = {"v": 10, "user": BOT, "guilds": [], "session_id": session.id}
        ready |= {"resume_gateway_url": f"ws://127.0.0.1:{self._port}/gateway-socket"}
        ready |= {"application": {"id": APPLICATION, "flags": self._flags()}}
        is_in = GUILD not in self.left
        ready["guilds"] = [{"id": GUILD, "unavailable": True}] if is_in else []
        await self._send(session, "READY", ready)
        if is_in:
            await self._send(session, "GUILD_CREATE", self._guild())

    async def _resume(self, socket: web.WebSocketResponse, data: Json) -> None:
        session = self.sessions.get(data["session_id"])
        if session is None or data["token"] != self.token:
            await socket.send_str(json.dumps({"op": 9, "d": False}))
            return
        self.resumed += 1
        session.socket = socket
        for event in session.sent[data["seq"] :]:
            await socket.send_str(json.dumps(event))
        await self._send(session, "RESUMED", {})

    def _guild(self) -> Json:
        own = {"user": BOT, "roles": [BOT_ROLE], "joined_at": "2026-01-01T00:00:00+00:00", "flags": 0}
        everyone = {"id": GUILD, "name": "@everyone", "permissions": "0", "position": 0}
        role = {"id": BOT_ROLE, "name": "Coterie", "permissions": "0", "position": 1, "tags": {"bot_id": BOT["id"]}}
        common = {"color": 0, "hoist": False, "managed": False, "mentionable": False}
        return {
            "id": GUILD,
            "name": "Our server",
            "owner_id": "1",
            "roles": [{**everyone, **common}, {**role, **common}],
            "emojis": [],
            "features": [],
            "members": [{**own, "deaf": False, "mute": False}],
            "member_count": 1_000,
            "channels": [one for one in self.channels.values() if one["type"] == 0],
            "threads": [one for one in self.channels.values() if one["type"] in (11, 12)],
            "stickers": [],
        }

    # --- REST -------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        if self.down:
            return web.Response(status=503, text="<html>upstream</html>")
        is_interaction = path.startswith(("/interactions/", "/webhooks/"))
        if request.headers.get("Authorization") != f"Bot {self.token}" and not is_interaction and path != "/gateway":
            return _answer({"message": "401: Unauthorized", "code": 0}, 401)
        is_bot = request.headers.get("User-Agent", "").startswith("DiscordBot (")
        if not is_bot and not is_interaction and path != "/gateway":  # the library leaves it out there
            self.violations.append(f"{path} without a User-Agent of a bot")
        if path != "/gateway":
            self.calls.append((request.method, path))
        routes = [
            (found, name, fields)
            for method, pattern, name, fields in ROUTES
            if method == request.method and (found := re.fullmatch(pattern, path)) is not None
        ]
        if not routes:
            self.violations.append(f"{request.method} {path} is no route")
            return _answer({"message": "404: Not Found", "code": 0}, 404)
        match, name, fields = routes[0]
        body, files = await self._body(request, name, fields)
        fault = self.faults.pop(0) if self.faults and name in ("create_message", "edit_message") else None
        if fault == "patience":
            headers = {"Retry-After": "0.01", "Via": "1.1 google", "X-RateLimit-Scope": "user"}
            return _answer(
                {"message": "You are being rate limited.", "retry_after": 0.01, "global": False}, 429, headers
            )
        if fault == "hung up":
            return web.Response(status=503, text="<html>upstream</html>")
        if fault == "refused":
            return _answer({"message": "Invalid Form Body", "code": 50_035}, 400)
        try:
            result = await getattr(self, f"_{name}")(*match.groups(), body=body, files=files, query=request.query)
        except Refusal as refusal:
            return _answer({"message": str(refusal), "code": refusal.code}, refusal.status)
        if fault == "stuck after taking":
            await asyncio.sleep(3600)
        if fault == "taken, then hung up" and request.transport is not None:
            request.transport.close()
        return _answer(result) if result is not None else web.Response(status=204)

    async def _body(
        self, request: web.Request, name: str, fields: dict[str, Any]
    ) -> tuple[Any, list[tuple[str, bytes]]]:
        files: list[tuple[str, bytes]] = []
        body: Any = {}
        if request.content_type == "multipart/form-data":
            form = await request.post()
            for key, value in form.items():
                if isinstance(value, web.FileField):
                    if not re.fullmatch(r"files\[\d+\]", key):
                        self.violations.append(f"{name}: a file called {key}")
                    files.append((value.filename, value.file.read()))
                else:
                    body = json.loads(str(value))
        elif request.can_read_body:
            if request.headers.get("Content-Type") != "application/json":
                self.violations.append(f"{name} with content type {request.headers.get('Content-Type')}")
            body = await request.json()
        if "*" in fields:
            if not isinstance(body, fields["*"]):
                self.violations.append(f"{name} is no {fields['*']}")
            return body, files
        known = {one.rstrip("!"): kind for one, kind in fields.items()}
        for field_name in (one[:-1] for one in fields if one.endswith("!")):
            if field_name not in body:
                self.violations.append(f"{name} needs {field_name}")
        for field_name, value in body.items():
            if field_name not in known:
                self.violations.append(f"{name} has no {field_name}")
            elif not isinstance(value, known[field_name]) or (known[field_name] is int and isinstance(value, bool)):
                self.violations.append(f"{name}.{field_name} is {value!r:.80}")
        return body, files

    async def _me(self, **_: Any) -> Json:
        return BOT

    async def _application(self, **_: Any) -> Json:
        owner = {"id": "1", "username": "owner", "discriminator": "0", "avatar": None}
        base = {"id": APPLICATION, "name": "Coterie", "description": "", "icon": None, "owner": owner, "summary": ""}
        return {**base, "bot_public": False, "bot_require_code_grant": False, "verify_key": "", "flags": self._flags()}

    def _flags(self) -> int:
        return _CONTENT_FLAG * self.reads_content | _MEMBERS_FLAG * self.sees_members

    async def _gateway_address(self, **_: Any) -> Json:
        return {"url": f"ws://127.0.0.1:{self._port}/gateway-socket"}

    async def _user(self, number: str, **_: Any) -> Json:
        return self._user_json(number)

    def _user_json(self, number: str) -> Json:
        if number == BOT["id"]:
            return BOT
        if number not in self.users:
            raise Refusal(404, 10_013, "Unknown User")
        return self.users[number]

    async def _open_dm(self, body: Json, **_: Any) -> Json:
        return self.direct_chat(self._user_json(str(body["recipient_id"])))

    async def _leave_guild(self, number: str, **_: Any) -> None:
        self.left.add(number)

    async def _set_commands(self, _application: str, body: list[Json], **_: Any) -> list[Json]:
        for command in body:
            options = command.get("options", [])
            if not re.fullmatch(r"[a-z]{1,32}", command["name"]) or not 1 <= len(command["description"]) <= 100:
                self.violations.append(f"command {command}")
            if len(options) > 25 or any(not 1 <= len(option["description"]) <= 100 for option in options):
                self.violations.append(f"command {command}")
        if len(body) > 100:
            raise Refusal(400, 30_032, "Maximum number of application commands reached")
        self.commands = [{**one, "id": str(2_000 + n), "application_id": APPLICATION} for n, one in enumerate(body)]
        return [{**one, "version": "1"} for one in self.commands]

    async def _channel(self, number: str, **_: Any) -> Json:
        return self._get_channel(number)

    def _get_channel(self, number: str) -> Json:
        if number not in self.channels:
            raise Refusal(404, 10_003, "Unknown Channel")
        if number in self.left:
            raise Refusal(403, 50_001, "Missing Access")
        return self.channels[number]

    async def _edit_channel(self, number: str, body: Json, **_: Any) -> Json:
        channel = self._get_channel(number)
        channel["name"] = body["name"]
        await self.dispatch("THREAD_UPDATE", channel)
        await self._system(BOT, channel, 4, body["name"])
        return channel

    async def _history(self, number: str, query: Any, **_: Any) -> list[Json]:
        self._get_channel(number)
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise Refusal(400, 50_035, "Invalid Form Body")
        found = self.messages[number]
        if "after" in query:  # the oldest after that, and the newest of them first
            found = [one for one in found if int(one["id"]) > int(query["after"])][:limit]
        elif "before" in query:
            found = [one for one in found if int(one["id"]) < int(query["before"])][-limit:]
        else:
            found = found[-limit:]
        return [self._for_bot(one) for one in reversed(found)]

    async def _create_message(self, number: str, body: Json, files: list[tuple[str, bytes]], **_: Any) -> Json:
        channel = self._get_channel(number)
        content = body.get("content") or ""
        self._check_message(body, files)
        nonce = body.get("nonce")
        if body.get("enforce_nonce") and nonce in self._nonces:
            earlier = self._nonces[nonce]
            if time.monotonic() - earlier.created < self.nonce_window_s:
                return earlier.json
        if not content.strip() and not files:
            raise Refusal(400, 50_006, "Cannot send an empty message")
        reference = body.get("message_reference")
        more: Json = {"components": body.get("components", []), "nonce": nonce}
        if reference is not None:
            more |= {"message_reference": reference, "type": 19}
        message = self._new_message(BOT, channel, content.strip(), **more)
        self.sent[message["id"]] = sent = Sent(message, number, files=files)
        if nonce is not None:
            self._nonces[nonce] = sent
        await self.dispatch("MESSAGE_CREATE", message)
        return message

    def _check_message(self, body: Json, files: list[tuple[str, bytes]]) -> None:
        if len((body.get("content") or "").encode("utf-16-le")) // 2 > 2_000:
            raise Refusal(400, 50_035, "Invalid Form Body: Must be 2000 or fewer in length.")
        if body.get("nonce") is not None and (len(body["nonce"]) > 25 or not body.get("enforce_nonce")):
            self.violations.append(f"nonce {body['nonce']}")
        if (body.get("allowed_mentions") or {}).get("parse") != []:
            self.violations.append("a message may notify people")
        if len(files) > 10 or len(body.get("attachments", [])) != len(files):
            self.violations.append(f"{len(files)} files, {len(body.get('attachments', []))} named")
        rows = body.get("components", [])
        if len(rows) > 5:
            raise Refusal(400, 50_035, "Invalid Form Body: components")
        for row in rows:
            if row["type"] != 1 or not 1 <= len(row["components"]) <= 5:
                self.violations.append(f"row {row}")
            for button in row["components"]:
                if button["type"] != 2 or not 1 <= len(button["label"]) <= 80 or len(button["custom_id"]) > 100:
                    self.violations.append(f"button {button}")

    async def _edit_message(
        self, number: str, message: str, body: Json, files: list[tuple[str, bytes]], **_: Any
    ) -> Json:
        self._get_channel(number)
        if message not in self.sent:
            raise Refusal(403, 50_005, "Cannot edit a message authored by another user")
        if self.edits_refused:
            raise Refusal(403, 50_001, "Missing Access")
        self._check_message({"allowed_mentions": {"parse": []}, **body}, files)
        sent = self.sent[message]
        if "content" in body:
            if not (body["content"] or "").strip():
                raise Refusal(400, 50_006, "Cannot send an empty message")
            sent.json["content"], sent.edits = body["content"].strip(), sent.edits + 1
        if "components" in body:
            sent.json["components"] = body["components"]
        if "attachments" in body:
            sent.files = files
        return sent.json

    async def _react(self, number: str, message: str, emoji: str, **_: Any) -> None:
        if not any(one["id"] == message for one in self.messages[number]):
            raise Refusal(404, 10_008, "Unknown Message")
        if message in self.sent:
            self.sent[message].reactions.append(emoji)

    async def _typing(self, number: str, **_: Any) -> None:
        self._get_channel(number)

    async def _create_thread(self, number: str, body: Json, **_: Any) -> Json:
        if self._get_channel(number)["type"] != 0 or not 1 <= len(body["name"]) <= 100:
            raise Refusal(400, 50_024, "Cannot execute action on this channel type")
        if body["type"] == 12 and not self.private_threads:
            raise Refusal(403, 50_013, "Missing Permissions")
        thread = self.thread(BOT["id"], body["name"], [], private=body["type"] == 12)
        await self.dispatch("THREAD_CREATE", {**thread, "newly_created": True})
        return thread

    async def _add_thread_member(self, number: str, user: str, **_: Any) -> None:
        channel = self._get_channel(number)
        self.members[number].add(self._user_json(user)["id"])
        channel["member_count"] = len(self.members[number])

    async def _leave_thread(self, number: str, **_: Any) -> None:
        self._get_channel(number)
        self.left.add(number)

    async def _respond(self, number: str, token: str, body: Json, query: Any, **_: Any) -> Json:
        since, interaction = self._interactions[number]
        if time.monotonic() - since > 3.0:
            self.violations.append("an interaction was acknowledged too late")
            raise Refusal(404, 10_062, "Unknown interaction")
        if token != interaction["token"] or body["type"] not in {2: (4, 5), 3: (4, 5, 6, 7)}[interaction["type"]]:
            self.violations.append(f"a response of type {body['type']} to {interaction['type']}")
        if number in self._answered:
            raise Refusal(400, 40_060, "Interaction has already been acknowledged.")
        self._answered.add(number)
        return {"interaction": {"id": number, "type": interaction["type"], "response_message_loading": True}}

    async def _edit_response(self, _application: str, token: str, body: Json, **_: Any) -> Json:
        interaction = self._acknowledged(token)
        sent = self.sent[interaction["message"]["id"]]
        sent.json["components"] = body.get("components", sent.json["components"])
        return sent.json

    async def _delete_response(self, _application: str, token: str, **_: Any) -> None:
        self._acknowledged(token)

    def _acknowledged(self, token: str) -> Json:
        number = token.removeprefix("token-")
        if number not in self._answered:
            self.violations.append("a response was changed before it was given")
        return self._interactions[number][1]

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    # --- messages ---------------------------------------------------------------------------------------------

    async def _system(
        self, user: Json, channel: Json, kind: int, text: str, mentions: list[Json] | None = None
    ) -> None:
        message = self._new_message(user, channel, text, type=kind, mentions=mentions or [])
        await self.dispatch("MESSAGE_CREATE", self._for_bot(message))

    async def change_member(self, channel: Json, user: Json, *, joins: bool) -> None:
        """Somebody is added to a thread or leaves it, which Discord says in a message of its own."""
        members = self.members[channel["id"]]
        members.add(user["id"]) if joins else members.discard(user["id"])
        channel["member_count"] = len(members)
        await self._system(user, channel, 1 if joins else 2, "", [user])

    async def rename(self, user: Json, channel: Json, title: str) -> None:
        channel["name"] = title
        await self.dispatch("THREAD_UPDATE", channel)
        await self._system(user, channel, 4, title)

    def _new_message(self, user: Json, channel: Json, text: str, **more: Any) -> Json:
        message: Json = {
            "id": self.next_id(),
            "type": 0,
            "channel_id": channel["id"],
            "author": user,
            "content": text,
            "timestamp": "2026-01-01T00:00:00+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": re.findall(r"<@&(\d+)>", text),
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "components": [],
            **more,
        }
        if "guild_id" in channel:
            message["guild_id"] = GUILD
        channel["last_message_id"] = message["id"]
        self.messages[channel["id"]].append(message)
        return message

    def _for_bot(self, message: Json) -> Json:
        """Without its content, if the bot may read only what is for it."""
        is_for_bot = "guild_id" not in message or BOT in message["mentions"] or message["author"]["id"] == BOT["id"]
        return message if self.reads_content or is_for_bot else {**message, "content": "", "attachments": []}

    def next_id(self) -> str:
        self._last_id = max(self._last_id + 1, (int(time.time() * 1000) - _EPOCH_MS) << 22)
        return str(self._last_id)


def _answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """The library compares the content type exactly."""
    return web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json", headers=headers or {}
    )
