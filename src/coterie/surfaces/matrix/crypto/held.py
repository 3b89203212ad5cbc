"""What we were sent and cannot open yet. It waits here for its key, durably; its sender is asked for it.

What somebody says later waits behind it for a while, so that they are answered in the order they spoke.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from coterie.base.logging import get_logger
from coterie.kernel.cabinet import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.signing import Json

_HELD = "held"
_MOST = 2_000
"""Somebody could send us sealed nonsense for ever."""
_log = get_logger(__name__)


@dataclass
class PendingEvent:
    room: str
    event: Json
    since: float
    asked: bool = False
    told: bool = False
    """Whether its sender was told that we cannot read it."""

    def delays_later(self, seconds: float) -> bool:
        """Whether what its sender says later is to wait for it."""
        return not self.told and time.time() - self.since < seconds

    @property
    def sender(self) -> str:
        return str(self.event.get("sender", ""))

    @property
    def session(self) -> str:
        return str(self.event.get("content", {}).get("session_id", ""))


class PendingEvents:
    def __init__(self, cabinet: KeyStore) -> None:
        self._cabinet = cabinet
        self._held = {name: PendingEvent(**json.loads(told)) for name, told in cabinet.entries(_HELD).items()}
        self._leaving: set[str] = set()

    def __len__(self) -> int:
        return sum(1 for one in self._held.values() if not one.told)

    def add(self, room: str, event: Json) -> None:
        name = _name(room, event)
        if name in self._held:
            return
        if len(self._held) >= _MOST:
            oldest = min(self._held, key=lambda one: self._held[one].since)
            self._cabinet.put(self.remove([self._held[oldest]]))
        self._held[name] = PendingEvent(room, event, time.time())
        self._cabinet.put(self._row(name))

    def delays(self, room: str, event: Json, seconds: float) -> bool:
        """Whether something that its sender said before still waits."""
        about = (room, event.get("sender"))
        return any(
            (one.room, one.sender) == about and name not in self._leaving and one.delays_later(seconds)
            for name, one in self._held.items()
        )

    def mark_decrypted(self, held: PendingEvent) -> None:
        """It was opened and is on its way to the inbox: nothing waits for it any more."""
        self._leaving.add(_name(held.room, held.event))

    def for_sessions(self, sessions: Iterable[tuple[str, str]]) -> list[PendingEvent]:
        """What these keys may open, in the order it came."""
        wanted = set(sessions)
        return [one for one in self.all() if (one.room, one.session) in wanted]

    def all(self) -> list[PendingEvent]:
        return sorted(self._held.values(), key=lambda one: int(one.event.get("origin_server_ts", 0)))

    def overdue(self, seconds: float, *, asked: bool) -> list[PendingEvent]:
        """What has waited longer, and for whose key was (not) asked yet."""
        now = time.time()
        return [one for one in self._held.values() if one.asked is asked and not one.told and now - one.since > seconds]

    def mark(self, held: Iterable[PendingEvent], *, told: bool = False) -> None:
        changes: dict[KeyPath, str | None] = {}
        for one in held:
            one.asked, one.told = True, one.told or told
            changes |= self._row(_name(one.room, one.event))
        self._cabinet.put(changes)

    def remove(self, held: Iterable[PendingEvent]) -> dict[KeyPath, str | None]:
        """No longer waited for."""
        names = [_name(one.room, one.event) for one in held]
        for name in names:
            self._held.pop(name, None)
        self._leaving.difference_update(names)
        return {(_HELD, name): None for name in names}

    def _row(self, name: str) -> dict[KeyPath, str | None]:
        return {(_HELD, name): json.dumps(asdict(self._held[name]))}


def _name(room: str, event: Json) -> str:
    return f"{room} {event['event_id']}"
