"""Downloads of model files from a real server on loopback that cuts, lies and is slow. L1"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from pathlib import Path

import pytest

from coterie.base.errors import ConfigError, CoterieError, DiskFull
from coterie.llm.downloads import ChecksumMismatch, DownloadError, ModelDownloads
from coterie.llm.local_models import DownloadSource, LocalModels, check_redirect, curated_models, download_source
from tests.model_server import FileServer, serving_file


def tiny_gguf(size: int = 3_000_000, context: int = 2_048) -> bytes:
    """A file with a valid header and no tensors, filled up to a size."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.context_length") + struct.pack("<I", 4) + struct.pack("<I", context),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)
    return head + bytes(range(256)) * ((size - len(head)) // 256)


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def downloads(tmp_path: Path) -> ModelDownloads:
    return ModelDownloads(LocalModels(tmp_path / "models"), sleep=no_sleep)


async def test_l1_a_download_goes_on_after_cuts_and_is_checked(downloads: ModelDownloads) -> None:
    server = FileServer(tiny_gguf())
    server.cut_after = [1_000_000, 0, 500_000]
    with serving_file(server):
        model = await downloads.start(download_source(server.url))
    assert server.ranges == ["", "bytes=1000000-", "bytes=1000000-", "bytes=1500000-"]
    assert model.file.read_bytes() == server.data
    assert model.record.sha256 == server.sha256
    assert (model.name, model.context) == ("other", 2_048)
    (shown,) = downloads.all()
    assert (shown.state, shown.done, shown.total) == ("done", len(server.data), len(server.data))
    assert [file.name for file in downloads.models.folder.iterdir() if "part" in file.name] == []


async def test_l1_a_download_goes_on_after_a_restart(downloads: ModelDownloads) -> None:
    server = FileServer(tiny_gguf())
    with serving_file(server):
        server.cut_after = [700_000, *[0] * 10]
        with pytest.raises(DownloadError, match="lost 5 times in a row"):
            await downloads.start(download_source(server.url))
        again = ModelDownloads(downloads.models, sleep=no_sleep)
        (interrupted,) = again.all()
        assert (interrupted.state, interrupted.done, interrupted.total) == ("failed", 700_000, len(server.data))
        server.cut_after = []
        model = await again.start(interrupted.source)
    assert server.ranges[-1] == "bytes=700000-"
    assert model.file.read_bytes() == server.data


async def test_l1_a_file_that_does_not_match_its_checksum_is_refused_and_deleted(downloads: ModelDownloads) -> None:
    server = FileServer(tiny_gguf())
    server.sha256 = hashlib.sha256(b"another file").hexdigest()
    with serving_file(server):
        with pytest.raises(ChecksumMismatch, match="does not match its checksum, so it was deleted"):
            await downloads.start(download_source(server.url))
        server.announce = False
        with pytest.raises(ChecksumMismatch):
            await downloads.start(download_source(server.url, sha256="0" * 64))
    assert downloads.models.all() == []
    assert list(downloads.models.folder.iterdir()) == []


async def test_l1_a_file_that_is_no_model_is_refused_and_deleted(downloads: ModelDownloads) -> None:
    server = FileServer(b"<html>Please log in</html>")
    with serving_file(server), pytest.raises(DownloadError, match="is not a GGUF model file"):
        await downloads.start(download_source(server.url))
    assert list(downloads.models.folder.iterdir()) == []


async def test_l1_space_is_checked_before_the_first_byte(tmp_path: Path) -> None:
    downloads = ModelDownloads(LocalModels(tmp_path / "models"), free_bytes=lambda _: 501_000_000)
    server = FileServer(tiny_gguf())
    with serving_file(server), pytest.raises(DiskFull, match=r"needs 0\.0 GB, and 0\.5 GB are free"):
        await downloads.start(download_source(server.url))
    assert not list(downloads.models.folder.glob("*.gguf*"))


async def test_l1_a_disk_that_becomes_full_keeps_the_part(
    downloads: ModelDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FileServer(tiny_gguf())
    fill = {"left": 1}
    write = asyncio.to_thread

    async def failing(work: object, *arguments: object) -> object:
        if getattr(work, "__name__", "") == "write":
            fill["left"] -= 1
            if fill["left"] < 0:
                raise OSError(28, "No space left on device")
        return await write(work, *arguments)  # type: ignore[arg-type]

    with serving_file(server):
        monkeypatch.setattr("coterie.llm.downloads.asyncio.to_thread", failing)
        with pytest.raises(DiskFull, match="disk is full"):
            await downloads.start(download_source(server.url))
        monkeypatch.undo()
        (shown,) = downloads.all()
        assert shown.error.startswith("The disk is full. Free some space, then resume the download")
        kept = downloads._part_size("other")
        assert kept > 0
        model = await downloads.start(shown.source)
    assert server.ranges[-1] == f"bytes={kept}-"
    assert model.file.read_bytes() == server.data


async def test_l1_a_cancelled_download_leaves_nothing_and_shows_speed_before(downloads: ModelDownloads) -> None:
    server = FileServer(tiny_gguf(40_000_000))
    server.slow_s = 0.01
    with serving_file(server):
        task = downloads.start(download_source(server.url))
        assert downloads.start(download_source(server.url)) is task  # once at a time
        async with asyncio.timeout(60):
            while not downloads.all()[0].seconds_left:
                await asyncio.sleep(0.01)
        shown = downloads.all()[0]
        assert shown.state == "running"
        assert 0 < shown.done < shown.total
        assert shown.bytes_per_s > 0
        await downloads.cancel("other")
    assert downloads.all() == []
    assert list(downloads.models.folder.iterdir()) == []


async def test_l1_a_file_that_changed_on_the_server_starts_anew(downloads: ModelDownloads) -> None:
    server = FileServer(tiny_gguf())
    with serving_file(server):
        server.cut_after = [700_000, *[0] * 10]
        with pytest.raises(DownloadError):
            await downloads.start(download_source(server.url))
        server.data = tiny_gguf(context=4_096)
        server.sha256 = hashlib.sha256(server.data).hexdigest()
        server.cut_after = []
        model = await downloads.start(download_source(server.url))
    assert model.file.read_bytes() == server.data


@pytest.mark.parametrize(
    "which",
    [
        "no-such-model",
        "http://example.org/model.gguf",
        "ftp://example.org/model.gguf",
        "https://example.org/model.bin",
        "https://example.org/..%2f..%2fetc%2fx.gguf/",
        "https://example.org/.gguf",
        "https://example.org/smollm2.gguf",
        "https://me:word@example.org/model.gguf",
        "://",
    ],
)
def test_l1_an_address_that_cannot_be_a_model_is_refused(which: str) -> None:
    with pytest.raises(ConfigError):
        download_source(which)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/other.gguf",
        "http://127.0.0.1:8000/other.gguf",
        "http://localhost/other.gguf",
        "http://[::1]/other.gguf",
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "http://example.org/other.gguf",
    ],
)
def test_l1_a_download_is_not_sent_on_to_this_machine_or_without_encryption(url: str) -> None:
    source = download_source("https://example.org/other.gguf")
    with pytest.raises(ConfigError, match="sends the download on"):
        check_redirect(source, url)
    check_redirect(source, source.url)
    check_redirect(source, "https://files.example.org/other.gguf")
    check_redirect(download_source(source.url, "0" * 64), "http://example.org/other.gguf")


