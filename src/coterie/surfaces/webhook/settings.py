"""Who may call, and whom we may call back."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from coterie.base.config import Section


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
