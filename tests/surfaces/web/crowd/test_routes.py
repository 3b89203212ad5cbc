"""C3, C4, C19: the API of the crowd's rooms with hostile requests, and what the page shows of a failed session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from httpx import ASGITransport, AsyncClient
from pydantic import SecretStr

from coterie.eventstore import BusMessage
from coterie.modes.crowd import AuditRecord, ChatAuthor, ChatIdentity, MessageRefused, SenderPost
from coterie.surfaces.web import create_web
from coterie.surfaces.web.crowd import routes
from tests.surfaces.web.conftest import Web

ROOM = "/crowd/late-shift"


def streams(web: Web) -> Path:
    folder = web.home.root / "configs" / "streams"
    folder.mkdir(parents=True)
    return folder


async def test_c9_a_script_with_an_invalid_event_is_refused_with_the_allowed_values(web: Web) -> None:
    script = streams(web) / "tale.toml"
    script.write_text('[[line]]\nat = 0.0\nsay = "hello"\nevent = "Hype Moment!"\n')
    answer = await web.client.post(f"{ROOM}/start", json={"stream": script.name, "speaking": "phrasebook"})
    assert 400 <= answer.status_code < 500
    assert all(part in answer.text for part in ("tale.toml line 4", "event", "chat_question", "Hype Moment!"))
    assert (await web.get(ROOM))["state"] == "quiet"


async def test_c19_a_session_that_fails_is_shown_in_the_api_and_on_the_page(web: Web) -> None:
    sound = streams(web) / "broken.wav"
    sound.write_bytes(b"RIFFnothing")
    await web.post(f"{ROOM}/start", {"stream": sound.name, "speaking": "phrasebook"})
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


async def test_c17_a_replay_on_the_page_needs_a_recording_and_valid_traits(web: Web) -> None:
    traits = dict.fromkeys(("talkativeness", "meme_level", "helpfulness", "contrarian", "warmth"), 0.5)
    body = {"persona": "salt_lamp", **traits, "voice": "short", "speaking": "model"}
    nothing = await web.client.post(f"{ROOM}/what-if", json=body)
    assert nothing.status_code == 422 or "recorded" in nothing.text
    assert 400 <= nothing.status_code < 500
    for wrong in ({"talkativeness": 2}, {"speaking": "nobody"}, {"voice": "x" * 500}, {"persona": "nobody_here"}):
        answer = await web.client.post(f"{ROOM}/what-if", json={**body, **wrong})
        assert 400 <= answer.status_code < 500, answer.text


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
    listening = asyncio.create_task(routes._listen(web.app.store, room, reader, None))
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


async def test_c19_the_overlay_needs_its_own_token_and_no_password(web: Web) -> None:
    crowd = web.app.crowd
    guest = crowd.tokens.issue("late-shift", ChatIdentity("ana"))
    other = crowd.tokens.issue("kitchen-radio", ChatIdentity("overlay", "reader"))
    own = crowd.tokens.issue("late-shift", ChatIdentity("overlay", "reader"))
    locked = create_web(web.app, SecretStr("a long password"))
    async with AsyncClient(transport=ASGITransport(app=locked), base_url="http://127.0.0.1") as client:
        for path in ("/overlay/late-shift", "/overlay/late-shift/live"):
            for token in ("", "nonsense", guest, other):
                assert (await client.get(path, params={"token": token})).status_code == 403
        page = await client.get("/overlay/late-shift", params={"token": own})
        assert page.status_code == 200
        assert "overlay.js" in page.text
        assert (await client.get("/crowd/late-shift")).status_code == 401, "it opens nothing else"
    room = await crowd.room("late-shift")
    with pytest.raises(MessageRefused, match="not one of a person"):
        await room.gateway.post_from(
            crowd.tokens.check(own, "late-shift"), SenderPost(id="p1", room="late-shift", text="hello")
        )


async def test_c19_a_deleted_message_is_gone_for_readers(web: Web) -> None:
    first = await web.post(f"{ROOM}/messages", {"text": "a thing to regret"})
    await web.post(f"{ROOM}/messages", {"text": "a thing to keep"})
    body = {"what": "delete", "message": first["id"], "who": first["author"]["name"]}
    await web.post(f"{ROOM}/rulings", body)
    texts = [message["text"] for message in await web.get(f"{ROOM}/messages")]
    assert texts == ["[deleted by a moderator]", "a thing to keep"]
    assert (await web.get(f"{ROOM}/audit"))[0]["action"] == "deleted"
