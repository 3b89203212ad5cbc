"""C3, C4, C19: the API of the crowd's rooms with hostile requests, and what the page shows of a failed session."""

from __future__ import annotations

import asyncio

import pytest

from coterie.eventstore import BusMessage
from coterie.modes.crowd import AuditRecord, ChatAuthor
from coterie.surfaces.web.crowd import routes
from tests.surfaces.web.conftest import Web

ROOM = "/crowd/late-shift"


async def test_c9_a_script_with_an_invalid_event_is_refused_with_the_allowed_values(web: Web) -> None:
    script = web.home.root / "tale.toml"
    script.write_text('[[line]]\nat = 0.0\nsay = "hello"\nevent = "Hype Moment!"\n')
    answer = await web.client.post(f"{ROOM}/start", json={"stream": str(script), "speaking": "phrasebook"})
    assert 400 <= answer.status_code < 500
    assert all(part in answer.text for part in ("tale.toml line 4", "event", "chat_question", "Hype Moment!"))
    assert (await web.get(ROOM))["state"] == "quiet"


async def test_c19_a_session_that_fails_is_shown_in_the_api_and_on_the_page(web: Web) -> None:
    sound = web.home.root / "broken.wav"
    sound.write_bytes(b"RIFFnothing")
    await web.post(f"{ROOM}/start", {"stream": str(sound), "speaking": "phrasebook"})
    async with asyncio.timeout(60):
        while (await web.get(ROOM))["state"] != "quiet":
            await asyncio.sleep(0.02)
    assert (await web.get(ROOM))["error"].startswith("The session ended: ")
    page = await web.client.get(ROOM, headers={"Accept": "text/html"})
    assert "The session ended: " in page.text


async def test_c5_a_file_that_is_not_valid_is_shown_and_does_not_hide_the_other_rooms(web: Web) -> None:
    rooms = web.home.root / "configs" / "rooms"
    rooms.mkdir(parents=True)
    (rooms / "odd.toml").write_text("name = 'odd'\ntitle = 'Odd'\ntempo.tick_s = 0\n")
    assert {room["name"] for room in await web.get("/crowd")} == {"late-shift", "speedrun-lab", "kitchen-radio"}
    page = await web.client.get("/crowd", headers={"Accept": "text/html"})
    assert "rooms/odd.toml" in page.text
    answer = await web.client.get("/crowd/odd")
    assert 400 <= answer.status_code < 500
    assert "tick_s" in answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "x" * 200_000}, 400),
        ({"text": "x" * 600}, 422),
        ({"text": "a\x00b"}, 422),
        ({"text": "a\u202eb"}, 422),
        ({"text": "two\nlines"}, 422),
        ({"text": "hi", "reply_to": "a b"}, 400),
        ({"text": "hi", "id": "\u00fc"}, 400),
        ({"text": "hi", "author": {"name": "salt_lamp", "kind": "system"}}, 400),
    ],
)
async def test_c4_a_hostile_message_is_refused_with_4xx(web: Web, body: dict[str, object], status: int) -> None:
    answer = await web.client.post(f"{ROOM}/messages", json=body)
    assert answer.status_code == status, answer.text
    assert (await web.client.post(f"{ROOM}/messages", json={"text": "still here"})).status_code == 200


async def test_c4_a_lone_surrogate_is_refused_with_4xx(web: Web) -> None:
    headers = {"Content-Type": "application/json"}
    for field in (b'"text": "\\ud800"', b'"text": "hi", "id": "\\ud800"'):
        answer = await web.client.post(f"{ROOM}/messages", content=b"{" + field + b"}", headers=headers)
        assert 400 <= answer.status_code < 500, answer.text


async def test_c4_an_owner_named_like_a_persona_cannot_post_as_it(web: Web) -> None:
    await web.post(f"{ROOM}/messages", {"text": "as myself"})
    answer = await web.client.put("/you", json={"name": "Salt_Lamp"})
    assert answer.status_code == 200, answer.text
    refused = await web.client.post(f"{ROOM}/messages", json={"text": "as the lamp"})
    assert (refused.status_code, "salt_lamp" in refused.text) == (422, True)


async def test_c3_pages_of_messages_are_read_from_anywhere(web: Web) -> None:
    gateway = (await web.app.crowd.room("late-shift")).gateway
    gateway.admission._buckets._burst = 1_000.0
    for number in range(30):
        await web.post(f"{ROOM}/messages", {"text": f"line {number}"})
    gateway._recent = type(gateway._recent)(list(gateway._recent)[-3:], maxlen=3)
    listed = await web.get(f"{ROOM}/messages?before=11&limit=4")
    assert [message["number"] for message in listed] == [7, 8, 9, 10]
    assert await web.get(f"{ROOM}/messages?before=1&limit=4") == []
    assert (await web.client.get(f"{ROOM}/messages?before={'9' * 30}")).status_code == 400


async def test_c3_a_page_that_does_not_read_has_a_bounded_queue(web: Web) -> None:
    room = await web.app.crowd.room("late-shift")
    reader = routes._PageReader(room)
    listening = asyncio.create_task(routes._listen(web.app.store, room, reader))
    record = AuditRecord(
        room="late-shift", ts=1, action="refused", rule="rate", reason="x", author=ChatAuthor(name="a", kind="human")
    )
    async with asyncio.timeout(30):
        for _ in range(50):
            web.app.store.bus.publish([BusMessage("chat.audit.late-shift", record)] * 100)
            await asyncio.sleep(0)
        while reader.outgoing.qsize() < routes._MAX_QUEUED:
            await asyncio.sleep(0.01)
            web.app.store.bus.publish([BusMessage("chat.audit.late-shift", record)] * 100)
    await asyncio.sleep(0.05)
    assert reader.outgoing.qsize() == routes._MAX_QUEUED
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
