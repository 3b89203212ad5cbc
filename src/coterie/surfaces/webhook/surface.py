"""The webhook's adapter and settings: replies are read from the outbox, or posted to the caller's callback.

The callback address is the message's thread, so that it is stored with the message and every answer goes there.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

import httpx
from pydantic import Field, SecretStr

from coterie.base.config import PageSetting, ProtectedSetting, Section
from coterie.messaging import (
    Account,
    Capabilities,
    Deliverable,
    MessageRouter,
    OutgoingMessage,
    OutgoingReaction,
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnreachable,
    RoomRef,
)


class WebhookSettings(Section):
    """The webhook: `POST /webhook` from other programs."""

    secret: ProtectedSetting[SecretStr | None] = None
    """The secret that callers send as `X-Webhook-Secret`. Without one, only programs on this machine can call."""
    callbacks: ProtectedSetting[tuple[str, ...]] = ()
    """Addresses that replies may be posted to, with all paths below them."""
    callback_secret: ProtectedSetting[SecretStr | None] = None
    """The key that signs posted replies, for receivers to check the sender. Callers' own secret is never sent."""
    wait_s: PageSetting[float] = Field(default=120.0, ge=0)
    """How long a caller may wait for the reply."""


def is_allowed_callback(address: str, allowed: tuple[str, ...]) -> bool:
    """Whether an address is an allowed one or below one: the same scheme, host and port, and a path within.

    Addresses are compared in the form in which they are sent. A receiver may decode the path again, also several times,
    so a path is refused that could lead out of the allowed one then.
    """
    url = _parse_url(address)
    if url is None or url.scheme not in ("http", "https") or url.userinfo or "\\" in address:
        return False
    path = _path(url)
    if not _stays_below(path):
        return False
    for prefix in filter(None, map(_parse_url, allowed)):
        base = _path(prefix).rstrip("/")
        is_same_origin = (prefix.scheme, prefix.raw_host, prefix.port) == (url.scheme, url.raw_host, url.port)
        if is_same_origin and (path == base or path.startswith(f"{base}/")):
            return True
    return False


def _parse_url(address: str) -> httpx.URL | None:
    try:
        return httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        return None


def _path(url: httpx.URL) -> str:
    """The path in the form in which it is sent."""
    return url.raw_path.decode("ascii").partition("?")[0]


def _stays_below(path: str) -> bool:
    """Whether the path has no dot segments, backslashes or control characters, however often it is decoded."""
    while True:
        segments = [segment.partition(";")[0] for segment in path.split("/")]
        if "\\" in path or not path.isprintable() or any(segment in (".", "..") for segment in segments):
            return False
        decoded = unquote(path)
        if decoded == path:
            return True
        path = decoded


NAME = "webhook"
CALLER = "caller"
"""The default sender: a caller with the secret is the owner."""
_DEFAULT_RETRY_S = 30.0


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
            return token  # the caller reads it from the outbox
        if not is_allowed_callback(outgoing.thread, self._settings.callbacks):
            raise PlatformRefused(
                "This callback address is not allowed.", "Add it to webhook.callbacks in config.toml."
            )
        body = {"room": outgoing.room.id, "token": token, "type": outgoing.type, "text": text_of(outgoing)}
        content = json.dumps(body, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": token}
        if self._settings.callback_secret is not None:
            headers |= _signature(content, self._settings.callback_secret)
        try:
            response = await self._client.post(outgoing.thread, content=content, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PlatformUnreachable(f"The callback cannot be reached ({error}).", ambiguous=False) from error
        except httpx.HTTPError as error:
            raise PlatformUnreachable(f"The callback's connection broke ({type(error).__name__}).") from error
        _check_response(response)
        return token

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        raise PlatformRefused("A posted message cannot be edited.", "Nothing needs to be done.")

    async def typing(self, room: RoomRef, on: bool) -> None:
        """Not supported."""

    async def preview(self, outgoing: OutgoingMessage, token: str) -> None:
        raise PlatformRefused("The webhook has no previews.", "Callers get the complete reply.")

    async def create_room(self, person: Account, title: str, key: str, asked_in: RoomRef) -> RoomRef | None:
        raise PlatformRefused("The webhook's callers create rooms.", "Send a message to a room of that name.")

    async def rename_room(self, room: RoomRef, title: str) -> None:
        """Not supported: callers name the rooms."""

    async def leave_room(self, room: RoomRef) -> None:
        """Not supported: callers decide what they send."""

    async def direct_room(self, person: Account) -> RoomRef | None:
        return None


@asynccontextmanager
async def attached(router: MessageRouter, settings: WebhookSettings) -> AsyncIterator[WebhookSurface]:
    surface = WebhookSurface(settings)
    router.attach(surface)
    try:
        yield surface
    finally:
        router.detach(surface)
        await surface.close()


def _signature(content: bytes, key: SecretStr) -> dict[str, str]:
    """Headers by which the receiver can check the sender and the age of a request, without getting the key."""
    timestamp = str(int(time.time()))
    digest = hmac.new(key.get_secret_value().encode(), f"{timestamp}.".encode() + content, "sha256").hexdigest()
    return {"X-Webhook-Timestamp": timestamp, "X-Webhook-Signature": f"sha256={digest}"}


def text_of(outgoing: Deliverable) -> str:
    return outgoing.emoji if isinstance(outgoing, OutgoingReaction) else outgoing.text


def _check_response(response: httpx.Response) -> None:
    if response.is_success:
        return
    status, retry_after = response.status_code, response.headers.get("retry-after")
    if status == 429 or (status == 503 and retry_after is not None):
        raise PlatformRateLimited("The callback limits the rate.", _retry_after_s(retry_after))
    if status in (408, 425) or status >= 500:
        raise PlatformUnreachable(f"The callback answered {status}.", ambiguous=False)
    raise PlatformRefused(f"The callback answered {status}.", "It is not tried again.")


def _retry_after_s(header: str | None) -> float:
    """The header is a number of seconds or a date."""
    if header is None:
        return _DEFAULT_RETRY_S
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return _DEFAULT_RETRY_S
