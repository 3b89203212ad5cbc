"""The file format of a backup: a ZIP archive with the instance's files and a manifest with the SHA-256 of each.

The manifest is the last member, so that an unfinished archive has none. Links are entries of the manifest; they are
neither followed when a backup is taken nor written through when it is restored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.base.errors import BackupError
from coterie.base.paths import fsync_path
from coterie.base.values import is_text

FORMAT = 1
MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 256_000_000
_MAX_LINK_BYTES = 4_096
_BLOCK = 1 << 20
_COMPRESSION_LEVEL = 1
_SPARE_BYTES = 64 << 20
"""Left free on the disk by a restore."""
_CHOOSE_ANOTHER = "Choose another one; nothing was changed."

Progress = Callable[[str, int, int], None]


class ArchiveMember(BaseModel):
    """A file, folder or symbolic link of the instance."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: str
    """Relative to the instance, with `/` between its parts."""
    kind: Literal["file", "folder", "link"]
    mode: int
    bytes: int = 0
    sha256: str = ""
    changed: float = 0.0
    """Seconds since 1970."""
    target: str = ""
    """Of a link."""


class Adopted(BaseModel):
    """A repository outside the data folder that documents are in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: str
    folder: str
    heads: dict[str, str]
    """Branch → commit at the time of the backup."""
    included: bool
    """Whether a copy is in the backup; large ones are not."""


class Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    coterie: str
    """The version that wrote it."""
    taken: str
    home: str
    """The data folder that it was taken of."""
    members: tuple[ArchiveMember, ...]
    adopted: tuple[Adopted, ...] = ()
    left_out: tuple[str, ...] = ()
    """What the data folder has and the backup does not: secret settings, and files that are no part of an instance."""


class ArchiveWriter:
    def __init__(self, file: Path) -> None:
        """`file` is created, readable by its owner only."""
        self._file = os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL)
        self.members: list[ArchiveMember] = []

    def add_bytes(self, path: str, data: bytes, mode: int) -> None:
        self._zip.writestr(path, data)
        self.members.append(
            ArchiveMember(path=path, kind="file", mode=mode, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        )

    def add_file(self, path: str, file: Path) -> None:
        """Add one regular file; a link at its path is refused by the operating system."""
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as source:
            self._add_open(path, source)

    def add_folder(self, path: str, folder: Path, skip: Callable[[str], bool] = lambda _: False) -> None:
        """Add a folder and everything below it that is a file, folder or link. `skip` is given the path of each."""
        if folder.is_symlink() or not folder.is_dir():
            return
        # Git objects last: everything that a reference refers to was there before the reference was.
        later: list[tuple[str, Path]] = []
        self._add_tree(path, folder, skip, later)
        for name, objects in later:
            self._add_tree(name, objects, skip, None)

    def _add_tree(
        self, path: str, folder: Path, skip: Callable[[str], bool], later: list[tuple[str, Path]] | None
    ) -> None:
        for here, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
            base = PurePosixPath(path) / Path(here).relative_to(folder).as_posix()
            self._add_entry(str(base), os.fstat(descriptor))
            if later is not None and "objects" in folders and "HEAD" in files:  # a Git repository
                folders.remove("objects")
                later.append((str(base / "objects"), Path(here) / "objects"))
            folders.sort()
            for name in sorted([*files, *folders]):
                inside = str(base / name)
                if skip(inside) or not is_text(inside):
                    continue
                self._add_child(inside, name, descriptor)

    def _add_child(self, path: str, name: str, descriptor: int) -> None:
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                self._add_entry(path, status, os.readlink(name, dir_fd=descriptor))
            elif stat.S_ISREG(status.st_mode):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                with os.fdopen(os.open(name, flags, dir_fd=descriptor), "rb") as source:
                    self._add_open(path, source)
        except (FileNotFoundError, PermissionError):
            return  # removed since it was listed, or a file that only a sandboxed user may read

    def _add_entry(self, path: str, status: os.stat_result, target: str = "") -> None:
        kind: Literal["folder", "link"] = "link" if target else "folder"
        mode = stat.S_IMODE(status.st_mode) & 0o777
        self.members.append(ArchiveMember(path=path, kind=kind, mode=mode, changed=status.st_mtime, target=target))

    def _add_open(self, path: str, source: IO[bytes]) -> None:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            return
        digest, size = hashlib.sha256(), 0
        info = zipfile.ZipInfo(path)
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as member:
            while block := source.read(_BLOCK):
                digest.update(block)
                member.write(block)
                size += len(block)
        mode = stat.S_IMODE(status.st_mode) & 0o777
        self.members.append(
            ArchiveMember(
                path=path, kind="file", mode=mode, bytes=size, sha256=digest.hexdigest(), changed=status.st_mtime
            )
        )

    def finish(self, manifest: Manifest) -> None:
        self._zip.writestr(MANIFEST, manifest.model_dump_json(indent=1))

    def close(self) -> None:
        self._zip.close()
        self._file.close()


def is_archive(file: Path) -> bool:
    return zipfile.is_zipfile(file)


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BackupError(f"{file} is damaged: {error}", _CHOOSE_ANOTHER) from error
    except Exception as error:  # zlib.error is not a public type of zipfile
        if type(error).__module__ == "zlib":
            raise BackupError(f"{file} is damaged: {error}", _CHOOSE_ANOTHER) from error
        raise


def read_manifest(file: Path) -> Manifest:
    """The manifest, checked against the list of members: nothing more, nothing less, nothing outside."""
    with _opened(file) as archive:
        try:
            info = archive.getinfo(MANIFEST)
        except KeyError:
            raise BackupError(f"{file} is not a complete Coterie backup.", _CHOOSE_ANOTHER) from None
        if info.file_size > _MAX_MANIFEST_BYTES:
            raise BackupError(f"{file} is damaged: its manifest is too large.", _CHOOSE_ANOTHER)
        try:
            manifest = Manifest.model_validate_json(archive.read(info))
        except ValidationError as error:
            raise BackupError(
                f"{file} is damaged: its manifest cannot be read ({error.error_count()} errors).", _CHOOSE_ANOTHER
            ) from None
        if manifest.format > FORMAT:
            raise BackupError(f"{file} was written by a newer Coterie ({manifest.coterie}).", "Upgrade Coterie.")
        if problem := _manifest_problem(manifest.members, archive.infolist()):
            raise BackupError(f"{file} is damaged: {problem}.", _CHOOSE_ANOTHER)
        return manifest


def _manifest_problem(members: Sequence[ArchiveMember], stored: Sequence[zipfile.ZipInfo]) -> str:
    by_path = {member.path: member for member in members}
    if len(by_path) != len(members):
        return "a path is listed twice"
    for member in members:
        parts = PurePosixPath(member.path).parts
        unsafe = member.path.startswith("/") or "\0" in member.path or "\\" in member.path or not parts
        if unsafe or ".." in parts or str(PurePosixPath(member.path)) != member.path or not is_text(member.path):
            return f"it has a path outside the instance ({member.path[:100]!r})"
        for parent in PurePosixPath(member.path).parents:
            above = by_path.get(str(parent))
            if above is not None and above.kind != "folder":
                return f"{member.path[:100]!r} lies below a file or link"
        if member.kind == "link" and not 0 < len(os.fsencode(member.target)) <= _MAX_LINK_BYTES:
            return f"the link {member.path[:100]!r} has no valid target"
        if member.mode & ~0o777 or member.bytes < 0:
            return f"{member.path[:100]!r} has invalid permissions or size"
    sizes = {info.filename: info.file_size for info in stored if info.filename != MANIFEST}
    if len(sizes) + 1 != len(stored):
        return "a member is stored twice"
    if sizes != {member.path: member.bytes for member in members if member.kind == "file"}:
        return "its members are not those of its manifest"
    return ""


def extract_archive(
    file: Path, manifest: Manifest, target: Path, wanted: Callable[[str], bool], progress: Progress
) -> None:
    """Write the wanted members below `target`, an empty folder, durably. The hashes of all members are checked."""
    total = sum(member.bytes for member in manifest.members)
    room = shutil.disk_usage(target).free - _SPARE_BYTES
    if sum(member.bytes for member in manifest.members if wanted(member.path)) > room:
        raise BackupError(
            f"There is not enough room to restore {file}.", f"Free at least {total >> 20} MB on the disk of {target}."
        )
    done = 0
    folders = [member for member in manifest.members if member.kind == "folder" and wanted(member.path)]
    for member in sorted(folders, key=lambda member: member.path):
        (target / member.path).mkdir(parents=True, exist_ok=True, mode=0o700)
    with _opened(file) as archive:
        for member in manifest.members:
            if member.kind == "file":
                path = target / member.path if wanted(member.path) else None
                _extract_file(file, archive, member, path)
                done += member.bytes
                progress("Checking and copying the backup", done, total)
    for member in manifest.members:
        if member.kind == "link" and wanted(member.path):
            (target / member.path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            (target / member.path).symlink_to(member.target)
    for member in sorted(folders, key=lambda member: member.path, reverse=True):
        (target / member.path).chmod(member.mode | 0o700)
        os.utime(target / member.path, (member.changed, member.changed))
        fsync_path(target / member.path)


def _extract_file(file: Path, archive: zipfile.ZipFile, member: ArchiveMember, target: Path | None) -> None:
    digest, size = hashlib.sha256(), 0
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    output = None if target is None else os.fdopen(os.open(target, flags, 0o600), "wb")
    try:
        with archive.open(member.path) as source:
            while block := source.read(_BLOCK):
                size += len(block)
                if size > member.bytes:
                    break
                digest.update(block)
                if output is not None:
                    output.write(block)
        if size != member.bytes or digest.hexdigest() != member.sha256:
            raise BackupError(f"{file} is damaged: {member.path} is not what was backed up.", _CHOOSE_ANOTHER)
        if output is not None:
            output.flush()
            os.fchmod(output.fileno(), member.mode)
            if member.changed:
                os.utime(output.fileno(), (member.changed, member.changed))
            os.fsync(output.fileno())
    finally:
        if output is not None:
            output.close()
