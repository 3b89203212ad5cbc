"""Files that people send or get. They belong to the people in the room, and lie in a folder per room.

Senders choose file names, so a name is only a hint: it is made safe, no link is followed, and no existing file is
replaced. Messages and modes see only paths relative to the character's workspace. A file is opened for a room only if
it was stored for that room, or belongs to the same people.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import time
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from coterie.base.errors import DiskFull, ReadOnly, UnsafePath
from coterie.base.folders import Folder, Usage, split_path
from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.messaging.errors import BadFile
from coterie.messaging.protocol import Attachment, RoomRef

FILES_FOLDER = "files"
_CHUNK = 256 * 1024
_MAX_STEM_BYTES, _MAX_SUFFIX_BYTES = 80, 12
_UNSAFE = re.compile(r"[^\w .,()+@=~-]", re.ASCII)
_RESERVED = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_MAX_NAME = 1_000
_NUMBERED_TRIES, _TRIES = 4, 8
_MEASURED_FOR_S = 10.0
"""How long a measured total is used. Files that are stored meanwhile are added to it."""

FolderOf = Callable[[RoomRef, str], str]
"""The folder, in the character's workspace, of the people in a room. The second argument is a sender, who counts as
one of them; it may be empty."""


@dataclass(frozen=True)
class FileLimits:
    max_bytes: int = 50 * 1024 * 1024
    refused_types: frozenset[str] = frozenset({"application/x-msdownload", "application/x-msdos-program"})
    """Media types that are not accepted: programs that a double click runs."""
    total_bytes: int = 1 << 30
    """Of all files in the folder of the same people."""
    total_files: int = 20_000


class RoomFiles:
    """The files of one character."""

    def __init__(
        self,
        workspace: Path,
        limits: FileLimits | None = None,
        folder_of: FolderOf = lambda room, sender: FILES_FOLDER,
    ) -> None:
        self._workspace = workspace
        self._limits = limits or FileLimits()
        self._folder_of = folder_of
        self._totals: dict[str, tuple[float, int, int]] = {}
        """By folder: when it was measured, bytes and files."""

    @property
    def max_bytes(self) -> int:
        return self._limits.max_bytes

    async def save(
        self,
        room: RoomRef,
        name: str,
        chunks: AsyncIterable[bytes],
        media_type: str = "application/octet-stream",
        *,
        sender: str = "",
    ) -> Attachment:
        """Save a file as it arrives. One that is too large or breaks off leaves nothing behind.

        `sender` is the person who sends it; it is needed where the room has no chat yet.
        """
        if media_type.partition(";")[0].strip().lower() in self._limits.refused_types:
            raise BadFile(f"Files of the type {media_type[:60]} are not accepted.", "Send it in another format.")
        folder = self._folder_of(room, sender)
        path = f"{folder}/{room_folder_name(room)}"
        free = await asyncio.to_thread(self._free_bytes, folder)
        with self._open_folder(path) as target:
            file, stored_name = _create(target, safe_name(name))
            try:
                with file:
                    size = 0
                    async for chunk in chunks:
                        size += len(chunk)
                        self._check_size(size, free)
                        _write(file, chunk, stored_name)
            except BaseException:
                with suppress(OSError):
                    target.remove(stored_name)
                raise
        self._add_to_total(folder, size)
        return Attachment(name=display_name(name), path=f"{path}/{stored_name}", media_type=media_type, size=size)

    async def read(self, attachment: Attachment, room: RoomRef, *, sender: str = "") -> AsyncIterator[bytes]:
        """The content of a file for a room, in chunks."""
        with self.open(attachment.path, room, sender=sender) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def open(self, path: str, room: RoomRef, *, sender: str = "") -> BinaryIO:
        """Open a plain file that the people in a room, with its sender, may have."""
        try:
            names = split_path(path)
            if names[-2:-1] != (room_folder_name(room),) and not self._belongs_to_people(path, room, sender):
                raise UnsafePath("This file belongs to other people.", "Name a file of this room.")
            with Folder.open(self._workspace) as workspace:
                file = workspace.open_file(path)
        except UnsafePath as error:
            raise BadFile(error.what, error.fix) from error
        except OSError as error:
            raise BadFile(f"There is no file {path.rpartition('/')[2][:60]!r}.", "Check its name.") from error
        if os.fstat(file.fileno()).st_size > self._limits.max_bytes:
            file.close()
            raise BadFile("This file is too large to be sent.", "Choose another.")
        return file

    def folder_path(self, room: RoomRef, sender: str = "") -> str:
        """The folder, relative to the workspace, where files for a room are stored."""
        return f"{self._folder_of(room, sender)}/{room_folder_name(room)}"

    def _belongs_to_people(self, path: str, room: RoomRef, sender: str) -> bool:
        folder = split_path(self._folder_of(room, sender))
        return split_path(path)[: len(folder)] == folder

    def _open_folder(self, path: str) -> Folder:
        """Created part by part; a link in place of one of them is refused."""
        try:
            with Folder.open(self._workspace, create=True) as workspace:
                return workspace.subfolder(path, create=True, mode=0o700)
        except UnsafePath:
            raise BadFile(
                f"{path.rpartition('/')[2]} is a link to somewhere else.", "Remove it from the workspace."
            ) from None
        except OSError as error:
            raise _write_error(error, path.rpartition("/")[2]) from error

    def _free_bytes(self, folder: str) -> int:
        """How much may be added to a folder; `BadFile` if nothing."""
        measured_at, used, files = self._totals.get(folder, (float("-inf"), 0, 0))
        if time.monotonic() - measured_at > _MEASURED_FOR_S:
            usage = self._measure(folder)
            used, files = usage.bytes, usage.files
            self._totals[folder] = (time.monotonic(), used, files)
        if used >= self._limits.total_bytes or files >= self._limits.total_files:
            raise _full(self._limits)
        return self._limits.total_bytes - used

    def _measure(self, folder: str) -> Usage:
        try:
            with Folder.open(self._workspace) as workspace, workspace.subfolder(folder) as people:
                return people.usage(max_bytes=self._limits.total_bytes, max_files=self._limits.total_files)
        except (OSError, UnsafePath):  # there is none yet, or it is refused when it is opened
            return Usage()

    def _add_to_total(self, folder: str, size: int) -> None:
        measured_at, used, files = self._totals[folder]
        self._totals[folder] = (measured_at, used + size, files + 1)

    def _check_size(self, size: int, free: int) -> None:
        if size > self._limits.max_bytes:
            raise BadFile(f"The file is larger than {self._limits.max_bytes / 1e6:.0f} MB.", "Send a smaller one.")
        if size > free:
            raise _full(self._limits)


def _create(folder: Folder, name: str) -> tuple[BinaryIO, str]:
    """A new file of that name, with a number if the name is taken."""
    stem, suffix = _split_suffix(name)
    for number in range(_TRIES):
        # After a few numbers a unique id: counting through thousands of files would be slow.
        counter = "" if number == 0 else f" ({number if number < _NUMBERED_TRIES else new_id()})"
        try:
            return folder.create_file(f"{stem}{counter}{suffix}"), f"{stem}{counter}{suffix}"
        except FileExistsError:
            continue
        except OSError as error:
            raise _write_error(error, name) from error
    raise BadFile("There are too many files of this name.", "Rename it.")


def _write(file: BinaryIO, chunk: bytes, name: str) -> None:
    try:
        file.write(chunk)
    except OSError as error:
        raise _write_error(error, name) from error


def _full(limits: FileLimits) -> BadFile:
    return BadFile(
        f"There is no room for more files here: at most {limits.total_bytes / 1e6:.0f} MB in"
        f" {limits.total_files} files are kept.",
        "Delete some first; a worker at the desk can do that.",
    )


def safe_name(name: str) -> str:
    """A name that is a plain file name on any operating system."""
    base = unicodedata.normalize("NFKC", redact(name)[:_MAX_NAME]).replace("\\", "/").rpartition("/")[2]
    letters = "".join(letter if unicodedata.category(letter)[0] in "LN" else _replace_unsafe(letter) for letter in base)
    stem, suffix = _split_suffix(letters.strip(" ."))
    stem = _truncate(stem, _MAX_STEM_BYTES).strip(" .") or "file"
    safe = f"{stem}{_truncate(suffix, _MAX_SUFFIX_BYTES).rstrip(' .')}"
    return f"_{safe}" if _RESERVED.match(safe) else safe


def display_name(name: str) -> str:
    """For display only: one line without control characters."""
    return "".join(letter for letter in name[:200] if unicodedata.category(letter)[0] not in "CZ" or letter == " ")


def room_folder_name(room: RoomRef) -> str:
    """The folder of a room; with a hash, because a platform's ids may contain anything."""
    digest = hashlib.sha256(f"{room.surface}\n{room.id}".encode()).hexdigest()[:16]
    return f"{safe_name(room.surface)[:20]}-{digest}"


def _replace_unsafe(letter: str) -> str:
    return "_" if _UNSAFE.match(letter) else letter


def _split_suffix(name: str) -> tuple[str, str]:
    stem, dot, suffix = name.rpartition(".")
    return (stem, f".{suffix}") if dot and stem and suffix else (name, "")


def _truncate(text: str, max_bytes: int) -> str:
    return text.encode()[:max_bytes].decode(errors="ignore")


def _write_error(error: OSError, name: str) -> DiskFull | ReadOnly:
    if error.errno == errno.ENOSPC:
        return DiskFull("There is no disk space left for the file.", "Free some, and send it again.")
    return ReadOnly(f"{name} cannot be written ({error.strerror}).", "Give yourself write access to that folder.")
