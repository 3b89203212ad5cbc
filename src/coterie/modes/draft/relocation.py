"""Where workspaces are: found in a copy of the log, copied into a backup, and given new places after a restore.

Folders below the data folder are stored by their relative paths, others by their whole paths. A restored instance must
not use the folders of the instance that it was copied from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path

import pygit2

from coterie.base.logging import get_logger
from coterie.eventstore import LogReader, NewEvent, Store
from coterie.modes.draft.events import WorkspaceMoved, WorkspaceOpened

MAX_COPIED_BYTES = 100_000_000
"""Larger repositories outside the data folder are recorded in a backup, but not copied."""
_PAGE = 1_000
_log = get_logger(__name__)


@dataclass(frozen=True)
class AdoptedRepository:
    workspace: str
    folder: str
    heads: dict[str, str]
    copied: bool


@dataclass(frozen=True)
class Relocation:
    moved: dict[str, str]
    """Workspace → its new folder, relative to the data folder."""
    missing: dict[str, str]
    """Workspace → the folder it had, for those that the backup does not hold."""


def stored_folders(database: Path) -> dict[str, str]:
    """Workspace → its folder as stored in the log, which may be of any version."""
    folders: dict[str, str] = {}
    kinds = (WorkspaceOpened.kind, WorkspaceMoved.kind)
    with closing(LogReader(database)) as reader:
        after = 0
        while page := reader.read(after=after, limit=_PAGE, kinds=kinds):
            for event in page:
                if isinstance(event.payload, WorkspaceOpened | WorkspaceMoved):
                    folders[event.stream.partition(":")[2]] = event.payload.folder
            after = page[-1].id
    return folders


def relative_folder(folder: Path, home: Path) -> str:
    """A folder as it is stored: relative if it is below the data folder."""
    try:
        return folder.relative_to(home.resolve()).as_posix()
    except ValueError:
        return str(folder)


def copy_adopted(database: Path, home: Path, target: Path) -> list[AdoptedRepository]:
    """Copy the repositories outside the data folder, as bare ones, into `target`; their names are the workspaces."""
    adopted = []
    for workspace, folder in stored_folders(database).items():
        if not Path(folder).is_absolute() or Path(folder).is_relative_to(home.resolve()):
            continue
        try:
            adopted.append(_copy_repository(workspace, folder, target / workspace))
        except (pygit2.GitError, KeyError, OSError) as error:
            _log.warning("a workspace is not in the backup", folder=folder, error=str(error))
            adopted.append(AdoptedRepository(workspace, folder, {}, copied=False))
    return adopted


def _copy_repository(workspace: str, folder: str, target: Path) -> AdoptedRepository:
    source = pygit2.Repository(folder)
    heads = {name: str(source.branches.local[name].peel(pygit2.Commit).id) for name in source.branches.local}
    if _size(Path(source.path)) > MAX_COPIED_BYTES:
        return AdoptedRepository(workspace, folder, heads, copied=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = pygit2.clone_repository(str(folder), str(target), bare=True)
    for name, commit in heads.items():
        if copy.get(commit) is not None:
            copy.references.create(f"refs/heads/{name}", pygit2.Oid(hex=commit), force=True)
    head = source.lookup_reference("HEAD").raw_target
    if isinstance(head, bytes):
        copy.set_head(head.decode())
    copy.remotes.delete("origin")  # the restored one must not know where the original is
    return AdoptedRepository(workspace, folder, heads, copied=True)


def _size(folder: Path) -> int:
    total = 0
    for here, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(here) / name).lstat().st_size
            except OSError:
                continue
            if total > MAX_COPIED_BYTES:
                return total
    return total


def relocate(
    database: Path,
    *,
    home: Path,
    old_home: str,
    in_place: bool,
    drafts: Path,
    copies: Path | None,
    open_store: Callable[[Path], AbstractContextManager[Store]],
) -> Relocation:
    """Give the workspaces of a restored database places in the data folder `home`, unless they have one there.

    `drafts` becomes the folder of documents there, and copies of adopted repositories are moved into it.
    """
    moved: dict[str, str] = {}
    missing: dict[str, str] = {}
    for workspace, folder in stored_folders(database).items():
        path = Path(folder)
        if not path.is_absolute() or path.is_relative_to(home.resolve()) or in_place:
            continue
        if old_home and path.is_relative_to(old_home):
            moved[workspace] = path.relative_to(old_home).as_posix()
        elif copies is not None and (copies / workspace).is_dir():
            name = f"{path.name}-{workspace[-6:].lower()}"
            drafts.mkdir(exist_ok=True, mode=0o700)
            (copies / workspace).rename(drafts / name)
            moved[workspace] = f"drafts/{name}"
        else:
            moved[workspace] = f"drafts/{path.name}"
            if not (drafts / path.name).is_dir():
                missing[workspace] = folder
    if moved:
        with open_store(database) as store:
            store.append_blocking(moved_events(moved))
    return Relocation(moved, missing)


def moved_events(folders: dict[str, str]) -> list[NewEvent]:
    return [
        NewEvent(f"draft:{workspace}", WorkspaceMoved(folder=folder), "restore")
        for workspace, folder in sorted(folders.items())
    ]


def own_folders(folders: Collection[tuple[str, str]], home: Path) -> dict[str, str]:
    """Workspace → relative folder, for whole paths that are in the data folder, or were before it was moved."""
    found: dict[str, str] = {}
    for workspace, folder in folders:
        path = Path(folder)
        if not path.is_absolute():
            continue
        if path.is_relative_to(home.resolve()):
            found[workspace] = path.relative_to(home.resolve()).as_posix()
        elif path.parent.name == "drafts" and (home / "drafts" / path.name).is_dir():
            found[workspace] = f"drafts/{path.name}"
    return found
