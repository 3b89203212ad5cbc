from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.characters import portrait_version
from coterie.characters.cards import Card, export_card, import_card
from coterie.characters.identity import Identity
from tests.surfaces.web.conftest import Web


def a_png(width: int = 2, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" + b"\x99\x66\x33" * 2 + b"\0" + b"\x33\x66\x99" * 2)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def a_card(picture: bytes | None = None, files: dict[str, bytes] | None = None, uri: str = "") -> Card:
    card = Identity(name="Mara").to_card()
    document = json.loads(json.dumps(card.document))
    if uri:
        document["data"]["assets"] = [{"type": "icon", "name": "main", "uri": uri, "ext": "png"}]
    return Card.read(document, files or {}, picture)


async def taken_in(web: Web, data: bytes, name: str) -> str:
    answer = await web.client.post("/characters/import", params={"name": name}, content=data)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["character"]["id"])


async def test_the_picture_of_a_card_is_the_portrait(web: Web) -> None:
    character = await taken_in(web, export_card(a_card(a_png()), "png").data, "mara.png")
    answer = await web.client.get(f"/characters/{character}/portrait")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = await web.client.get("/characters", headers={"Accept": "text/html"})
    assert f"/characters/{character}/portrait?of=" in page.text


@pytest.mark.parametrize(
    "data", [b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", b"<html><script>alert(1)</script>", b""]
)
async def test_only_a_picture_is_a_portrait(web: Web, data: bytes) -> None:
    card = a_card(files={"assets/icon/main.png": data}, uri="embeded://assets/icon/main.png")
    character = await taken_in(web, export_card(card, "charx").data, "mara.charx")
    assert (await web.client.get(f"/characters/{character}/portrait")).status_code == 404


async def test_without_a_portrait_initials_are_shown(web: Web) -> None:
    character = (await web.post("/characters", {"name": "Ada Lovelace"}, status=201))["id"]
    assert (await web.client.get(f"/characters/{character}/portrait")).status_code == 404
    assert "<span>AL</span>" in (await web.client.get("/characters", headers={"Accept": "text/html"})).text


async def test_a_ready_made_character_has_a_drawn_portrait_that_runs_nothing(web: Web) -> None:
    shown = (await web.client.get("/characters/new", headers={"Accept": "text/html"})).text
    assert 'src="/characters/ready/maren/portrait"' in shown
    character = (await web.post("/characters/ready/maren", status=201))["id"]
    for path in (f"/characters/{character}/portrait", "/characters/ready/io/portrait"):
        answer = await web.client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
        assert answer.headers["content-security-policy"].endswith("; sandbox")
        assert b"<script" not in answer.content
    assert (await web.client.get("/characters/ready/nobody/portrait")).status_code == 404


async def test_portraits_are_shown_wherever_a_character_is_named(web: Web) -> None:
    character = (await web.post("/characters/ready/maren", status=201))["id"]
    other = (await web.post("/characters", {"name": "Ada Lovelace"}, status=201))["id"]
    for host in (character, other):
        await web.post(f"/characters/{host}/kickoff", {"title": "The lamp"}, status=201)
    page = (await web.client.get("/chats", headers={"Accept": "text/html"})).text
    assert page.count(f'src="/characters/{character}/portrait?of=') == 1
    assert "AL</span>" in page  # by the name, each its own


def test_the_pictures_of_many_characters_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with all characters needs the addresses of their portraits, on the event loop."""
    data, read = export_card(a_card(a_png()), "png").data, list[str]()
    for number in range(50):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "card.png").write_bytes(data)

    def count(data: bytes, name: str) -> object:
        read.append(name)
        return import_card(data, name)

    monkeypatch.setattr("coterie.characters.workspace.import_card", count)
    for _ in range(3):
        assert all(portrait_version(tmp_path / str(number)) is not None for number in range(50))
    assert len(read) == 50


def a_jpeg(width: int, height: int, before: bytes = b"\xff\xe0\x00\x04ab") -> bytes:
    return b"\xff\xd8" + before + b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(20)


def a_webp(kind: bytes, width: int, height: int) -> bytes:
    sizes = {
        b"VP8X": bytes(8) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3],
        b"VP8L": b"\0\0\0\0/" + struct.pack("<I", width - 1 | height - 1 << 14),
        b"VP8 ": bytes(10) + struct.pack("<HH", width, height),
    }
    return b"RIFF\0\0\0\0WEBP" + kind + sizes[kind] + bytes(20)


SIZED: dict[str, Callable[[int, int], bytes]] = {
    "PNG": a_png,
    "JPEG": a_jpeg,
    "WebP": lambda width, height: a_webp(b"VP8X", width, height),
    "WebP, lossless": lambda width, height: a_webp(b"VP8L", width, height),
    "WebP, lossy": lambda width, height: a_webp(b"VP8 ", width, height),
}


@pytest.mark.parametrize("kind", SIZED)
async def test_a_picture_of_very_many_pixels_is_refused(web: Web, kind: str) -> None:
    """A few kilobytes become gigabytes in the browser of everyone who sees them."""
    character = await taken_in(web, export_card(a_card(), "json").data, "mara.json")
    address = f"/characters/{character}/pictures/picture?use=gallery"
    assert (await web.client.post(address, content=SIZED[kind](10_000, 10_000))).status_code == 201
    answer = await web.client.post(address, content=SIZED[kind](16_000, 16_000))
    assert (answer.status_code, "100 million pixels" in answer.json()["error"]) == (422, True)


async def test_a_jpeg_that_hides_its_size_is_refused(web: Web) -> None:
    character = await taken_in(web, export_card(a_card(), "json").data, "mara.json")
    address = f"/characters/{character}/pictures/picture?use=gallery"
    answer = await web.client.post(address, content=a_jpeg(2, 2, b"\xff" * 1_000_000))
    assert answer.status_code == 422


async def test_a_card_with_a_picture_of_very_many_pixels_has_no_portrait(web: Web) -> None:
    character = await taken_in(web, export_card(a_card(a_png(60_000, 60_000)), "png").data, "mara.png")
    assert (await web.client.get(f"/characters/{character}/portrait")).status_code == 404
    assert f"{character}/portrait" not in (await web.client.get(f"/characters/{character}")).text
    answer = await web.client.put(f"/characters/{character}/picture", content=a_png(60_000, 60_000))
    assert (answer.status_code, "100 million pixels" in answer.json()["error"]) == (422, True)
