"""The webhook as a surface: rooms that callers name, replies that wait to be read or are posted to their callback.

A callback address travels as the message's thread, so that it is as durable, and all of the answer goes there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx
from pydantic import Field, SecretStr

from coterie.base.config import Section
from coterie.messaging import (
    Account,
    Capabilities,
    Deliverable,
    MessageRouter,
    OutgoingReaction,
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnreachable,
    RoomRef,
)

# Who may call, and whom we may call back.


class WebhookSettings(Section):
    """The webhook: `POST /webhook` from other programs."""

    secret: SecretStr | None = None
    """What callers send as `X-Webhook-Secret`. Without one, only programs on this machine can call."""
    callbacks: tuple[str, ...] = ()
    """Addresses that replies may be posted to, each with all that is below it."""
    wait_s: float = Field(default=120.0, ge=0)
    """How long a caller may wait for the reply."""


def is_allowed_callback(url: str, allowed: tuple[str, ...]) -> bool:
    """Whether an address is one of the allowed, or below one: same scheme, host and port, and the path within."""
    try:
        asked = urlsplit(url)
        asked_port = asked.port
    except ValueError:
        return False
    if asked.scheme not in ("http", "https") or asked.username is not None or ".." in asked.path or "\\" in url:
        return False
    for prefix in map(urlsplit, allowed):
        same = (prefix.scheme, prefix.hostname, prefix.port) == (asked.scheme, asked.hostname, asked_port)
        base = prefix.path.rstrip("/")
        if same and (asked.path == base or asked.path.startswith(f"{base}/")):
            return True
    return False


NAME = "webhook"
CALLER = "caller"
"""Who calls, unless they say otherwise: whoever knows the secret is the owner."""
_PATIENCE_S = 30.0


class WebhookSurface:
    name = NAME
    capabilities = Capabilities(max_length=100_000, command_prefix="/")

    def __init__(self, settings: WebhookSettings, client: httpx.AsyncClient | None = None) -> None:
        self._settings = settings
        # A redirect could lead past the list of allowed addresses.
        self._client = client or httpx.AsyncClient(timeout=20.0, follow_redirects=False, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, outgoing: Deliverable, token: str) -> str:
        if outgoing.thread is None:
            return token  # it stands in the outbox, where the caller reads it
        if not is_allowed_callback(outgoing.thread, self._settings.callbacks):
            raise PlatformRefused(
                "This callback address is not allowed.", "Add it to webhook.callbacks in config.toml."
            )
        told = {"room": outgoing.room.id, "token": token, "type": outgoing.type, "text": text_of(outgoing)}
        headers = {"Idempotency-Key": token}
        if self._settings.secret is not None:
            headers["X-Webhook-Secret"] = self._settings.secret.get_secret_value()
        try:
            answer = await self._client.post(outgoing.thread, json=told, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PlatformUnreachable(f"The callback cannot be reached ({error}).", ambiguous=False) from error
        except httpx.HTTPError as error:
            raise PlatformUnreachable(f"The callback broke off ({type(error).__name__}).") from error
        _check(answer)
        return token

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        raise PlatformRefused("What was posted cannot be changed.", "Nothing is to be done.")

    async def typing(self, room: RoomRef, on: bool) -> None:
        """Programs do not watch."""

    async def create_room(self, person: Account, title: str, key: str) -> RoomRef:
        raise PlatformRefused("Rooms of the webhook are made by naming them.", "Send a message to a room of that name.")

    async def rename_room(self, room: RoomRef, title: str) -> None:
        """Their names are the callers'."""


@asynccontextmanager
async def attached(board: MessageRouter, settings: WebhookSettings) -> AsyncIterator[WebhookSurface]:
    surface = WebhookSurface(settings)
    board.attach(surface)
    try:
        yield surface
    finally:
        board.detach(surface)
        await surface.close()


def text_of(outgoing: Deliverable) -> str:
    return outgoing.emoji if isinstance(outgoing, OutgoingReaction) else outgoing.text


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    if answer.status_code == 429 or (answer.status_code == 503 and "retry-after" in answer.headers):
        raise PlatformRateLimited("The callback asks for patience.", _retry_after(answer.headers.get("retry-after")))
    if answer.status_code in (408, 425) or answer.status_code >= 500:
        raise PlatformUnreachable(f"The callback answered {answer.status_code}.", ambiguous=False)
    raise PlatformRefused(f"The callback answered {answer.status_code}.", "It is not tried again.")


def _retry_after(told: str | None) -> float:
    """Seconds, or a date."""
    if told is None:
        return _PATIENCE_S
    if told.strip().isdecimal():
        return float(told)
    try:
        return max(0.0, (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return _PATIENCE_S