async def test_l1_each_address_that_a_download_is_sent_on_to_is_checked(
    downloads: ModelDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("coterie.llm.downloads.check_redirect", lambda _, url: asked.append(url))
    first, second = FileServer(b""), FileServer(tiny_gguf())
    with serving_file(second), serving_file(first):
        first.redirect = second.url
        model = await downloads.start(download_source(first.url))
    assert asked == [first.url, second.url]
    assert model.file.read_bytes() == second.data


async def test_l1_a_file_without_a_size_ends_before_the_disk_is_full(tmp_path: Path) -> None:
    free = iter([10**12, 10**12, *[400_000_000] * 100])
    downloads = ModelDownloads(LocalModels(tmp_path / "models"), free_bytes=lambda _: next(free))
    server = FileServer(tiny_gguf(8_000_000))
    server.tell_size = False
    with serving_file(server), pytest.raises(DiskFull):
        await downloads.start(download_source(server.url))
    assert downloads._part_size("other") < 4_000_000


async def test_l1_whatever_fails_is_not_shown_as_running(
    downloads: ModelDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelDownloads, "_fetch", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await downloads.start(download_source("https://example.org/other.gguf"))
    assert [(one.state, one.error.startswith("It failed")) for one in downloads.all()] == [("failed", True)]


def test_l1_names_of_the_list_use_a_mirror_if_there_is_one() -> None:
    first = curated_models()[0]
    assert first.url({}) == f"https://huggingface.co/{first.repository}/resolve/main/{first.file}"
    assert download_source(first.name, environ={"HF_ENDPOINT": "http://127.0.0.1:9/"}) == DownloadSource(
        first.name, f"http://127.0.0.1:9/{first.repository}/resolve/main/{first.file}", first.title, first.licence
    )
    assert download_source("http://10.0.0.1/a/model.gguf", sha256="a" * 64).name == "model"


def test_files_put_into_the_folder_are_found_and_others_are_not(tmp_path: Path) -> None:
    models = LocalModels(tmp_path)
    (tmp_path / "mine.gguf").write_bytes(tiny_gguf())
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not really")
    assert [model.name for model in models.all()] == ["mine"]
    for name in ("../mine", "none", "mine.gguf", ""):
        with pytest.raises(CoterieError):
            models.get(name)
