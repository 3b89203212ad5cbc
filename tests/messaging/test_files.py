"""Untrusted files: hostile names, links, overwrites and sizes."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.messaging.errors import BadFile
from coterie.messaging.files import FILES_FOLDER, FileLimits, RoomFiles, display_name, room_folder_name, safe_name
from coterie.messaging.protocol import Attachment, Deliverable, OutgoingMessage, OutgoingNotification, RoomRef
from tests.contracts.loopback import Loopback
from tests.contracts.surface_app import SurfaceApp

ROOM = RoomRef(surface="matrix", id="!kitchen:here")
HOSTILE_NAMES = [
    "..", ".", "", "/", "//", "../../etc/passwd", "..\\..\\windows\\system32", "/etc/passwd", "C:\\boot.ini", "con",
    "NUL.txt", "aux", "a\0b", "a\nb", "\u202egnp.exe", "name ", "name.", "...", "~", "-rf", "$(reboot)", "`id`", "a;b",
    "😀" * 300, "x" * 5_000, "ﬁ.txt", "．．/．．/x", "a/../b", "%2e%2e%2f", ".bashrc", "SOUL.md", "../SOUL.md",
    "a" * 250 + ".tar.gz", ".git/config", "files/x", "\ufeff", "a|b", "<script>", '"', "'", "*", "?", "a:b",
]  # fmt: skip


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for chunk in data:
        yield chunk


def outside(root: Path, inside: Path) -> list[str]:
    """Everything under root that is not under inside."""
    found = [path for path in root.rglob("*") if not path.is_relative_to(inside) and path not in inside.parents]
    return sorted(str(path.relative_to(root)) for path in found)


def hostile_names(count: int) -> list[str]:
    rng = random.Random(2026)
    parts = [*HOSTILE_NAMES, "\\", "/", "..", "%00", "\0", "ü", "名", "a", ".txt", " ", "\t", "\r", "\u2028", "\x7f"]
    return ["".join(rng.choice(parts)[: rng.randint(1, 300)] for _ in range(rng.randint(1, 6))) for _ in range(count)]


async def test_p6_ten_thousand_hostile_names_and_nothing_is_written_outside(tmp_path: Path) -> None:
    workspace = tmp_path / "workspaces" / "mara"
    workspace.mkdir(parents=True)
    (workspace / "SOUL.md").write_text("mine")
    files = RoomFiles(workspace)
    paths: set[str] = set()
    for name in [*HOSTILE_NAMES, *hostile_names(10_000 - len(HOSTILE_NAMES))]:
        saved = await files.save(ROOM, name, chunks(b"x"))
        assert saved.path.startswith(f"{FILES_FOLDER}/{room_folder_name(ROOM)}/") and ".." not in saved.path.split("/")
        paths.add(saved.path)
    folder = workspace / FILES_FOLDER / room_folder_name(ROOM)
    assert len(paths) == 10_000 == len(list(folder.iterdir())), "nothing was replaced"
    assert outside(tmp_path, folder) == ["workspaces/mara/SOUL.md"]
    assert (workspace / "SOUL.md").read_text() == "mine"


@given(st.text(max_size=300))
def test_p6_a_safe_name_is_one_plain_short_part_of_a_path(name: str) -> None:
    safe = safe_name(name)
    assert safe and safe not in (".", "..") and not safe.startswith(".") and not safe.endswith((" ", "."))
    assert not set(safe) & set('/\\\0\n\r\t<>:"|?*')
    assert len(safe.encode()) < 128 and Path(safe).name == safe
    assert safe_name(safe) == safe
    assert "\n" not in display_name(name)


def test_p6_a_harmless_name_is_kept() -> None:
    assert safe_name("Bericht März (2).pdf") == "Bericht März (2).pdf"
    assert safe_name("/tmp/photo.JPEG") == "photo.JPEG"
    assert safe_name("nul.txt") == "_nul.txt"


async def test_p6_links_are_not_followed_in_either_direction(tmp_path: Path) -> None:
    workspace, secret = tmp_path / "mara", tmp_path / "secret.txt"
    secret.write_text("do not tell")
    files = RoomFiles(workspace)
    await files.save(ROOM, "a.txt", chunks(b"hello"))
    folder = workspace / FILES_FOLDER / room_folder_name(ROOM)
    (folder / "b.txt").symlink_to(secret)
    saved = await files.save(ROOM, "b.txt", chunks(b"mine"))
    assert saved.path.endswith("b (1).txt") and secret.read_text() == "do not tell"
    (workspace / "out").symlink_to(tmp_path)
    os.mkfifo(workspace / "pipe")
    for path in (
        f"{FILES_FOLDER}/{room_folder_name(ROOM)}/b.txt",
        "out/secret.txt",
        "pipe",
        FILES_FOLDER,
        "../secret.txt",
        "/etc/passwd",
    ):
        with pytest.raises(BadFile):
            files.open(path, ROOM)
    other = RoomRef(surface="matrix", id="!other")
    (workspace / FILES_FOLDER / room_folder_name(other)).symlink_to(tmp_path)
    with pytest.raises(BadFile, match="link"):
        await files.save(other, "c.txt", chunks(b"x"))
    assert not (tmp_path / "c.txt").exists()


async def test_p6_too_large_or_broken_off_leaves_nothing(tmp_path: Path) -> None:
    files = RoomFiles(tmp_path, FileLimits(max_bytes=10))
    with pytest.raises(BadFile, match="larger than"):
        await files.save(ROOM, "big.bin", chunks(b"12345", b"67890", b"!"))

    async def broken() -> AsyncIterator[bytes]:
        yield b"123"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await files.save(ROOM, "half.bin", broken())
    with pytest.raises(BadFile, match="not accepted"):
        await files.save(ROOM, "a.exe", chunks(b"MZ"), "application/x-msdownload")
    assert list((tmp_path / FILES_FOLDER / room_folder_name(ROOM)).iterdir()) == []


async def test_p6_fifty_megabytes_both_ways_in_little_memory(tmp_path: Path) -> None:
    piece = os.urandom(64 * 1024)

    async def large() -> AsyncIterator[bytes]:
        for _ in range(800):
            yield piece

    files = RoomFiles(tmp_path)
    tracemalloc.start()
    try:
        saved = await files.save(ROOM, "film.bin", large(), "video/mp4")
        size = 0
        async for chunk in files.read(saved, ROOM):
            size += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert saved.size == size == 800 * 64 * 1024
    assert peak < 20_000_000
    assert saved == Attachment(name="film.bin", path=saved.path, media_type="video/mp4", size=size)


async def test_p6_a_file_that_is_gone_does_not_hold_up_the_room(tmp_path: Path) -> None:
    app = SurfaceApp(tmp_path / "coterie.db")
    await app.create_character()
    platform = Loopback()
    platform.reconnect(app.router)
    await app.people.link_owner(platform.surface.name, "ana")
    await platform.say("ana", "kitchen", "hello", "k0")
    await app.router.wait_idle()
    room, gone = platform.room_ref("kitchen"), Attachment(name="plan.txt", path="files/gone.txt")

    async def send(outgoing: Deliverable, token: str) -> str:
        if isinstance(outgoing, OutgoingMessage) and outgoing.attachments:
            raise BadFile("There is no file 'gone.txt'.", "Check its name.")
        return await original(outgoing, token)

    original, platform.surface.send = platform.surface.send, send  # type: ignore[method-assign]
    await app.router.notify(OutgoingMessage(room=room, text="Here it is.", attachments=(gone,)), "t1")
    await app.router.notify(OutgoingMessage(room=room, text="", attachments=(gone,)), "t2")
    await app.router.notify(OutgoingNotification(room=room, text="later"), "t3")
    await app.router.wait_idle()
    sentence = "A file could not be sent: There is no file 'gone.txt'. Check its name."
    assert sorted(platform.shown("kitchen")[1:]) == sorted(["Here it is.", sentence, sentence, "later"])
    assert app.router.delivery.outbox.uncertain() == []
    await app.close()
