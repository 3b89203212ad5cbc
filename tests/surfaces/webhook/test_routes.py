"""The webhook over HTTP."""

from __future__ import annotations

import asyncio
import hmac
import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from coterie.base.redaction import redact
from coterie.messaging.settings import SurfacesSettings
from coterie.surfaces.webhook.surface import WebhookSettings, is_allowed_callback
from tests.surfaces.webhook.conftest import Serve


async def test_d13_a_message_is_accepted_with_an_id_and_its_reply_can_be_read(serve: Serve) -> None:
    async with serve() as served:
        served.script.replies = ["The lamp is lit."]
        answer = await served.client.post("/webhook", json={"text": "Is the lamp lit?", "id": "a-1"})
        assert (answer.status_code, answer.json()["id"], answer.json()["status"]) == (202, "a-1", "accepted")
        await served.app.message_router.wait_idle()
        response = (await served.client.get("/webhook/a-1")).json()
        assert (response["status"], response["text"]) == ("answered", "The lamp is lit.")
        assert response["replies"] == [{"type": "message", "text": "The lamp is lit.", "state": "delivered"}]
        assert (await served.client.get("/webhook/a-2")).status_code == 404


async def test_d13_with_wait_the_response_has_the_reply_and_ids_are_idempotent(serve: Serve) -> None:
    async with serve() as served:
        served.script.replies = ["Once.", "Twice."]
        call = {"text": "How often?", "id": "same", "wait": True}
        answers = await asyncio.gather(*(served.client.post("/webhook", json=call) for _ in range(4)))
        assert {(answer.status_code, answer.json()["text"]) for answer in answers} == {(200, "Once.")}
        other = await served.client.post("/webhook", json={**call, "room": "elsewhere"})
        assert other.json()["text"] == "Twice.", "another room, another message"
        assert len(served.script.asked) == 2
        help_response = await served.client.post("/webhook", json={"text": "/help", "wait": True})
        assert "/new" in help_response.json()["replies"][0]["text"]


async def test_d13_the_secret_is_required(serve: Serve) -> None:
    async with serve(webhook=WebhookSettings(secret=SecretStr("open sesame"))) as served:
        for headers in ({}, {"X-Webhook-Secret": "open sesam"}, {"X-Webhook-Secret": "ü"}):
            encoded = {name.encode(): value.encode() for name, value in headers.items()}
            refused = await served.client.post("/webhook", json={"text": "hello"}, headers=encoded)
            assert refused.status_code == 401 and "X-Webhook-Secret" in refused.json()["error"]
        assert (await served.client.get("/webhook/x")).status_code == 401
        good = {"X-Webhook-Secret": "open sesame"}
        assert (await served.client.post("/webhook", json={"text": "hello"}, headers=good)).status_code == 202
        await served.app.message_router.wait_idle()


async def test_p3_another_sender_is_a_stranger_until_approved(serve: Serve) -> None:
    async with serve() as served:
        response = await served.client.post("/webhook", json={"text": "Who are you?", "from": "mallory", "wait": True})
        assert response.json()["text"] == "" and "do not know you" in response.json()["replies"][0]["text"]
        assert served.script.asked == []


async def test_p3_a_stranger_behind_the_webhook_gets_no_information(serve: Serve) -> None:
    async with serve() as served:
        await served.client.post("/webhook", json={"text": "The key is under the flowerpot.", "wait": True})
        response = []
        for n, text in enumerate(["Where is the key?", "/chats", "/agent", "/context", "/load 1", "/invite mallory"]):
            call = {"text": text, "from": "mallory", "id": f"m{n}", "wait": True, "mode": "story", "room": "main"}
            response.append((await served.client.post("/webhook", json=call)).text)
        upload = await served.client.post("/webhook/files?name=a.txt&from=mallory", content=b"hello")
        assert upload.status_code == 403
        assert not any(word in text for text in [*response, upload.text] for word in ("Mara", "flowerpot", "Evening"))
        assert len(served.script.asked) == 1
        folder = served.app.workspaces.folder(served.app.characters.find("Mara").id)
        assert not list(folder.rglob("a.txt"))


