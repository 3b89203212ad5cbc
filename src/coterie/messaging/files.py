"""Files that people send or get, stored in the character's workspace in a folder per room.

Senders choose file names, so a name is only a hint: it is made safe, no link is followed, and no existing file is
replaced. Messages and modes see only paths relative to the workspace.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from coterie.base.errors import DiskFull, ReadOnly
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


@dataclass(frozen=True)
class FileLimits:
    max_bytes: int = 50 * 1024 * 1024
    refused_types: frozenset[str] = frozenset({"application/x-msdownload", "application/x-msdos-program"})
    """Media types that are not accepted: programs that a double click runs."""


class RoomFiles:
    """The files of one character."""

    def __init__(self, workspace: Path, limits: FileLimits | None = None) -> None:
        self._workspace = workspace
        self._limits = limits or FileLimits()

    @property
    def max_bytes(self) -> int:
        return self._limits.max_bytes

    async def save(
        self, room: RoomRef, name: str, chunks: AsyncIterable[bytes], media_type: str = "application/octet-stream"
    ) -> Attachment:
        """Save a file as it arrives. One that is too large or breaks off leaves nothing behind."""
        if media_type.partition(";")[0].strip().lower() in self._limits.refused_types:
            raise BadFile(f"Files of the type {media_type[:60]} are not accepted.", "Send it in another format.")
        folder = self._folder(room)
        file, path = self._create(folder, safe_name(name))
        try:
            with file:
                size = 0
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self._limits.max_bytes:
                        raise BadFile(
                            f"The file is larger than {self._limits.max_bytes / 1e6:.0f} MB.", "Send a smaller one."
                        )
                    self._write(file, chunk, path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        relative = path.relative_to(self._workspace).as_posix()
        return Attachment(name=display_name(name), path=relative, media_type=media_type, size=size)

    async def read(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The content of a regular file inside the workspace, in chunks."""
        with self.open(attachment.path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def open(self, relative: str) -> BinaryIO:
        """Open part by part without following links, so that none can be slipped in between check and open."""
        parts = PurePosixPath(relative).parts
        if not parts or relative.startswith("/") or any(part in ("..", ".", "") for part in parts) or "\0" in relative:
            raise BadFile("This path leads out of the workspace.", "Name a file inside it.")
        try:
            folder = os.open(self._workspace, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for part in parts[:-1]:
                    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                    child = os.open(part, flags, dir_fd=folder)
                    os.close(folder)
                    folder = child
                # Without O_NONBLOCK, opening a named pipe would block forever.
                descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise BadFile(f"There is no file {PurePosixPath(relative).name[:60]!r}.", "Check its name.") from error
        if not _is_file(descriptor, self._limits.max_bytes):
            os.close(descriptor)
            raise BadFile("This cannot be sent: it is no file, or too large.", "Choose another.")
        return os.fdopen(descriptor, "rb")

    def _folder(self, room: RoomRef) -> Path:
        """Created part by part; a link in place of one of them is refused."""
        folder = self._workspace
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for part in (FILES_FOLDER, room_folder_name(room)):
                folder = folder / part
                if folder.is_symlink():
                    raise BadFile(f"{folder.name} is a link to somewhere else.", "Remove it from the workspace.")
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise _write_error(error, folder) from error
        return folder

    def _create(self, folder: Path, name: str) -> tuple[BinaryIO, Path]:
        """A new file of that name, with a number if the name is taken."""
        stem, suffix = _split_suffix(name)
        for number in range(_TRIES):
            # After a few numbers a unique id: counting through thousands of files would be slow.
            counter = "" if number == 0 else f" ({number if number < _NUMBERED_TRIES else new_id()})"
            path = folder / f"{stem}{counter}{suffix}"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise _write_error(error, path) from error
            return os.fdopen(descriptor, "wb"), path
        raise BadFile("There are too many files of this name.", "Rename it.")

    def _write(self, file: BinaryIO, chunk: bytes, path: Path) -> None:
        try:
            file.write(chunk)
        except OSError as error:
            raise _write_error(error, path) from error


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


def _is_file(descriptor: int, max_bytes: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes


def _write_error(error: OSError, path: Path) -> DiskFull | ReadOnly:
    if error.errno == errno.ENOSPC:
        return DiskFull("There is no disk space left for the file.", "Free some, and send it again.")
    return ReadOnly(f"{path.name} cannot be written ({error.strerror}).", "Give yourself write access to that folder.")
