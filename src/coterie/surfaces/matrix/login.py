"""The login on the homeserver, kept in the data folder: its device is what makes repeated sends one message. Trap 3"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from coterie.base.errors import ConfigError, Corrupt
from coterie.base.files import write_private_json
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.eventstore import NewEvent, Store
from coterie.eventstore.sqlite.keystore import KeyStore
from coterie.messaging.errors import SurfaceError
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.rooms import RoomForgotten, Rooms
from coterie.surfaces.matrix.crypto.machine import OlmMachine, discard_device_keys
from coterie.surfaces.matrix.homeserver import Homeserver, KeysLost, MatrixRefused
from coterie.surfaces.matrix.messages import SURFACE
from coterie.surfaces.matrix.settings import MatrixSettings


@dataclass(frozen=True)
class Login:
    user: str
    device: str
    token: str


async def log_in(settings: MatrixSettings, file: Path) -> tuple[Homeserver, Login]:
    """With the login that was kept, or with the password, once."""
    login = _read_login(file)
    if login is None:
        if settings.password is None:
            raise ConfigError("There is no login for Matrix yet.", "Set matrix.password, for the first start at least.")
        server = Homeserver(settings.homeserver)
        told = await server.login(settings.user, settings.password.get_secret_value())
        login = Login(told["user_id"], told["device_id"], told["access_token"])
        write_private_json(file, asdict(login))
    else:
        server = Homeserver(settings.homeserver)
    redact.register(login.token)
    server.token = login.token
    return server, login


def _read_login(file: Path) -> Login | None:
    try:
        return Login(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read ({error}).", "Remove it to log in anew.") from None


# A device whose keys are lost, or older than what the homeserver has, is replaced by a new one: clients would otherwise
# keep encrypting for a device that cannot read. That needs the password; the cross-signing identity, kept in a file of
# its own, signs the new device, so that people need not verify it again.


LOGIN_FILE, KEYS_FILE, IDENTITY_FILE = "login.json", "keys.db", "identity.json"
_log = get_logger(__name__)


async def connect(settings: MatrixSettings, folder: Path) -> tuple[Homeserver, Login, OlmMachine]:
    """Logged in, with keys that fit the login."""
    password = settings.password.get_secret_value() if settings.password is not None else None
    server, login = await log_in(settings, folder / LOGIN_FILE)
    keystore = _open_keystore(folder / KEYS_FILE)
    try:
        crypto = OlmMachine(keystore, server, login.user, login.device)
        if not (crypto.own.is_new and await _has_keys(server, login)) and await _started(crypto, folder, password):
            return server, login, crypto
        _log.warning("the keys of this device are lost: a new device takes its place", device=login.device)
        if password is None:
            raise KeysLost(
                "The keys for encrypted rooms are lost, and a new device needs the password.",
                "Set matrix.password and start again.",
            )
        old = login.device
        await asyncio.to_thread((folder / LOGIN_FILE).unlink, missing_ok=True)
        await server.close()
        server, login = await log_in(settings, folder / LOGIN_FILE)
        discard_device_keys(keystore)
        crypto = OlmMachine(keystore, server, login.user, login.device)
        await crypto.start(folder / IDENTITY_FILE, password)
        await _remove(server, old, login.user, password)
        return server, login, crypto
    except BaseException:
        keystore.close()
        await server.close()
        raise


def _open_keystore(file: Path) -> KeyStore:
    try:
        return KeyStore(file)
    except Corrupt as error:
        aside = file.with_name(f"{file.name}.damaged")
        _log.error("the key store is damaged and was put aside", aside=aside.name, error=str(error))
        for one in file.parent.glob(f"{file.name}-*"):
            one.unlink()
        file.replace(aside)
        return KeyStore(file)


async def _started(crypto: OlmMachine, folder: Path, password: str | None) -> bool:
    """False where the homeserver has newer keys of this device than we do: what we have is an old copy."""
    try:
        await crypto.start(folder / IDENTITY_FILE, password)
    except MatrixRefused as error:
        _log.warning("the homeserver does not take the keys of this device", error=str(error))
        return False
    return True


async def _has_keys(server: Homeserver, login: Login) -> bool:
    told = await server.query_keys([login.user])
    return login.device in told.get("device_keys", {}).get(login.user, {})


async def _remove(server: Homeserver, device: str, user: str, password: str) -> None:
    try:
        await server.delete_device(device, user, password)
    except SurfaceError as error:
        _log.warning("the old device is still there: remove it in a client", device=device, error=str(error))


# `coterie matrix reset`: starting over on Matrix, locally or on the homeserver too. P11


ResetMode = Literal["local-only", "server-leave-forget"]


async def reset(
    store: Store,
    server: Homeserver | None,
    login: Path,
    mode: ResetMode,
    *,
    dry_run: bool,
    report: Callable[[str], None],
) -> None:
    """Says what it does, or would do. Chats and memories stay: only the rooms' way to them is forgotten."""
    would = "would be " if dry_run else ""
    rooms = Rooms(store).on_surface(SURFACE)
    if mode == "server-leave-forget" and server is not None:
        for room in await server.joined_rooms():
            report(f"{room}: {would}left and forgotten on the homeserver")
            if not dry_run:
                await _leave(server, room, report)
    for bound in rooms:
        report(f"{bound.room.id} (“{bound.title}”): {would}forgotten here; its chat stays")
    if mode == "local-only":
        report(f"{login.name}, the login: {would}kept")
    else:
        report(f"{login.name}: {would}removed, and its device with its keys on the homeserver; the identity is kept")
    if not dry_run:
        drafts = [NewEvent(f"surface:{SURFACE}", RoomForgotten(room=bound.room)) for bound in rooms]
        await store.append([*drafts, NewEvent(f"surface:{SURFACE}", SurfaceSynced(surface=SURFACE, cursor=""))])
        if mode == "server-leave-forget" and server is not None:
            await _log_out(server, report)
            await asyncio.to_thread(login.unlink, missing_ok=True)
    report("Left to do by hand in your client: leave the rooms and the Space there, and invite the account anew.")


async def _leave(server: Homeserver, room: str, tell: Callable[[str], None]) -> None:
    try:
        await server.leave(room)
        await server.forget(room)
    except SurfaceError as error:
        tell(f"{room}: not done ({error.what})")


async def _log_out(server: Homeserver, tell: Callable[[str], None]) -> None:
    try:
        await server.logout()
    except SurfaceError as error:
        tell(f"the device: not removed ({error.what})")