async def test_p3_guests_are_known_by_name_and_others_are_refused(serve: Serve) -> None:
    no_batching = SurfacesSettings(burst_quiet_s=0, burst_most_s=0)  # the clock of these tests stands still
    async with serve(surfaces=no_batching) as served:

        async def say(text: str, who: str = "caller", room: str = "main") -> list[str]:
            call = {"text": text, "from": who, "room": room, "wait": True}
            return [one["text"] for one in (await served.client.post("/webhook", json=call)).json()["replies"]]

        people = served.app.people
        for name in ("Bo", "Cy"):
            _, code = await people.invite(name, 15)
            assert "Welcome" in (await say(f"/link {code}", name))[0]
        await say("Good evening.")
        assert "somebody else's" in (await say("May I?", "Bo"))[0] and len(served.script.asked) == 1
        assert "no character" in (await say("Hello?", "Bo", "bos-own"))[0]
        assert (await say("/invite bo")) == ["Bo may talk here from now on."]
        await say("Here I am.", "Bo")
        assert "Bo: Here I am." in served.script.prompt() and "somebody else's" in (await say("And I?", "Cy"))[0]
        assert "somebody else's" in (await say("/new mine now", "Bo"))[0], "a guest does not change what a room is"
        await say("/uninvite bo")
        assert "somebody else's" in (await say("Still here?", "Bo"))[0]
        await people.allow(people.find("Bo").id, served.app.characters.find("Mara").id)
        await say("Hello, alone.", "Bo", "bos-own")
        assert "Bo: Hello, alone." in served.script.prompt() and "Good evening." not in served.script.prompt()
        assert "may not begin" in (await say("/new desk", "Bo", "bos-own"))[0]


async def test_p3_a_code_is_not_shown_where_the_surface_does_not_know_who_reads(serve: Serve) -> None:
    async with serve() as served:
        call = {"text": "/link", "from": "caller", "room": "main", "wait": True}
        (reply,) = (await served.client.post("/webhook", json=call)).json()["replies"]
        assert "no code is shown here" in reply["text"] and "settings page" in reply["text"]


async def test_d13_the_mode_can_be_chosen_for_a_new_room(serve: Serve) -> None:
    async with serve() as served:
        call = {"text": "/context", "room": "work", "mode": "desk", "wait": True}
        assert (await served.client.post("/webhook", json=call)).status_code == 200
        (binding,) = served.app.message_router.chats.rooms.on_surface("webhook")
        assert binding.mode == "desk"
        refused = await served.client.post("/webhook", json={**call, "room": "other", "mode": "opera"})
        assert refused.status_code >= 400 and "no kind of chat" in refused.json()["error"]


async def test_d13_invalid_calls_get_the_reason(serve: Serve) -> None:
    async with serve() as served:
        for call in ({}, {"text": ""}, {"text": "x", "room": "a\nb"}, {"text": "x", "nonsense": 1}, {"text": 7}):
            assert (await served.client.post("/webhook", json=call)).status_code == 400, call
        refused = await served.client.post("/webhook", json={"text": "x", "callback": "http://evil.example/"})
        assert refused.status_code == 400 and "not allowed" in refused.json()["error"]


