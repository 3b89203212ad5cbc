"""Taking snapshots while the house is lived in: after so many events or minutes, and before every rewind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.paths import Paths
from coterie.eventstore import Store
from coterie.eventstore.sqlite.snapshots import prune_snapshots, write_snapshot
from coterie.ops.settings import StorageSettings

_log = get_logger(__name__)
_LOOK_EVERY_S = 2.0
_REST = 20
"""A snapshot of a large house takes a while: rest this many times as long before the next one."""


class SnapshotTaker:
    def __init__(self, store: Store, home: Paths, settings: StorageSettings, clock: Clock) -> None:
        self._store = store
        self._home = home
        self._settings = settings
        self._clock = clock
        self._last_id = store.reader.last_id()
        self._last_at = clock.monotonic()
        self._rest_until = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                if self.is_due():
                    await self.take()
            except CoterieError as error:
                _log.warning("snapshot put off", error=str(error))
            try:
                await asyncio.wait_for(stop.wait(), _LOOK_EVERY_S)
            except TimeoutError:
                continue

    def is_due(self) -> bool:
        """S27: every so many events, or minutes in which anything happened."""
        fresh = self._store.reader.last_id() - self._last_id
        now = self._clock.monotonic()
        if not fresh or now < self._rest_until:
            return False
        minutes = (now - self._last_at) / 60
        return fresh >= self._settings.snapshot_every_events or minutes >= self._settings.snapshot_every_minutes

    async def take(self) -> Path | None:
        """A periodic snapshot; an old one makes room. A failure is told and changes nothing."""
        path = self._home.periodic_snapshots / snapshot_name(self._clock.now())
        started = self._clock.monotonic()
        self._last_id, self._last_at = self._store.reader.last_id(), started
        try:
            await asyncio.to_thread(write_snapshot, self._store.reader.connections, self._store.projections, path)
            prune_snapshots(self._home.periodic_snapshots, self._settings.keep_snapshots)
        except (CoterieError, OSError) as error:
            _log.warning("snapshot failed", error=str(error))
            return None
        finally:
            self._rest_until = self._clock.monotonic() + _REST * (self._clock.monotonic() - started)
        return path

    async def before_rewind(self) -> Path:
        """S23: what the views held before something was taken back."""
        path = self._home.rewind_snapshots / snapshot_name(self._clock.now())
        await asyncio.to_thread(write_snapshot, self._store.reader.connections, self._store.projections, path)
        prune_snapshots(self._home.rewind_snapshots, self._settings.keep_snapshots)
        return path


def snapshot_name(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S%f}.snapshot"


def log_snapshot_warning() -> Callable[[str], None]:
    return lambda text: _log.warning("snapshot passed over", why=text)
