"""Reading a sync response: what cannot be read is recorded and skipped, and the cursor moves on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.base.errors import DiskFull
from coterie.eventstore.sqlite.database import KeyStore
from coterie.messaging.errors import PlatformUnreachable
from coterie.messaging.quarantine import SkippedInputs
from coterie.surfaces.matrix import schemas, sync
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from tests.contracts.surface_app import SurfaceApp
from tests.untrusted_values import json_values, mutated

BOT, EVE, ROOM = "@bot:here", "@eve:there", "!room:here"


class ScriptedHomeserver(Homeserver):
    """Answers each sync with the next response; anything else that is asked succeeds without effect."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.responses: list[Any] = []
        self.devices: Json = {}

    async def call(self, method: str, path: str, body: Json | None = None, **_: Any) -> Any:
        if path.endswith("/sync"):
            return self.responses.pop(0)
        return {"device_keys": self.devices} if path.endswith("/keys/query") else {}


class MatrixSync:
    def __init__(self, folder: Path) -> None:
        self.app = SurfaceApp(folder / "coterie.db")
        self.server = ScriptedHomeserver()
        self.crypto = OlmMachine(KeyStore(folder / "keys.db"), self.server, BOT, "DEVICE")
        self.eve = OlmMachine(KeyStore(folder / "eve.db"), self.server, EVE, "PHONE")
        self.server.devices = {EVE: {"PHONE": self.eve.own.keys()}}
        files: Any = lambda _: None  # noqa: E731 - no message here has a file
        inbound = self.app.router.inbound
        self.loop = sync.SyncLoop(self.server, BOT, inbound, files, _nothing, 0.0, self.crypto, _nothing)
        self.number = 0

    async def receive(self, response: Any = None, **parts: Any) -> None:
        """Sync once; by default with a position and enough one-time keys."""
        self.number += 1
        basis = {"next_batch": f"s{self.number}", "device_one_time_keys_count": {"signed_curve25519": 50}}
        self.server.responses = [{**basis, **parts} if response is None else response]
        await self.loop.sync_once()

    async def receive_events(self, *events: Any) -> None:
        await self.receive(rooms={"join": {ROOM: {"timeline": {"events": list(events)}}}})

    @property
    def cursor(self) -> str | None:
        return self.app.router.inbound.inbox.cursor(SURFACE)

    @property
    def texts(self) -> list[str]:
        waiting = self.app.router.inbound.inbox.waiting(room_ref(ROOM))
        return [getattr(message.incoming, "text", "") for message in waiting]

    @property
    def skipped(self) -> SkippedInputs:
        return SkippedInputs(self.app.store)

    async def close(self) -> None:
        self.crypto.close()
        self.eve.close()
        await self.server.close()
        await self.app.close()


async def _nothing(*_: str) -> None:
    """For callbacks that have nothing to do here."""


@pytest.fixture
async def matrix(tmp_path: Path) -> AsyncIterator[MatrixSync]:
    matrix = MatrixSync(tmp_path)
    await matrix.app.create_character()
    await matrix.receive()  # messages are read from the second sync on
    yield matrix
    await matrix.close()


def message(number: int, text: str = "hello", content: Json | None = None) -> Json:
    event = {"type": "m.room.message", "sender": EVE, "event_id": f"$e{number}", "origin_server_ts": 1_000 + number}
    return {**event, "content": {"msgtype": "m.text", "body": text, **(content or {})}}