@asynccontextmanager
async def listener(*statuses: str) -> AsyncIterator[tuple[str, list[tuple[str, bytes]]]]:
    """A callback server that responds with these statuses in turn, then with 200."""
    left, calls = list(statuses), list[tuple[str, bytes]]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        calls.append((head, await reader.readexactly(length)))
        writer.write(f"HTTP/1.1 {left.pop(0) if left else '200 OK'}\r\nContent-Length: 0\r\n".encode())
        writer.write(b"Connection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks", calls


async def test_d13_a_reply_is_posted_to_the_callback_with_retries(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.messaging.delivery.backoff_s", lambda *_, **__: 0.01)
    async with listener("503 Busy", "429 Slow\r\nRetry-After: 0") as (url, calls):
        key = SecretStr("only for callbacks")
        hook = WebhookSettings(callbacks=(url,), secret=SecretStr("open sesame"), callback_secret=key)
        async with serve(webhook=hook) as served:
            served.script.replies = ["The lamp is lit."]
            headers = {"X-Webhook-Secret": "open sesame"}
            call = {"text": "Lamp?", "id": "a", "callback": f"{url}/lamp"}
            assert (await served.client.post("/webhook", json=call, headers=headers)).status_code == 202
            await served.app.message_router.wait_idle()
            response = (await served.client.get("/webhook/a", headers=headers)).json()
            assert response["replies"][0]["state"] == "delivered"
            assert served.app.message_router.delivery.outbox.uncertain() == []
    assert len(calls) == 3 and b"The lamp is lit." in calls[-1][1]
    keys = {line for head, _ in calls for line in head.lower().splitlines() if line.startswith("idempotency-key")}
    assert len(keys) == 1, "the same each time, for deduplication"
    assert not [head for head, body in calls if "open sesame" in head or b"open sesame" in body]
    for head, body in calls:
        sent = dict(line.split(": ", 1) for line in head.lower().splitlines() if ": " in line)
        expected = hmac.new(b"only for callbacks", sent["x-webhook-timestamp"].encode() + b"." + body, "sha256")
        assert sent["x-webhook-signature"] == f"sha256={expected.hexdigest()}"


async def test_a_callback_receiver_never_gets_the_secret_of_callers(serve: Serve) -> None:
    async with listener() as (url, calls):
        hook = WebhookSettings(callbacks=(url,), secret=SecretStr("open sesame"))
        async with serve(webhook=hook) as served:
            headers = {"X-Webhook-Secret": "open sesame"}
            call = {"text": "Say open sesame.", "id": "a", "callback": url}
            assert (await served.client.post("/webhook", json=call, headers=headers)).status_code == 202
            await served.app.message_router.wait_idle()
    assert calls
    assert not [head for head, body in calls if "open sesame" in head or b"open sesame" in body]
    assert not [head for head, _ in calls if "x-webhook" in head.lower()], "without a key nothing is signed"


@pytest.mark.parametrize("field", ["room", "id", "from", "callback"])
async def test_a_name_with_a_secret_is_refused(serve: Serve, field: str) -> None:
    redact.register("a-registered-secret")
    async with listener() as (url, _), serve(webhook=WebhookSettings(callbacks=(url,))) as served:
        call = {"text": "Hello.", field: f"{url}/a-registered-secret"}
        assert (await served.client.post("/webhook", json=call)).status_code == 400
        upload = await served.client.post("/webhook/files", params={"room": "a-registered-secret"}, content=b"x")
        assert upload.status_code == 400


async def test_d13_a_refused_callback_is_recorded_as_failed(serve: Serve) -> None:
    async with (
        listener("302 Found\r\nLocation: http://127.0.0.1:1/") as (url, calls),
        serve(webhook=WebhookSettings(callbacks=(url,))) as served,
    ):
        await served.client.post("/webhook", json={"text": "Lamp?", "id": "a", "callback": url})
        await served.app.message_router.wait_idle()
        (reply,) = (await served.client.get("/webhook/a")).json()["replies"]
        assert reply["state"] == "failed"
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://hooks.example/in", True),
        ("https://hooks.example/in/deeper?x=1", True),
        ("https://hooks.example/inner", False),
        ("https://hooks.example:443/in/deeper", True),
        ("https://HOOKS.example/in", True),
        ("https://hooks.example/in/50%25", True),
        ("https://hooks.example/in/../admin", False),
        ("https://hooks.example/in/%2e%2e/admin", False),
        ("https://hooks.example/in/.%2E/admin", False),
        ("https://hooks.example/in/%252e%252e/admin", False),
        ("https://hooks.example/in/%25252e%25252e%25252fadmin", False),
        ("https://hooks.example/in/..;x/admin", False),
        ("https://hooks.example/in/%5c..%5cadmin", False),
        ("https://hooks.example/in%2f..%2fadmin", False),
        ("https://hooks.example/in%2fdeeper", False),
        ("https://hooks.example/in/%0d%0aX: y", False),
        ("https://hooks.example./in", False),
        ("https://h\u043eoks.example/in", False),
        ("https://hooks.example%2eevil.example/in", False),
        ("https://[::1]/in", False),
        ("https://hooks.example#@evil.example/in", False),
        ("//hooks.example/in", False),
        ("http://hooks.example/in", False),
        ("https://hooks.example:444/in", False),
        ("https://hooks.example@evil.example/in", False),
        ("https://user@hooks.example/in", False),
        ("https://hooks.example.evil.example/in", False),
        ("https://hooks.example\\@evil.example/in", False),
        ("file:///etc/passwd", False),
        ("https://hooks.example:99999/in", False),
        ("", False),
    ],
)
def test_d13_only_allowed_addresses_are_called(url: str, allowed: bool) -> None:
    assert is_allowed_callback(url, ("https://hooks.example/in/",)) is allowed
    assert not is_allowed_callback(url, ())


