"""Log in, connect with working encryption keys, and reset the connection.

The login is stored in the data folder: the homeserver deduplicates repeated sends per device.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from coterie.base.errors import ConfigError, Corrupt, CoterieError
from coterie.base.logging import get_logger
from coterie.base.paths import write_private_json
from coterie.base.redaction import redact
from coterie.eventstore import KeyStore, NewEvent, Store
from coterie.messaging import PlatformRefused, RoomForgotten, Rooms, SurfaceError, SurfaceSynced
from coterie.surfaces.matrix.crypto.machine import OlmMachine, discard_device_keys
from coterie.surfaces.matrix.homeserver import Homeserver, KeysLost, LoggedOut, MatrixRefused
from coterie.surfaces.matrix.schemas import SURFACE, object_at
from coterie.surfaces.matrix.settings import MatrixSettings


class LoginRefused(PlatformRefused):
    """The homeserver does not accept the user or the password."""


LOGIN_FILE, KEYS_FILE, IDENTITY_FILE = "login.json", "keys.db", "identity.json"


@dataclass(frozen=True)
class Login:
    user: str
    device: str
    token: str


async def log_in(settings: MatrixSettings, file: Path) -> tuple[Homeserver, Login]:
    """Use the stored login; else the access token, or the password, and store it."""
    login, token = _read_login(file), settings.access_token
    if login is not None and token is not None and token.get_secret_value() != login.token:
        login = None
    server = Homeserver(settings.homeserver)
    try:
        if login is None:
            login = await _new_login(server, settings, device=None)
            write_private_json(file, asdict(login))
    except BaseException:
        await server.close()
        raise
    redact.register(login.token)
    server.token = login.token
    return server, login


async def _new_login(server: Homeserver, settings: MatrixSettings, device: str | None) -> Login:
    try:
        if settings.access_token is not None:
            server.token = settings.access_token.get_secret_value()
            return Login(*await server.who_am_i(), server.token)
        if settings.password is None:
            raise ConfigError("There is no login for Matrix yet.", "Enter the account in Settings → Messengers.")
        return Login(*await server.login(settings.user, settings.password.get_secret_value(), device))
    except LoggedOut:
        if settings.access_token is None:
            raise
        raise LoginRefused(
            "The homeserver does not accept the access token: it is wrong or was revoked.",
            "Enter another one, or the password, in Settings → Messengers.",
        ) from None
    except MatrixRefused as error:
        raise LoginRefused(
            f"The homeserver does not accept the login of {settings.user} ({error.code}).",
            "Check the user and the password in Settings → Messengers.",
        ) from error


async def log_in_anew(settings: MatrixSettings, folder: Path) -> Login:
    """Log in with what was entered, and store it. The same account keeps its device and keys; those of another account
    are set aside."""
    try:
        before = _read_login(folder / LOGIN_FILE)
    except ConfigError:  # unreadable: replaced
        before = None
    is_same = before is not None and settings.user in (before.user, before.user.partition(":")[0].removeprefix("@"), "")
    server = Homeserver(settings.homeserver)
    try:
        login = await _new_login(server, settings, before.device if before is not None and is_same else None)
    finally:
        await server.close()
    redact.register(login.token)
    if before is not None and before.user != login.user:
        await asyncio.to_thread(_set_keys_aside, folder, before.user)
    write_private_json(folder / LOGIN_FILE, asdict(login))
    return login


def _set_keys_aside(folder: Path, user: str) -> None:
    for file in (*folder.glob(f"{KEYS_FILE}*"), *folder.glob(IDENTITY_FILE)):
        file.replace(file.with_name(f"{hashlib.sha256(user.encode()).hexdigest()[:8]}.{file.name}"))


async def find_homeserver(address: str) -> str:
    """The address of the homeserver: as entered, or as the entered domain names it (`.well-known`)."""
    url = (address if "://" in address else f"https://{address}").rstrip("/")
    server = Homeserver(url)
    try:
        named = await server.base_url_of_domain()
    except CoterieError:  # not every homeserver's address is that of a web server
        named = None
    finally:
        await server.close()
    for candidate in dict.fromkeys((named.rstrip("/") if named else url, url)):
        server = Homeserver(candidate)
        try:
            if await server.speaks_matrix():
                return candidate
        finally:
            await server.close()
    raise ConfigError(f"There is no Matrix homeserver at {url[:100]}.", "Check the address of the homeserver.")


def _read_login(file: Path) -> Login | None:
    try:
        return Login(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read ({error}).", "Remove it to log in again.") from None


_log = get_logger(__name__)


async def connect(settings: MatrixSettings, folder: Path) -> tuple[Homeserver, Login, OlmMachine]:
    """Log in with encryption keys that match the login.

    A device whose keys are lost, or older than what the homeserver has, is replaced by a new one: clients would
    otherwise keep encrypting for a device that cannot read. That needs the password; the cross-signing identity signs
    the new device, so that people need not verify it again.
    """
    password = settings.password.get_secret_value() if settings.password is not None else None
    server, login = await log_in(settings, folder / LOGIN_FILE)
    keystore = _open_keystore(folder / KEYS_FILE)
    try:
        crypto = OlmMachine(keystore, server, login.user, login.device)
        if not (crypto.own.is_new and await _has_keys(server, login)) and await _start(crypto, folder, password):
            return server, login, crypto
        _log.warning("the keys of this device are lost: a new device replaces it", device=login.device)
        if password is None:
            raise KeysLost(
                "The keys for encrypted rooms are lost, and a new device needs the password.",
                "Enter the password in Settings → Messengers.",
            )
        old = login.device
        await asyncio.to_thread((folder / LOGIN_FILE).unlink, missing_ok=True)
        await server.close()
        server, login = await log_in(settings, folder / LOGIN_FILE)
        discard_device_keys(keystore)
        crypto = OlmMachine(keystore, server, login.user, login.device)
        await crypto.start(folder / IDENTITY_FILE, password)
        await _delete_device(server, old, login.user, password)
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
        _log.error("the key store is damaged and was renamed", file=aside.name, error=str(error))
        for journal in file.parent.glob(f"{file.name}-*"):
            journal.unlink()
        file.replace(aside)
        return KeyStore(file)


async def _start(crypto: OlmMachine, folder: Path, password: str | None) -> bool:
    """False if the homeserver has newer keys of this device than we do, so that ours are an old copy."""
    try:
        await crypto.start(folder / IDENTITY_FILE, password)
    except MatrixRefused as error:
        _log.warning("the homeserver does not accept the keys of this device", error=str(error))
        return False
    return True


async def _has_keys(server: Homeserver, login: Login) -> bool:
    response = await server.query_keys([login.user])
    return login.device in object_at(response, "device_keys", login.user)


async def _delete_device(server: Homeserver, device: str, user: str, password: str) -> None:
    try:
        await server.delete_device(device, user, password)
    except SurfaceError as error:
        _log.warning("the old device was not removed: remove it in a client", device=device, error=str(error))


ResetMode = Literal["local-only", "server-leave-forget"]
RESET_MODES: tuple[ResetMode, ...] = ("local-only", "server-leave-forget")


async def reset(
    store: Store,
    server: Homeserver | None,
    login: Path,
    mode: ResetMode,
    *,
    dry_run: bool,
    report: Callable[[str], None],
) -> None:
    """Forget the rooms on Matrix, locally or on the homeserver too; chats and memories are kept. Reports each step."""
    would = "would be " if dry_run else ""
    rooms = Rooms(store).on_surface(SURFACE)
    if mode == "server-leave-forget" and server is not None:
        for room in await server.joined_rooms():
            report(f"{room}: {would}left and forgotten on the homeserver")
            if not dry_run:
                await _leave(server, room, report)
    for binding in rooms:
        report(f"{binding.room.id} (“{binding.title}”): {would}forgotten here; its chat stays")
    if mode == "local-only":
        report(f"{login.name}, the login: {would}kept")
    else:
        report(f"{login.name}: {would}removed, with its device and keys on the homeserver; the identity is kept")
    if not dry_run:
        forgotten = [NewEvent(f"surface:{SURFACE}", RoomForgotten(room=binding.room)) for binding in rooms]
        await store.append([*forgotten, NewEvent(f"surface:{SURFACE}", SurfaceSynced(surface=SURFACE, cursor=""))])
        if mode == "server-leave-forget" and server is not None:
            await _log_out(server, report)
            await asyncio.to_thread(login.unlink, missing_ok=True)
    report("Left to do by hand in your client: leave the rooms and the Space there, and invite the account again.")


async def _leave(server: Homeserver, room: str, report: Callable[[str], None]) -> None:
    try:
        await server.leave(room)
        await server.forget(room)
    except SurfaceError as error:
        report(f"{room}: not done ({error.what})")


async def _log_out(server: Homeserver, report: Callable[[str], None]) -> None:
    try:
        await server.logout()
    except SurfaceError as error:
        report(f"the device: not removed ({error.what})")
