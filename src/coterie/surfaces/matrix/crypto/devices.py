"""Whose devices there are, as far as they vouch for themselves. What a homeserver says about a known device's identity
is not believed a second time: keys that change under the same name are somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from coterie.base.logging import get_logger
from coterie.kernel.cabinet import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.own_device import MEGOLM, OLM
from coterie.surfaces.matrix.crypto.signing import Json, has_signature
from coterie.surfaces.matrix.homeserver import Homeserver

_PEOPLE = "people"
_log = get_logger(__name__)


@dataclass(frozen=True)
class Device:
    user: str
    device: str
    curve25519: str
    ed25519: str


class DeviceList:
    def __init__(self, cabinet: KeyStore, server: Homeserver, own: tuple[str, str]) -> None:
        """`own` is our account and device: others of the account are devices like any other, it itself is not."""
        self._cabinet = cabinet
        self._server = server
        self._own = own
        self._known: dict[str, list[Device]] = {}
        self._stale: set[str] = set()
        for user, told in cabinet.entries(_PEOPLE).items():
            kept = json.loads(told)
            self._known[user] = [Device(**one) for one in kept["devices"]]
            if kept["stale"]:
                self._stale.add(user)

    def apply_changes(self, lists: Json) -> dict[KeyPath, str | None]:
        """What a sync says about whose devices changed; durable before the sync counts as heard."""
        changes: dict[KeyPath, str | None] = {}
        for user in lists.get("changed", []):
            if user in self._known:
                self._stale.add(user)
                changes |= self._row(user)
        for user in lists.get("left", []):
            # Nobody tells us about them any more; whoever comes back is asked about anew.
            self._known.pop(user, None)
            changes[_PEOPLE, user] = None
        return changes

    def mark_all_stale(self) -> dict[KeyPath, str | None]:
        """We lost our place in what the homeserver tells: anybody's devices may have changed."""
        self._stale |= set(self._known)
        return {place: told for user in self._known for place, told in self._row(user).items()}

    async def for_users(self, users: Iterable[str]) -> list[Device]:
        """All devices of these people, asking the homeserver where we do not know for sure."""
        wanted = set(users)
        await self._ask({user for user in wanted if user not in self._known or user in self._stale})
        return [device for user in sorted(wanted) for device in self._known.get(user, [])]

    async def with_key(self, user: str, curve25519: str) -> Device | None:
        """The device of this person that has this key, if it is theirs."""
        for fresh in (False, True):
            if fresh or user not in self._known or user in self._stale:
                await self._ask({user})
            for device in self._known.get(user, []):
                if device.curve25519 == curve25519:
                    return device
        return None

    async def _ask(self, users: set[str]) -> None:
        if not users:
            return
        told = await self._server.query_keys(sorted(users))
        changes: dict[KeyPath, str | None] = {}
        for user in users:
            found = told.get("device_keys", {}).get(user, {})
            before = {device.device: device for device in self._known.get(user, [])}
            read = (_device(user, name, keys) for name, keys in found.items())
            self._known[user] = [
                _as_known(before.get(device.device), device)
                for device in read
                if device is not None and (user, device.device) != self._own
            ]
            self._stale.discard(user)
            changes |= self._row(user)
        self._cabinet.put(changes)

    def _row(self, user: str) -> dict[KeyPath, str | None]:
        told = {"devices": [asdict(one) for one in self._known[user]], "stale": user in self._stale}
        return {(_PEOPLE, user): json.dumps(told)}


def _device(user: str, name: str, keys: Any) -> Device | None:
    try:
        named = (keys["user_id"], keys["device_id"]) == (user, name)
        curve, ed = keys["keys"][f"curve25519:{name}"], keys["keys"][f"ed25519:{name}"]
        able = {OLM, MEGOLM} <= set(keys["algorithms"])
    except (KeyError, TypeError):
        return None
    if not named or not able or not has_signature(keys, user, name, str(ed)):
        _log.warning("a device does not vouch for itself", user=user, device=name)
        return None
    return Device(user, name, str(curve), str(ed))


def _as_known(before: Device | None, now: Device) -> Device:
    if before is not None and before != now:
        _log.warning("a device's keys changed under its name", user=now.user, device=now.device)
        return before
    return now
