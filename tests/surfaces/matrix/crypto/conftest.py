"""Devices on an in-memory homeserver that a test can manipulate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from coterie.eventstore.sqlite.database import KeyStore
from coterie.messaging.quarantine import Quarantine
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import ResponseReader

ROOM = "!room"


class Post:
    """The homeserver's keys and to-device messages."""

    def __init__(self) -> None:
        self.devices: dict[str, dict[str, Json]] = defaultdict(dict)
        self.once: dict[tuple[str, str], dict[str, Json]] = defaultdict(dict)
        self.mail: dict[tuple[str, str], list[Json]] = defaultdict(list)
        self.present: set[str] = set()
        self.said: list[Json] = []
        self.tokens: dict[str, str] = {}
        self.queries = 0


class Line(Homeserver):
    """The client of one device."""

    def __init__(self, post: Post, user: str, device: str) -> None:
        super().__init__("http://127.0.0.1:1")
        self.post, self.user, self.device = post, user, device

    async def upload_keys(self, body: Json) -> None:
        if "device_keys" in body:
            self.post.devices[self.user][self.device] = body["device_keys"]
        self.post.once[self.user, self.device] |= body["one_time_keys"]

    async def query_keys(self, users: Sequence[str]) -> Json:
        self.post.queries += 1
        return {"device_keys": {user: dict(self.post.devices[user]) for user in users}}

    async def claim_keys(self, wanted: Mapping[str, Mapping[str, str]]) -> Json:
        body: Json = {}
        for user, devices in wanted.items():
            for device in devices:
                keys = self.post.once[user, device]
                if keys:
                    name = next(iter(keys))
                    body.setdefault(user, {})[device] = {name: keys.pop(name)}
        return {"one_time_keys": body}

    async def send_to_device(self, kind: str, messages: Json, transaction: str) -> None:
        for user, devices in messages.items():
            for device, content in devices.items():
                for one in self.post.devices[user] if device == "*" else [device]:
                    self.post.mail[user, one].append({"type": kind, "sender": self.user, "content": content})

    async def members(self, room: str) -> dict[str, str]:
        return dict.fromkeys(sorted(self.post.present), "join")

    async def state_event(self, room: str, kind: str) -> Json:
        return {"algorithm": "m.megolm.v1.aes-sha2"}

    async def send(self, room: str, kind: str, content: Json, transaction: str) -> str:
        if transaction not in self.post.tokens:
            self.post.tokens[transaction] = f"$e{len(self.post.said)}"
            event = {"type": kind, "sender": self.user, "content": content, "origin_server_ts": len(self.post.said)}
            self.post.said.append({**event, "event_id": self.post.tokens[transaction]})
        return self.post.tokens[transaction]


class Party:
    """A user's device, which can crash: only its key store survives."""

    def __init__(self, post: Post, folder: Path, user: str, device: str) -> None:
        self.line = Line(post, user, device)
        self.file = folder / f"{user}-{device}.db"
        self.post, self.user, self.device = post, user, device
        self.crypto = OlmMachine(KeyStore(self.file), self.line, user, device)

    async def arrive(self) -> None:
        await self.crypto.own.publish(self.line)
        self.post.present.add(self.user)

    def crash(self) -> None:
        self.crypto.close()
        self.crypto = OlmMachine(KeyStore(self.file), self.line, self.user, self.device)

    async def say(self, text: str, token: str) -> str:
        return await self.crypto.send(ROOM, "m.room.message", {"msgtype": "m.text", "body": text}, token)

    async def collect(self, **more: Any) -> list[tuple[str, Json]]:
        """A sync; its to-device messages are removed from the homeserver afterwards."""
        mail = self.post.mail[self.user, self.device]
        left = {"signed_curve25519": len(self.post.once[self.user, self.device])}
        body = {"to_device": {"events": list(mail)}, "device_one_time_keys_count": left, **more}
        opened = await receive(self.crypto, body)
        mail.clear()
        return opened

    def read(self, event: Json) -> str | None:
        opened = self.crypto.decrypt(ROOM, event)
        return str(opened["content"]["body"]) if opened is not None else None


async def receive(crypto: OlmMachine, body: Json) -> list[tuple[str, Json]]:
    quarantine = Quarantine("matrix")
    sync = ResponseReader(quarantine).sync({"next_batch": "s1", **body})
    return await crypto.receive_sync(sync, quarantine, first=False)


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def party(post: Post, tmp_path: Path) -> Iterator[Callable[[str, str], Party]]:
    made: list[Party] = []

    def make(user: str, device: str) -> Party:
        made.append(Party(post, tmp_path, user, device))
        return made[-1]

    yield make
    for one in made:
        one.crypto.close()