def to_device(matrix: MatrixSync, ciphertext: Any) -> Json:
    key = matrix.eve.own.curve25519
    content = {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": key, "ciphertext": ciphertext}
    return {"type": "m.room.encrypted", "sender": EVE, "content": content}


async def test_a_reply_reference_that_is_not_one_is_skipped_and_the_next_message_read(matrix: MatrixSync) -> None:
    bad = message(1, content={"m.relates_to": {"m.in_reply_to": "nonsense"}})
    await matrix.receive_events(bad, message(2, "after it"))
    assert matrix.texts == ["after it"] and matrix.cursor == "s2"
    (skipped,) = matrix.skipped.latest()
    assert (skipped.surface, skipped.room, skipped.id) == ("matrix", ROOM, "$e1")
    assert "m.in_reply_to" in skipped.reason and "nonsense" in skipped.excerpt


async def test_a_to_device_message_without_a_body_is_skipped(matrix: MatrixSync) -> None:
    await matrix.receive(to_device={"events": [to_device(matrix, {matrix.crypto.own.curve25519: {}})]})
    assert matrix.cursor == "s2" and matrix.skipped.counts() == {"matrix": 1}


async def test_the_same_unreadable_event_is_recorded_once(matrix: MatrixSync) -> None:
    for _ in range(2):
        await matrix.receive_events({**message(1), "content": "words"}, "not even an event")
    assert matrix.cursor == "s3" and matrix.skipped.counts() == {"matrix": 2}


async def test_half_characters_are_replaced_and_times_out_of_range_are_limited(matrix: MatrixSync) -> None:
    late = {**message(2, "late"), "origin_server_ts": 2**62}
    await matrix.receive_events(message(1, "a\ud800b"), late, message(3, "last"))
    assert matrix.texts == ["a\ufffdb", "late", "last"]


async def test_any_error_while_one_event_is_handled_skips_only_that_event(
    matrix: MatrixSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(room: str, event: Json, own: str) -> Any:
        if event["event_id"] == "$e1":
            raise ZeroDivisionError("by mistake")
        return read(room, event, own)

    read = schemas.read_event
    monkeypatch.setattr(sync, "read_event", fail)
    await matrix.receive_events(message(1), message(2, "after it"))
    assert matrix.texts == ["after it"] and "ZeroDivisionError" in matrix.skipped.latest()[0].reason


async def test_an_error_of_the_storage_does_not_move_the_cursor(
    matrix: MatrixSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("The disk is full.", "Free some space.")

    with monkeypatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(sync, "read_event", full)
        await matrix.receive_events(message(1))
    assert matrix.cursor == "s1" and matrix.skipped.counts() == {}
    await matrix.receive_events(message(1, "again"))
    assert matrix.texts == ["again"]


@pytest.mark.parametrize("response", ["<html>", [], {}, {"next_batch": 7}, {"next_batch": ""}, {"rooms": {}}])
async def test_an_answer_that_is_no_sync_response_is_tried_again(matrix: MatrixSync, response: Any) -> None:
    with pytest.raises(PlatformUnreachable):
        await matrix.receive(response)
    assert matrix.cursor == "s1"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_sync_response_is_read_and_the_cursor_moves(matrix: MatrixSync, data: st.DataObject) -> None:
    own = matrix.crypto.own.curve25519
    secret = {"algorithm": "m.megolm.v1.aes-sha2", "session_id": "x", "ciphertext": "AAAA", "sender_key": "y"}
    request = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM, "session_id": "x"}
    example = {
        "rooms": {
            "join": {
                ROOM: {
                    "timeline": {
                        "events": [
                            message(1, content={"m.relates_to": {"m.in_reply_to": {"event_id": "$e0"}}}),
                            {**message(2), "type": "m.room.encrypted", "content": secret},
                            {**message(3), "type": "m.room.member", "state_key": BOT, "content": {"membership": "x"}},
                            message(4, content={"msgtype": "m.image", "url": "mxc://a/b", "info": {"mimetype": "i/p"}}),
                        ],
                        "limited": True,
                        "prev_batch": "p",
                    },
                    "state": {"events": [{**message(5), "type": "m.room.encryption", "state_key": ""}]},
                }
            },
            "invite": {
                "!i": {
                    "invite_state": {
                        "events": [{"type": "m.room.member", "sender": EVE, "state_key": BOT, "content": {}}]
                    }
                }
            },
        },
        "to_device": {
            "events": [
                to_device(matrix, {own: {"type": 0, "body": "AAAA"}}),
                {"type": "m.room_key_request", "sender": EVE, "content": {"action": "request", "body": request}},
            ]
        },
        "device_lists": {"changed": [EVE], "left": ["@ana:here"]},
        "device_one_time_keys_count": {"signed_curve25519": 50},
        "device_unused_fallback_key_types": ["signed_curve25519"],
    }
    response = data.draw(mutated(example) | json_values)
    cursor = f"s{matrix.number + 1}"
    parts = response if isinstance(response, dict) else {"rooms": response}
    await matrix.receive({**parts, "next_batch": cursor})
    assert matrix.cursor == cursor
