"""Who may ask: this machine, under its own name, and no other site's page through somebody's browser.

A page elsewhere can make a browser send requests here, and can point a name of its own at 127.0.0.1 (DNS rebinding).
So the Host must be a name of this machine, and what changes anything must not come from another origin. Behind a door
with a password other names are fine: a rebound name brings no session with it. It is plain ASGI: a wrapper around
responses would stand between a live stream and the end of its connection.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coterie.base.network import is_loopback
from coterie.surfaces.web.shared.errors import error_response


def content_security_policy(nonce: str = "") -> str:
    """What a page may load and run; with a nonce, also the style sheets that bear it."""
    style = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
    return (
        f"default-src 'none'; script-src 'self'; style-src {style}; img-src 'self'; font-src 'self';"
        " connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


_HEADERS = {
    "Content-Security-Policy": content_security_policy(),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_BYTES = 4_000_000
_MAX_FILE_BYTES = 101_000_000
"""A little more than a card may have: the card's own error is the better one."""


class SecurityMiddleware:
    def __init__(self, app: ASGIApp, *, any_name: bool = False) -> None:
        self._app = app
        self._any_name = any_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = _refusal(scope["method"], scope["path"], Headers(scope=scope), self._any_name)
        if refusal is not None:
            await error_response(*refusal)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def _refusal(method: str, path: str, headers: Headers, any_name: bool) -> tuple[int, str, str] | None:
    host = headers.get("host", "")
    if not any_name and not is_this_machine(host):
        return 421, f"{host or 'No host'} is not a name of this machine.", "Open Coterie at http://127.0.0.1:8000."
    if _is_cross_origin(method, headers, host):
        return 403, "Another site asked for this, and it was refused.", "Do it from Coterie's own page."
    size = headers.get("content-length", "0")
    most = _MAX_FILE_BYTES if path.endswith(("/import", "/webhook/files")) else _MAX_BYTES
    if not size.isdecimal() or int(size) > most:
        return 413, f"The request is larger than {most / 1e6:.0f} MB.", "Send less at once."
    return None


def _is_cross_origin(method: str, headers: Headers, host: str) -> bool:
    site = headers.get("sec-fetch-site")
    if method in _SAFE_METHODS:
        # Looking is harmless, but asking for a proposal costs a model call.
        return site == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if site is not None and site not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    # Scripts and commands send no origin; browsers always do when something may change.
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()


def is_this_machine(host: str) -> bool:
    """Whether a Host header names this machine: localhost or a loopback address, with any port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return "@" not in host and (name.endswith(".localhost") or is_loopback(name))
