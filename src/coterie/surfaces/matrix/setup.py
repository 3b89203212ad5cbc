"""Set up Matrix: the homeserver is found, the login tested at once, stored encrypted, and used without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from coterie.base.errors import ConfigError
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor
from coterie.characters import Portrait
from coterie.eventstore import Store
from coterie.messaging import (
    MessageRouter,
    MessengerField,
    MessengerStatus,
    NoSuchMode,
    NoSuchQuestion,
    OpenChat,
    RoomFiles,
    SaveSettings,
    SurfaceSynced,
    testing_connection,
)
from coterie.surfaces.matrix.settings import MatrixSettings

if TYPE_CHECKING:
    from coterie.surfaces.matrix.service import MatrixService


async def check_login(values: Mapping[str, str], folder: Path) -> tuple[MatrixSettings, dict[str, Any], dict[str, str]]:
    """Log in with what was entered, and store the login. Returns what changed, the settings to write, and the secrets.

    A `CoterieError` says what does not work; then the earlier login stays.
    """
    from coterie.surfaces.matrix.login import find_homeserver, log_in_anew

    entered = {name: values.get(name, "").strip() for name in ("homeserver", "user", "password", "access_token")}
    for name in ("password", "access_token"):
        redact.register(entered[name])
    user, secret = entered["user"], entered["access_token"] or entered["password"]
    if not secret:
        raise ConfigError("The password is missing.", "Enter the password of the account, or an access token.")
    if not user and not entered["access_token"]:
        raise ConfigError("The user is missing.", "Enter the account, such as @coterie:example.org.")
    address = entered["homeserver"] or user.partition(":")[2]
    if not address:
        raise ConfigError("The homeserver is missing.", "Enter its address, such as https://matrix.example.org.")
    async with testing_connection("The homeserver"):
        homeserver = await find_homeserver(address)
        settings = MatrixSettings(
            homeserver=homeserver,
            user=user,
            password=SecretStr(entered["password"]) if entered["password"] else None,
            access_token=SecretStr(entered["access_token"]) if entered["access_token"] else None,
        )
        login = await log_in_anew(settings, folder)
    secrets = {name: entered[name] for name in ("password", "access_token") if entered[name]}
    changes: dict[str, Any] = {"homeserver": homeserver, "user": login.user}
    changes |= {name: None for name in ("password", "access_token") if not entered[name]}
    return settings.model_copy(update={"user": login.user}), changes, secrets


class MatrixMessenger:
    name = "matrix"
    label = "Matrix"
    about = (
        "Create an account for your characters on your homeserver, as for a person, and enter its password, or an"
        " access token of a session of its own."
    )
    fields: tuple[MessengerField, ...] = (
        MessengerField("homeserver", "Homeserver", hint="https://matrix.example.org", optional=True),
        MessengerField("user", "User", hint="@coterie:example.org", optional=True),
        MessengerField("password", "Password", is_secret=True, optional=True),
        MessengerField("access_token", "or access token", is_secret=True, optional=True),
    )

    def __init__(
        self,
        router: MessageRouter,
        store: Store,
        settings: MatrixSettings,
        folder: Path,
        files: Callable[[str], RoomFiles],
        portrait: Callable[[str], Portrait | None],
        save: SaveSettings,
        supervisor: Supervisor,
    ) -> None:
        self._router = router
        self._store = store
        self._settings = settings
        self._folder = folder
        self._files = files
        self._portrait = portrait
        self._save = save
        self._supervisor = supervisor
        self._service: MatrixService | None = None
        self._changed = asyncio.Event()

    @property
    def status(self) -> MessengerStatus:
        if self._service is not None:
            return self._service.status
        return MessengerStatus("connecting" if self._settings.homeserver else "off")

    async def connect(self, values: Mapping[str, str]) -> MessengerStatus:
        before = self._settings
        settings, changes, secrets = await check_login(values, self._folder)
        await self._save("matrix", changes, secrets)
        kept = {"owner": before.owner, "encrypted": before.encrypted, "sync_s": before.sync_s}
        await self._use(settings.model_copy(update=kept))
        return MessengerStatus("connecting", settings.user, _link(settings.user))

    def open_chat(self, code: str) -> OpenChat:
        return OpenChat(self.status.link, f"!link {code}")

    async def answer(self, question: str, choice: str) -> None:
        if self._service is None or not await self._service.answer(question, matches=choice == "match"):
            raise NoSuchQuestion("This verification is no longer open.", "Begin it again in your client.")

    async def reset(self, mode: str, *, dry_run: bool) -> list[str]:
        """Forget the rooms, here or on the homeserver too; then connect anew."""
        from coterie.surfaces.matrix.login import LOGIN_FILE, RESET_MODES, log_in, reset

        chosen = next((one for one in RESET_MODES if one == mode), None)
        if chosen is None:
            raise NoSuchMode(f"There is no reset called {mode[:40]}.", f"There is: {', '.join(RESET_MODES)}.")
        login, lines = self._folder / LOGIN_FILE, list[str]()
        server = None
        if chosen == "server-leave-forget":
            server, _ = await log_in(self._settings, login)
        try:
            await reset(self._store, server, login, chosen, dry_run=dry_run, report=lines.append)
        finally:
            if server is not None:
                await server.close()
        if not dry_run:
            self._service = None
            self._changed.set()
        return lines

    async def disconnect(self) -> None:
        nothing: dict[str, Any] = {"homeserver": "", "password": None, "access_token": None}
        await self._save("matrix", nothing, {})
        await self._use(self._settings.model_copy(update=nothing))

    async def _use(self, settings: MatrixSettings) -> None:
        account = (self._settings.homeserver, self._settings.user)
        if settings.homeserver and account != (settings.homeserver, settings.user):
            # The position belongs to the other account.
            await self._router.inbound.accept([], SurfaceSynced(surface="matrix", cursor=""))
        self._settings = settings
        self._service = None
        self._changed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = self._supervisor.start("Matrix set-up", self._run)
        try:
            yield
        finally:
            await task.stop()

    async def _run(self) -> None:
        """Run a service with the settings, and another one when they change. The encryption library is loaded with the
        first."""
        while True:
            self._changed.clear()
            if self._settings.homeserver:
                from coterie.surfaces.matrix.service import MatrixService

                self._service = MatrixService(
                    self._router,
                    self._store,
                    self._settings,
                    self._folder,
                    self._files,
                    self._portrait,
                    self._supervisor,
                )
                async with self._service.running():
                    await self._changed.wait()
            else:
                await self._changed.wait()


def _link(user: str) -> str:
    return f"https://matrix.to/#/{user}"
