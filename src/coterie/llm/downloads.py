"""Downloads of model files: resumed after a cut, checked against a checksum, limited by the free space of the disk.

The bytes are written to `NAME.gguf.part`; what is known about them is beside it, so that a download goes on after a
restart. The file takes its place only when it is complete, matches its checksum and has a readable header.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import re
import shutil
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coterie.base.errors import ConfigError, CoterieError, DiskFull, StorageError
from coterie.base.logging import get_logger
from coterie.base.paths import fsync_path, write_atomic
from coterie.base.supervisor import run_once
from coterie.base.values import is_loopback_url, parse_int64
from coterie.llm.local_models import DownloadSource, LocalModel, LocalModels, ModelRecord, check_redirect

if TYPE_CHECKING:
    import httpx

_log = get_logger(__name__)
_CHUNK = 1024 * 1024
_MAX_CUTS = 5
"""Attempts in a row that bring no further byte."""
_RETRY_S = 1.0
_TIMEOUT_S = 30.0
_RESERVED_BYTES = 500_000_000
"""Free space that a download leaves on the disk."""
_SPEED_WINDOW_S = 10.0
_SHA256 = re.compile(r'^(?:W/)?"?([0-9a-f]{64})"?$', re.IGNORECASE)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")

DownloadState = Literal["waiting", "running", "checking", "done", "failed", "cancelled"]


class DownloadError(CoterieError):
    """A model could not be downloaded."""

    http_status = 502


class ChecksumMismatch(DownloadError):
    """The file is not the one that was promised; it was deleted."""


class _Cut(Exception):
    """The connection ended before the file did."""


@dataclass
class Download:
    """A running or ended download, as a page shows it."""

    source: DownloadSource
    state: DownloadState = "waiting"
    done: int = 0
    total: int = 0
    """In bytes; 0 while it is not known."""
    error: str = ""
    resumed_from: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64), repr=False)

    def note(self, now: float) -> None:
        self._samples.append((now, self.done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _SPEED_WINDOW_S:
            self._samples.popleft()

    @property
    def bytes_per_s(self) -> float:
        if self.state != "running" or len(self._samples) < 2:
            return 0.0
        (since, before), (now, done) = self._samples[0], self._samples[-1]
        return (done - before) / (now - since) if now > since else 0.0

    @property
    def seconds_left(self) -> float | None:
        speed = self.bytes_per_s
        return (self.total - self.done) / speed if speed > 0 and self.total else None

    @property
    def active(self) -> bool:
        return self.state in ("waiting", "running", "checking")


@dataclass
class _Part:
    """What is known about the bytes in a part file."""

    url: str
    etag: str = ""
    sha256: str = ""
    total: int = 0

    @classmethod
    def read(cls, file: Path) -> _Part | None:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            return cls(str(data["url"]), str(data["etag"]), str(data["sha256"]), int(data["total"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, file: Path) -> None:
        write_atomic(file, json.dumps(vars(self)).encode(), durable=False)


class ModelDownloads:
    """Starts and cancels downloads; each file is downloaded once at a time."""

    def __init__(
        self,
        models: LocalModels,
        *,
        free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.models = models
        self._free_bytes = free_bytes
        self._sleep = sleep
        self._downloads: dict[str, Download] = {}
        self._tasks: dict[str, asyncio.Task[LocalModel]] = {}

    def all(self) -> list[Download]:
        """Running and recently ended downloads, and interrupted ones that can go on."""
        known = dict(self._downloads)
        for file in sorted(self.models.folder.glob("*.gguf.part")):
            name = file.name.removesuffix(".gguf.part")
            if name not in known and (part := _Part.read(self._part_info(name))) is not None:
                error = "The download was interrupted. Resume it, or cancel it to delete the part."
                source = DownloadSource(name, part.url, sha256=part.sha256)
                known[name] = Download(source, "failed", file.stat().st_size, part.total, error)
        return list(known.values())

    def start(
        self, source: DownloadSource, then: Callable[[LocalModel], Awaitable[None]] | None = None
    ) -> asyncio.Task[LocalModel]:
        """Download in the background, going on with what is already there; `then` is called with the model.

        A download of this file that runs already is returned.
        """
        if (task := self._tasks.get(source.name)) is not None and not task.done():
            return task
        download = self._downloads[source.name] = Download(source)
        task = run_once(f"download of {source.name}", self._run(download, then))
        self._tasks[source.name] = task
        return task

    async def cancel(self, name: str) -> None:
        """Stop a download and delete what it has brought."""
        task = self._tasks.pop(name, None)
        if task is not None and not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, CoterieError):
                await task
        self._discard(name)
        self._downloads.pop(name, None)

    async def close(self) -> None:
        """Stop all downloads. What they have brought is kept, and they can go on later."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, download: Download, then: Callable[[LocalModel], Awaitable[None]] | None) -> LocalModel:
        try:
            model = await self._download(download)
            if then is not None:
                await then(model)
            download.state = "done"
            return model
        except asyncio.CancelledError:
            download.state = "cancelled"
            raise
        except CoterieError as error:
            download.state, download.error = "failed", str(error)
            _log.warning("model_download_failed", model=download.source.name, error=type(error).__name__)
            raise
        except OSError as error:
            found = _disk_error(error)
            download.state, download.error = "failed", str(found)
            raise found from error
        except Exception as error:  # it must not be shown as running for ever
            download.state, download.error = "failed", f"It failed unexpectedly ({type(error).__name__}). Try again."
            raise

    async def _download(self, download: Download) -> LocalModel:
        import httpx

        name = download.source.name
        self.models.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        cuts = 0

        async def check(request: httpx.Request) -> None:
            check_redirect(download.source, str(request.url))

        # Redirects are followed: files of model hubs are on other hosts. No key is sent.
        async with httpx.AsyncClient(
            timeout=_TIMEOUT_S,
            follow_redirects=True,
            trust_env=not is_loopback_url(download.source.url),
            event_hooks={"request": [check]},
        ) as client:
            while True:
                before = self._part_size(name)
                try:
                    part = await self._fetch(client, download)
                    break
                except httpx.InvalidURL as error:
                    raise DownloadError("This is not a web address of a model file.", "Check the address.") from error
                except (httpx.HTTPError, _Cut) as error:
                    cuts = cuts + 1 if self._part_size(name) == before else 1
                    if cuts >= _MAX_CUTS:
                        raise DownloadError(
                            f"The connection for {name} was lost {cuts} times in a row.",
                            "Check the network, then resume the download; what is there is kept.",
                        ) from error
                    await self._sleep(_RETRY_S * cuts)
        download.state = "checking"
        return await asyncio.to_thread(self._finish, download, part)

    async def _fetch(self, client: httpx.AsyncClient, download: Download) -> _Part:
        """Request the rest of the file and write it. `_Cut` if the connection ends early."""
        name, url = download.source.name, download.source.url
        known = _Part.read(self._part_info(name))
        have = self._part_size(name) if known is not None and known.url == url else 0
        headers = {"accept-encoding": "identity"}
        if have and known is not None:
            headers["range"] = f"bytes={have}-"
            if known.etag and not known.etag.startswith("W/"):
                headers["if-range"] = known.etag
        async with client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416 and known is not None and have == known.total:
                download.done = download.total = have
                return known
            if response.status_code == 416:
                self._discard(name)
                raise _Cut
            _check_status(response.status_code, name)
            have, total = _position(response, have)
            part = _Part(url, response.headers.get("etag", ""), _announced_sha256(response, download.source), total)
            if known is not None and have and known.sha256 != part.sha256:
                self._discard(name)  # the file on the server has changed
                raise _Cut
            self._check_space(name, total, have)
            part.write(self._part_info(name))
            download.state, download.total, download.done, download.resumed_from = "running", total, have, have
            await self._write(response, download, have)
        if total and download.done != total:
            raise _Cut
        return part

    async def _write(self, response: httpx.Response, download: Download, have: int) -> None:
        loop = asyncio.get_running_loop()
        pending = bytearray()
        with self._part_file(download.source.name).open("r+b" if have else "wb") as file:
            file.seek(have)
            file.truncate()
            try:
                async for data in response.aiter_raw():
                    if download.total and download.done + len(data) > download.total:
                        what = f"The server sent more than it announced for {download.source.name}."
                        raise DownloadError(what, "Try again.")
                    pending += data
                    download.done += len(data)
                    download.note(loop.time())
                    if len(pending) >= _CHUNK:
                        # Taken out first: after a write that fails halfway, the rest must not be written again.
                        ready, pending = bytes(pending), bytearray()
                        await asyncio.to_thread(file.write, ready)
                        if not download.total:  # it could go on until the disk is full
                            self._check_space(download.source.name, download.done, download.done)
            finally:
                file.write(pending)  # what arrived before a cut is kept

    def _finish(self, download: Download, part: _Part) -> LocalModel:
        name, file = download.source.name, self._part_file(download.source.name)
        fsync_path(file)
        with file.open("rb") as content:
            actual = hashlib.file_digest(content, "sha256").hexdigest()
        if part.sha256 and actual != part.sha256.lower():
            self._discard(name)
            raise ChecksumMismatch(
                f"The file of {name} does not match its checksum, so it was deleted.",
                "Download it again; if that happens again, choose another source.",
            )
        record = ModelRecord(
            url=download.source.url, sha256=actual, title=download.source.title, licence=download.source.licence
        )
        try:
            model = self.models.add(file, name, record)
        except ConfigError as error:
            self._discard(name)
            raise DownloadError(f"{name} is not a GGUF model file, so it was deleted.", "Check its address.") from error
        self._part_info(name).unlink(missing_ok=True)
        return model

    def _check_space(self, name: str, total: int, have: int) -> None:
        free = self._free_bytes(self.models.folder)
        if total and total - have + _RESERVED_BYTES > free:
            raise DiskFull(
                f"{name} needs {(total - have) / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in {self.models.folder} "
                f"({_RESERVED_BYTES / 1e9:.1f} GB are left for everything else).",
                "Free some space, or choose a smaller model.",
            )

    def _part_file(self, name: str) -> Path:
        return self.models.folder / f"{name}.gguf.part"

    def _part_info(self, name: str) -> Path:
        return self.models.folder / f"{name}.part.json"

    def _part_size(self, name: str) -> int:
        try:
            return self._part_file(name).stat().st_size
        except OSError:
            return 0

    def _discard(self, name: str) -> None:
        self._part_file(name).unlink(missing_ok=True)
        self._part_info(name).unlink(missing_ok=True)