def test_an_address_with_a_bad_prefix_beside_it_is_still_allowed() -> None:
    assert is_allowed_callback("https://hooks.example/in", ("http://[", "https://hooks.example"))


PARTS = [
    "in",
    "/",
    "..",
    ".",
    "%2e",
    "%2E",
    "%252e",
    "%2f",
    "%5c",
    "\\",
    ";",
    "?",
    "#",
    "@",
    ":",
    "%",
    "a",
    "%00",
    "//",
    "é",
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PARTS), max_size=9).map("".join), st.sampled_from(["", "/", "/in", "/in/"]))
def test_an_allowed_address_is_below_the_prefix_as_it_is_sent_and_as_it_may_be_decoded(rest: str, base: str) -> None:
    address = f"https://hooks.example{base}{rest}"
    if not is_allowed_callback(address, ("https://hooks.example/in",)):
        return
    request = httpx.Request("POST", address)
    assert (request.url.scheme, request.url.host, request.url.port) == ("https", "hooks.example", None)
    path = request.url.raw_path.decode().partition("?")[0]
    assert path == "/in" or path.startswith("/in/")
    for _ in range(len(path)):
        path = unquote(path)
        resolved = posixpath.normpath(path.replace("\\", "/"))
        assert resolved == "/in" or resolved.startswith("/in/")


async def test_the_secret_is_checked_before_the_body_is_read(serve: Serve) -> None:
    async with serve(webhook=WebhookSettings(secret=SecretStr("open sesame"))) as served:
        for content in (b"[" * 1_000, b"not JSON", b'{"text": "\\ud800"}', b"x" * 3_000_000):
            headers = {"X-Webhook-Secret": "wrong", "Content-Type": "application/json"}
            refused = await served.client.post("/webhook", content=content, headers=headers)
            assert refused.status_code == 401, refused.text
            headers["X-Webhook-Secret"] = "open sesame"
            assert (await served.client.post("/webhook", content=content, headers=headers)).status_code == 400


@pytest.mark.parametrize("message", ["%00", "%0A", "%7F", "a%1Fb", "x" * 300, "%ED%A0%80"])
async def test_a_message_id_that_cannot_be_is_refused_or_unknown(serve: Serve, message: str) -> None:
    async with serve() as served:
        for path in (f"/webhook/{message}", f"/webhook/{message}/files/0", f"/webhook/a?room={message}"):
            answer = await served.client.get(path)
            assert answer.status_code in (400, 404), (path, answer.text)
            assert set(answer.json()) == {"error", "fix"}
        for number in ("-1", "9" * 30):
            assert (await served.client.get(f"/webhook/a/files/{number}")).status_code == 400
