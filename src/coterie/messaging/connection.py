"""Keep the connection to a messenger in the background, and load its service when there is a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from pydantic import SecretStr

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor, report_problem, report_recovery, unless_stopped
from coterie.eventstore import backoff_s
from coterie.messaging.errors import PlatformRateLimited
from coterie.messaging.messengers import ConnectionState, MessengerStatus

_MAX_BACKOFF_S = 60.0
_log = get_logger(__name__)


class TokenSettings(Protocol):
    @property
    def token(self) -> SecretStr | None: ...


SettingsT = TypeVar("SettingsT", bound=TokenSettings)
UsedT = TypeVar("UsedT", bound=TokenSettings, contravariant=True)


class MessengerService(Protocol[UsedT]):
    @property
    def status(self) -> MessengerStatus: ...

    def configure(self, settings: UsedT) -> None:
        """Use these settings from now on, without a restart."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]: ...


ServiceT = TypeVar("ServiceT", bound="MessengerService[Any]")


class MessengerConnection:
    """Connects when there is something to connect with, and again after a problem; knows how the connection stands."""

    def __init__(
        self, label: str, follow: Callable[[], Coroutine[Any, Any, None]], supervisor: Supervisor, *, on: bool
    ) -> None:
        """`follow` connects and receives; it is cancelled when the settings change. A `CoterieError` of it is shown,
        and it is called again. `on` if there are settings to connect with."""
        self._label = label
        self._follow = follow
        self._supervisor = supervisor
        self._on = on
        self._changed = asyncio.Event()
        self._tries = 0
        self._last_message: datetime | None = None
        self.status = MessengerStatus("connecting" if on else "off")

    def configure(self, *, on: bool) -> None:
        """Connect anew, with settings that changed; or not at all."""
        self._on = on
        self.status = self._without_account("connecting" if on else "off")
        self._changed.set()

    def identify(self, account: str, link: str, note: str = "") -> None:
        """Who the bot is, where it is reached, and what would work better."""
        self.status = replace(self.status, account=account, link=link, note=note)

    def set_state(self, state: ConnectionState) -> None:
        if state == "connected":
            self._tries = 0
            report_recovery()
        self.status = replace(self.status, state=state, problem="", fix="")

    def received_at(self, at: datetime) -> None:
        self._last_message = max(at, self._last_message or at)
        self.status = replace(self.status, last_message=self._last_message)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = self._supervisor.start(self._label, self._run)
        try:
            yield
        finally:
            await task.stop()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if not self._on:
                self.status = self._without_account("off")
                report_recovery()
                await self._changed.wait()
                continue
            try:
                await unless_stopped(self._changed, self._follow())
            except CoterieError as error:
                self._tries += 1
                await self._wait_after(error)

    async def _wait_after(self, error: CoterieError) -> None:
        what, fix = redact(error.what), redact(error.fix)
        report_problem(what, fix)
        self.status = replace(self.status, state="retrying", problem=what, fix=fix)
        backoff = backoff_s(self._tries, maximum=_MAX_BACKOFF_S)
        wait_s = error.retry_after_s if isinstance(error, PlatformRateLimited) else backoff
        _log.warning(f"{self._label} does not work", tries=self._tries, retry_in_s=wait_s, error=redact(str(error)))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    def _without_account(self, state: ConnectionState) -> MessengerStatus:
        return MessengerStatus(state, last_message=self._last_message)


class LateService(Generic[SettingsT, ServiceT]):
    """The service of a messenger, made when there is a token: its library takes a part of a second to load."""

    def __init__(
        self, label: str, settings: SettingsT, make: Callable[[SettingsT], ServiceT], supervisor: Supervisor
    ) -> None:
        self.settings = settings
        self.service: ServiceT | None = None
        """The running service; None before it was needed."""
        self._label = label
        self._make = make
        self._supervisor = supervisor
        self._needed = asyncio.Event()

    @property
    def status(self) -> MessengerStatus:
        if self.service is not None:
            return self.service.status
        return MessengerStatus("off" if self.settings.token is None else "connecting")

    def use(self, settings: SettingsT) -> None:
        """Use these settings from now on, without a restart."""
        self.settings = settings
        if self.service is not None:
            self.service.configure(settings)
        self._needed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self.settings.token is not None:
            self._needed.set()
        task = self._supervisor.start(f"{self._label} set-up", self._run)
        try:
            yield
        finally:
            await task.stop()

    async def _run(self) -> None:
        await self._needed.wait()
        self.service = self._make(self.settings)
        async with self.service.running():
            await asyncio.Event().wait()