def _check_status(status: int, name: str) -> None:
    if status in (200, 206):
        return
    if status in (401, 403):
        raise DownloadError(
            f"The server does not give out {name} without a login (HTTP {status}).",
            "Accept its licence there and download it by hand, or choose another model.",
        )
    if status == 404:
        raise DownloadError(f"There is no file for {name} at this address (HTTP 404).", "Check the address.")
    if status >= 500 or status == 429:
        raise _Cut
    raise DownloadError(f"The server refused {name} (HTTP {status}).", "Check the address, or try again later.")


def _position(response: httpx.Response, have: int) -> tuple[int, int]:
    """Where the answer begins, and the size of the whole file; 0 if the server does not tell."""
    if response.status_code == 206:
        found = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
        if found and parse_int64(found[1]) == have:
            return have, parse_int64(found[2]) or 0
        raise _Cut
    return 0, parse_int64(response.headers.get("content-length", "")) or 0


def _announced_sha256(response: httpx.Response, source: DownloadSource) -> str:
    """The checksum: the known one, else what the server or the hub before it announced."""
    if source.sha256:
        return source.sha256.lower()
    for answer in (*response.history, response):
        for header in ("x-linked-etag", "x-checksum-sha256", "etag"):
            if found := _SHA256.match(answer.headers.get(header, "")):
                return found[1].lower()
    return ""


def _disk_error(error: OSError) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull("The disk is full.", "Free some space, then resume the download; what is there is kept.")
    return StorageError(f"The file could not be written ({error.strerror}).", "Check the folder of the models.")
