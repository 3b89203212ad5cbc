"""Admits only requests to this machine's own name, and no changes that come from another site's page.

A page elsewhere can make a browser send requests here, and can point a name of its own at 127.0.0.1 (DNS rebinding).
So the Host must be a name of this machine, and what changes anything must not come from another origin. With a
password other names are allowed, because a rebound name has no session. It is plain ASGI: Starlette's
BaseHTTPMiddleware would keep a live stream from noticing that its connection ended.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coterie.base.network import is_loopback
from coterie.surfaces.web.shared.errors import error_response


def content_security_policy(nonce: str = "") -> str:
    """The policy of a page; a nonce allows style sheets that carry it."""
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

        refusal = _refusal(scope["method"], Headers(scope=scope), self._any_name)
        if refusal is not None:
            await error_response(*refusal)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def _refusal(method: str, headers: Headers, any_name: bool) -> tuple[int, str, str] | None:
    host = headers.get("host", "")
    if not any_name and not is_this_machine(host):
        return 421, f"{host or 'No host'} is not a name of this machine.", "Open Coterie at http://127.0.0.1:8000."
    if _is_cross_origin(method, headers, host):
        return 403, "Another site asked for this, and it was refused.", "Do it from Coterie's own page."
    return None


def _is_cross_origin(method: str, headers: Headers, host: str) -> bool:
    site = headers.get("sec-fetch-site")
    if method in _SAFE_METHODS:
        # Reading changes nothing, but some pages call a model.
        return site == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if site is not None and site not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    # Scripts send no origin; browsers always send one with unsafe methods.
    return origin is not None and _netloc(origin) != host.lower()


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def is_this_machine(host: str) -> bool:
    """Whether a Host header names this machine: localhost or a loopback address, with any port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return "@" not in host and (name.endswith(".localhost") or is_loopback(name))
