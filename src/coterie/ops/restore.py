"""Restore a backup: everything is prepared beside the instance, then takes its place.

The renames are listed in a plan that is written when the preparation is complete. A process that is killed before that
leaves the old instance; one that is killed later leaves the plan, which the next start carries out.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from coterie.base.errors import BackupError, Corrupt, CoterieError
from coterie.base.logging import get_logger
from coterie.base.paths import Paths, fsync_path, write_atomic
from coterie.eventstore import KeyStore, ProcessLock, Projection, StepProgress, prune_snapshots
from coterie.ops.archive import Adopted, Manifest, extract_archive, is_archive, read_manifest
from coterie.ops.backups import ADOPTED, CONTENT, CREDENTIALS, DATABASE, check_database

_STAGING = ".restoring"
_PLAN = "restore.json"
_CHOOSE_ANOTHER = "Choose another one; nothing was changed."
_JOURNALS = ("-wal", "-shm")
_log = get_logger(__name__)


@dataclass(frozen=True)
class RestoredCopy:
    """A database that is about to take the place of the current one, with what is known about its origin."""

    database: Path
    home: str
    """The data folder that it was taken of; empty for a backup of an earlier version."""
    in_place: bool
    """Whether it returns to the data folder that it was taken of."""
    drafts: Path
    """The folder of documents that takes the place of the current one."""
    adopted: Sequence[Adopted] = ()
    """Repositories that were outside the data folder."""
    adopted_copies: Path | None = None
    """A folder with copies of those that are included, named by their workspaces."""


@dataclass(frozen=True)
class RestoreReport:
    replaced: Path | None
    """Where the previous database is kept."""
    notes: Sequence[str] = ()
    """What the person should know or do."""


Relocate = Callable[[RestoredCopy], Sequence[str]]
"""Adapts paths in the restored database to this data folder; returns notes for the person."""


def restore_backup(
    paths: Paths,
    backup: Path,
    now: datetime,
    projections: Sequence[Projection],
    *,
    relocate: Relocate = lambda _: (),
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = lambda _what, _done, _total: None,
) -> RestoreReport:
    """Check a backup, then replace the instance, which no process may have open. What it replaces is kept beside it.

    `confirm` is called just before an existing database is replaced; it raises to cancel.
    """
    if not backup.is_file():
        raise BackupError(f"There is no backup at {backup}.", "List them in the folder `backups`.")
    lock = ProcessLock(paths.database)
    lock.acquire()
    try:
        _finish(paths)
        try:
            report = _prepare(paths, backup, now, projections, relocate, confirm, progress)
        except BaseException:
            _remove_staging(paths)
            raise
        _finish(paths)
    finally:
        lock.release()
    for folder in (paths.periodic_snapshots, paths.rewind_snapshots):
        prune_snapshots(folder, keep=0)  # they may hold events that the restored log does not have
    return report


def finish_restore(paths: Paths) -> None:
    """Carry out a restore that was interrupted. Called before the database is opened."""
    if (paths.root / _PLAN).exists() or (paths.root / _STAGING).exists():
        lock = ProcessLock(paths.database)
        lock.acquire()
        try:
            _finish(paths)
        finally:
            lock.release()


def _prepare(
    paths: Paths,
    backup: Path,
    now: datetime,
    projections: Sequence[Projection],
    relocate: Relocate,
    confirm: Callable[[], object],
    progress: StepProgress,
) -> RestoreReport:
    staging = paths.root / _STAGING
    staging.mkdir(mode=0o700)
    manifest = read_manifest(backup) if is_archive(backup) else None
    if manifest is None:
        database = _staged_database(paths)
        _copy_file(backup, database, progress)
    else:
        wanted = _wanted(paths, manifest)
        extract_archive(backup, manifest, staging, lambda path: PurePosixPath(path).parts[0] in wanted, progress)
        database = _staged_database(paths)
        if database != staging / DATABASE:
            _copy_file(staging / DATABASE, database, progress)
    check_database(database, backup, projections, progress)
    for keys in (staging / "matrix").glob("*.db"):
        try:
            KeyStore.check(keys)
        except CoterieError as error:
            raise BackupError(f"{backup} is damaged: {error.what}", _CHOOSE_ANOTHER) from error
    if paths.database.exists():
        confirm()
    notes = [f"Not in the backup: {what}" for what in (manifest.left_out if manifest else ())]
    notes += relocate(_restored_copy(paths, backup, manifest, database))
    fsync_path(database)
    _write_plan(paths, manifest, database, f"before-restore-{now:%Y%m%dT%H%M%S%f}")
    plan = _read_plan(paths)
    replaced = _kept_as(paths, plan, paths.database) if paths.database.exists() else None
    return RestoreReport(replaced, notes)


def _wanted(paths: Paths, manifest: Manifest) -> set[str]:
    """The top-level names to extract: credentials that exist are kept, repositories outside return only elsewhere."""
    names = {DATABASE, *CONTENT}
    names |= {name for name in CREDENTIALS if not os.path.lexists(_path_of(paths, name))}
    if not _is_in_place(paths, manifest):
        names.add(ADOPTED)
    if paths.config.parent != paths.root:
        names.discard("config.toml")
    return names


def _is_in_place(paths: Paths, manifest: Manifest) -> bool:
    return manifest.home == str(paths.root.resolve())


def _restored_copy(paths: Paths, backup: Path, manifest: Manifest | None, database: Path) -> RestoredCopy:
    staging = paths.root / _STAGING
    if manifest is None:  # such a file is restored where it was made, unless it comes from elsewhere
        in_place = backup.resolve().is_relative_to(paths.root.resolve())
        return RestoredCopy(database, "", in_place, paths.root / "drafts")
    drafts = staging / "drafts"
    in_place = _is_in_place(paths, manifest)
    return RestoredCopy(database, manifest.home, in_place, drafts, manifest.adopted, staging / ADOPTED)


def _staged_database(paths: Paths) -> Path:
    """On the same disk as the database, which may be outside the data folder."""
    if paths.database.parent == paths.root:
        return paths.root / _STAGING / DATABASE
    return paths.database.with_name(paths.database.name + _STAGING)


def _path_of(paths: Paths, name: str) -> Path:
    return {"config.toml": paths.config, DATABASE: paths.database}.get(name, paths.root / name)


# The plan: a list of renames, each of which can be repeated


def _write_plan(paths: Paths, manifest: Manifest | None, database: Path, suffix: str) -> None:
    staging = paths.root / _STAGING
    moves = [{"name": DATABASE, "staged": os.path.relpath(database, paths.root)}]
    if manifest is not None:
        for name in (*CONTENT, *CREDENTIALS):
            staged = staging / name
            if name in CONTENT or os.path.lexists(staged):
                moves.append({"name": name, "staged": os.path.relpath(staged, paths.root)})
                staged_there = os.path.lexists(staged)
                moves[-1]["empty"] = "" if staged_there else "yes"
    fsync_path(staging)
    plan = {"suffix": suffix, "moves": moves}
    write_atomic(paths.root / _PLAN, json.dumps(plan).encode(), mode=0o600)


def _read_plan(paths: Paths) -> dict[str, Any]:
    file = paths.root / _PLAN
    try:
        plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return plan
    except ValueError as error:
        raise Corrupt(f"{file} is damaged ({error}).", "Remove it, then restore the backup again.") from error


def _kept_as(paths: Paths, plan: dict[str, Any], path: Path) -> Path:
    return path.with_name(f"{path.name}.{plan['suffix']}")


def _finish(paths: Paths) -> None:
    """Carry out the plan if there is one, and remove what an interrupted preparation left."""
    if (paths.root / _PLAN).exists():
        plan = _read_plan(paths)
        for move in plan["moves"]:
            target = _path_of(paths, move["name"])
            _replace(paths.root / move["staged"], target, _kept_as(paths, plan, target), empty=bool(move.get("empty")))
        for folder in {paths.root, paths.database.parent}:
            fsync_path(folder)
        (paths.root / _PLAN).unlink()
        fsync_path(paths.root)
        _log.info("restore carried out", parts=[move["name"] for move in plan["moves"]])
    _remove_staging(paths)


def _replace(staged: Path, target: Path, kept: Path, *, empty: bool) -> None:
    """Move the old one aside and the new one in its place. `empty`: there is no new one."""
    if empty:
        if os.path.lexists(target):
            target.rename(kept)
        return
    if not os.path.lexists(staged):
        return  # done before
    for journal in _JOURNALS:
        if (journal_file := target.with_name(target.name + journal)).is_file():
            journal_file.rename(kept.with_name(kept.name + journal))
    if os.path.lexists(target):
        target.rename(kept)
    staged.rename(target)


def _remove_staging(paths: Paths) -> None:
    if (paths.root / _PLAN).exists():
        return
    database = _staged_database(paths)
    if database.parent != paths.root / _STAGING:
        for file in [database, *(database.with_name(database.name + journal) for journal in _JOURNALS)]:
            file.unlink(missing_ok=True)
    shutil.rmtree(paths.root / _STAGING, ignore_errors=True)


def _copy_file(source: Path, target: Path, progress: StepProgress) -> None:
    size, done = source.stat().st_size, 0
    descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
        while block := reader.read(1 << 20):
            writer.write(block)
            done += len(block)
            progress("Copying the backup", done, size)
