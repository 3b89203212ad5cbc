"""A user with another client library: nio, with its own encryption.

It runs in a thread with an event loop of its own, so that a test can call it synchronously.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine
from functools import cache
from typing import Any, Self, TypeVar

import nio
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment

from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.rooms import ENCRYPTION, ENCRYPTION_RULES
from tests.real.matrix_app import MatrixUser, shown_by
from tests.real.synapse import PASSWORD, Synapse

T = TypeVar("T")
logging.getLogger("nio").setLevel(logging.CRITICAL)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="nio").start()
    return loop


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(120)


async def run_in_loop(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


class EncryptedMatrixUser(MatrixUser):
    """Writes and reads encrypted rooms."""

    client: nio.AsyncClient
    _alone: asyncio.Lock
    _encrypted: dict[str, bool]

    @classmethod
    async def arrive(cls, synapse: Synapse, name: str) -> Self:
        user = await asyncio.to_thread(synapse.register, name)
        return await cls.log_in(synapse, user)

    @classmethod
    async def log_in(cls, synapse: Synapse, user: str) -> Self:
        """A further device of the same person, if there is one already."""
        client = await run_in_loop(_connect(synapse.url, user))
        human = cls(Homeserver(synapse.url, client.access_token), user)
        human.client, human._alone, human._encrypted = client, asyncio.Lock(), {}
        await human.accept_invites()
        return human

    async def room_with(self, bot: str) -> str:
        sealed = {"type": ENCRYPTION, "state_key": "", "content": ENCRYPTION_RULES}
        return await self.server.create_room({"preset": "private_chat", "invite": [bot], "initial_state": [sealed]})

    async def say(self, room: str, text: str, key: str | None = None, more: dict[str, Any] | None = None) -> str:
        self._count += 1
        message_content = {"msgtype": "m.text", "body": text, **(more or {})}
        encrypted = await self._is_encrypted(room)
        async with self._alone:  # nio syncs, claims and shares keys one at a time, or it loses some
            return await run_in_loop(self._send(room, message_content, key or f"{self.user}.{self._count}", encrypted))

    async def _is_encrypted(self, room: str) -> bool:
        if room not in self._encrypted:
            state = await self.server.state(room)
            self._encrypted[room] = any(event["type"] == ENCRYPTION for event in state)
        return self._encrypted[room]

    async def sync(self) -> None:
        async with self._alone:
            await run_in_loop(_sync(self.client))

    async def events(self, room: str) -> list[dict[str, Any]]:
        await self.sync()
        return [self.opened(room, event) for event in await super().events(room)]

    def shown_now(self, events: list[dict[str, Any]], room: str, by: str) -> list[tuple[str, str]]:
        run_blocking(_sync(self.client))
        return shown_by([self.opened(room, event) for event in events], by)

    def opened(self, room: str, event: dict[str, Any]) -> dict[str, Any]:
        """The decrypted event; unchanged without a key."""
        if event["type"] != "m.room.encrypted" or "ciphertext" not in event["content"]:
            return event
        sealed = nio.MegolmEvent.from_dict({**event, "room_id": room})
        assert isinstance(sealed, nio.MegolmEvent), sealed
        try:
            opened = run_blocking(_decrypt(self.client, sealed))
        except nio.EncryptionError:
            return event
        content = opened.source["content"]
        if "m.relates_to" in event["content"]:
            content["m.relates_to"] = event["content"]["m.relates_to"]
        return {**event, "type": opened.source["type"], "content": content}

    async def fetch(self, file: dict[str, Any]) -> bytes:
        async with self.server.download(file["url"]) as parts:
            data = b"".join([part async for part in parts])
        return bytes(decrypt_attachment(data, file["key"]["k"], file["hashes"]["sha256"], file["iv"]))

    async def send_file(self, room: str, name: str, data: bytes, *, damage: bool = False) -> None:
        sealed, keys = encrypt_attachment(data)

        async def chunks() -> AsyncIterator[bytes]:
            yield sealed[:-1] + b"?" if damage else sealed

        uri = await self.server.upload(chunks(), len(sealed), "application/octet-stream", "")
        message_content = {"msgtype": "m.image", "file": {**keys, "url": uri}, "info": {"mimetype": "image/png"}}
        await self.say(room, name, more=message_content)

    async def forget_session(self, room: str) -> None:
        """The next message gets a new key, sent to all known devices."""
        await run_in_loop(_forget(self.client, room))

    async def close(self) -> None:
        await run_in_loop(self.client.close())
        await self.server.close()
        shutil.rmtree(self.client.store_path, ignore_errors=True)

    async def _send(self, room: str, message_content: dict[str, Any], key: str, encrypted: bool) -> str:
        known = self.client.rooms.get(room)
        # A room can be known before its encryption is: what is sent then would be readable.
        if known is None or known.encrypted != encrypted or self.client.should_query_keys:
            await _sync(self.client)
        assert self.client.rooms[room].encrypted == encrypted, "the client has not seen that the room is encrypted"
        answer = await self.client.room_send(
            room, "m.room.message", message_content, key, ignore_unverified_devices=True
        )
        assert isinstance(answer, nio.RoomSendResponse), answer
        return str(answer.event_id)


async def _connect(url: str, user: str) -> nio.AsyncClient:
    config = nio.AsyncClientConfig(store_sync_tokens=False, encryption_enabled=True, backfill_limited_timelines=False)
    client = nio.AsyncClient(url, user, store_path=tempfile.mkdtemp(prefix="coterie-nio-"), config=config)
    answer = await client.login(PASSWORD)
    assert isinstance(answer, nio.LoginResponse), answer
    await _sync(client)
    return client


async def _sync(client: nio.AsyncClient) -> None:
    answer = await client.sync(timeout=0, full_state=client.next_batch == "")
    assert isinstance(answer, nio.SyncResponse), answer
    await client.send_to_device_messages()
    if client.should_upload_keys:
        await client.keys_upload()
    if client.should_query_keys:
        await client.keys_query()
    if client.should_claim_keys:
        await client.keys_claim(client.get_users_for_key_claiming())


async def _decrypt(client: nio.AsyncClient, sealed: nio.MegolmEvent) -> Any:
    return client.decrypt_event(sealed)


async def _forget(client: nio.AsyncClient, room: str) -> None:
    client.invalidate_outbound_session(room)
