"""Files both ways: what people send is kept in the character's workspace, under the room it came to. P6

Whoever sends a file chooses its name, so a name is only ever a hint: it is made harmless, never follows a link, never
replaces what is there. The engine and the modes see paths relative to the workspace and nothing else.
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
from coterie.messaging.errors import BadFile
from coterie.messaging.protocol import Attachment, RoomRef

FILES_FOLDER = "files"
_CHUNK = 256 * 1024
_LONGEST_STEM, _LONGEST_ENDING = 80, 12
_HARMLESS = re.compile(r"[^\w .,()+@=~-]", re.ASCII)
_RESERVED = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_MOST_OF_A_NAME = 1_000
_NUMBERS, _TRIES = 4, 8


@dataclass(frozen=True)
class FileLimits:
    max_bytes: int = 50 * 1024 * 1024
    refused_types: frozenset[str] = frozenset({"application/x-msdownload", "application/x-msdos-program"})
    """Media types that are not taken: programs made to be run by a double click."""


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
        """Save a file as it arrives. One that grows too large, or breaks off, leaves nothing behind."""
        if media_type.partition(";")[0].strip().lower() in self._limits.refused_types:
            raise BadFile(f"Files of the type {media_type[:60]} are not taken.", "Send it in another form.")
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
        """A file to send, in pieces. Only a regular file inside the workspace is one."""
        with self.open(attachment.path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def open(self, relative: str) -> BinaryIO:
        """Walks down without following any link, so that none can be slipped in between looking and opening."""
        parts = PurePosixPath(relative).parts
        if not parts or relative.startswith("/") or any(part in ("..", ".", "") for part in parts) or "\0" in relative:
            raise BadFile("This path leads out of the workspace.", "Name a file inside it.")
        try:
            here = os.open(self._workspace, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for part in parts[:-1]:
                    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                    deeper = os.open(part, flags, dir_fd=here)
                    os.close(here)
                    here = deeper
                # Without O_NONBLOCK, somebody's named pipe would hold us for ever.
                found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
            finally:
                os.close(here)
        except OSError as error:
            raise BadFile(f"There is no file {PurePosixPath(relative).name[:60]!r}.", "Check its name.") from error
        if not _is_file(found, self._limits.max_bytes):
            os.close(found)
            raise BadFile("This cannot be sent: it is no file, or too large.", "Choose another.")
        return os.fdopen(found, "rb")

    def _folder(self, room: RoomRef) -> Path:
        """Made part by part: a link in the place of any of them is refused, not followed."""
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
        """A new file of that name, or with a number if there is one: nothing is ever replaced."""
        stem, ending = _split(name)
        for number in range(_TRIES):
            # After a few numbers something nobody has: counting through thousands would take ever longer.
            mark = "" if number == 0 else f" ({number if number < _NUMBERS else new_id()})"
            path = folder / f"{stem}{mark}{ending}"
            try:
                made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise _write_error(error, path) from error
            return os.fdopen(made, "wb"), path
        raise BadFile("There are too many files of this name.", "Call it something else.")

    def _write(self, file: BinaryIO, chunk: bytes, path: Path) -> None:
        try:
            file.write(chunk)
        except OSError as error:
            raise _write_error(error, path) from error


def safe_name(name: str) -> str:
    """A name that means a file in this folder on any system, and nothing else."""
    plain = unicodedata.normalize("NFKC", name[:_MOST_OF_A_NAME]).replace("\\", "/").rpartition("/")[2]
    letters = "".join(letter if unicodedata.category(letter)[0] in "LN" else _plain(letter) for letter in plain)
    stem, ending = _split(letters.strip(" ."))
    stem = _cut(stem, _LONGEST_STEM).strip(" .") or "file"
    found = f"{stem}{_cut(ending, _LONGEST_ENDING).rstrip(' .')}"
    return f"_{found}" if _RESERVED.match(found) else found


def display_name(name: str) -> str:
    """For the eye only: one line, nothing that acts."""
    return "".join(letter for letter in name[:200] if unicodedata.category(letter)[0] not in "CZ" or letter == " ")


def room_folder_name(room: RoomRef) -> str:
    """A folder for a room: told apart by a hash, because platforms' ids are theirs to choose."""
    told = hashlib.sha256(f"{room.surface}\n{room.id}".encode()).hexdigest()[:16]
    return f"{safe_name(room.surface)[:20]}-{told}"


def _plain(letter: str) -> str:
    return "_" if _HARMLESS.match(letter) else letter


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    return (stem, f".{ending}") if dot and stem and ending else (name, "")


def _cut(text: str, longest: int) -> str:
    """In bytes, because file systems count them."""
    return text.encode()[:longest].decode(errors="ignore")


def _is_file(descriptor: int, largest: int) -> bool:
    told = os.fstat(descriptor)
    return stat.S_ISREG(told.st_mode) and told.st_size <= largest


def _write_error(error: OSError, path: Path) -> DiskFull | ReadOnly:
    if error.errno == errno.ENOSPC:
        return DiskFull("There is no room left for the file.", "Make some, and send it again.")
    return ReadOnly(f"{path.name} cannot be written ({error.strerror}).", "Give yourself write access to that folder.")
