"""Login with a password: sessions, the middleware that admits the owner and guests, and the login page.

Sessions are kept in this process only, as digests of their tokens, so a restart asks for the password again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from http.cookies import CookieError, SimpleCookie
from math import ceil
from urllib.parse import quote

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import CoterieError
from coterie.surfaces.web.shared.access import GuestAccess, LinkExpired, OutsideLink, guest_tokens
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES, error_response, negotiated_error
from coterie.surfaces.web.shared.templates import accepts_html, page_response
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel

SESSION_SECONDS = 30 * 86_400
_FREE_TRIES = 5
_FIRST_WAIT_S, _MAX_WAIT_S = 30.0, 900.0
_MAX_CALLERS = 10_000
_HASHED = "$argon2"


class WrongPassword(CoterieError):
    http_status = 401


class TooManyTries(CoterieError):
    http_status = 429

    def __init__(self, wait_s: float) -> None:
        super().__init__("There were too many wrong passwords.", f"Try again in {ceil(wait_s)} s.")
        self.wait_s = wait_s


def hash_password(password: str) -> str:
    return password if password.startswith(_HASHED) else PasswordHasher().hash(password)


class Sessions:
    def __init__(self, password: str, clock: Clock | None = None) -> None:
        """`password` as it is, or the Argon2 hash of it."""
        self._hash = hash_password(password)
        self._clock = clock or SystemClock()
        self._expiry: dict[bytes, float] = {}
        self._wrong: dict[str, tuple[int, float]] = {}
        # Argon2 takes 64 MB a time: many logins at once must not fill the memory.
        self._hashing = asyncio.Semaphore(1)

    async def log_in(self, password: str, caller: str) -> str:
        """The token of a new session. After a few wrong passwords, each doubles the wait of its caller."""
        async with self._hashing:
            now = self._clock.monotonic()
            tries, not_before = self._wrong.get(caller, (0, 0.0))
            if now < not_before:
                raise TooManyTries(not_before - now)
            if not await asyncio.to_thread(self._matches, password):
                self._count_wrong(caller, tries + 1)
                raise WrongPassword("That is not the password.", "Try again; `coterie password` sets a new one.")
            self._wrong.pop(caller, None)
            self._expiry = {digest: until for digest, until in self._expiry.items() if until > now}
            token = secrets.token_urlsafe(32)
            self._expiry[_digest(token)] = now + SESSION_SECONDS
            return token

    def is_valid(self, token: str) -> bool:
        until = self._expiry.get(_digest(token))
        return until is not None and until > self._clock.monotonic()

    def admits(self, headers: Headers) -> bool:
        """Whether a request with these headers has a session."""
        return self.is_valid(_session_token(headers))

    def log_out(self, token: str) -> None:
        self._expiry.pop(_digest(token), None)

    def _matches(self, password: str) -> bool:
        try:
            return PasswordHasher().verify(self._hash, password)
        except (VerificationError, InvalidHashError):
            return False

    def _count_wrong(self, caller: str, tries: int) -> None:
        wait = min(_FIRST_WAIT_S * 2.0 ** (tries - _FREE_TRIES), _MAX_WAIT_S) if tries >= _FREE_TRIES else 0.0
        if len(self._wrong) >= _MAX_CALLERS:
            self._wrong.pop(next(iter(self._wrong)))
        self._wrong[caller] = (tries, self._clock.monotonic() + wait)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


SESSION_COOKIE = "coterie"
_PUBLIC_PATHS = ("/login", "/health", "/join")


class LoginMiddleware:
    """Admits the owner, guests where their links allow it, and everybody to what is public.

    With a password, the owner is who has a session. Without one, SecurityMiddleware admits only this machine, and the
    owner is every browser that holds no link.
    """

    def __init__(
        self, app: ASGIApp, sessions: Sessions | None, guests: GuestAccess, keyed: tuple[str, ...] = ()
    ) -> None:
        """`keyed` are path prefixes whose routes check a key themselves."""
        self._app = app
        self._sessions = sessions
        self._guests = guests
        self._open = (*_PUBLIC_PATHS, "/static", *keyed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refusal(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> Response | None:
        """None if the request is admitted."""
        path, headers = scope["path"], Headers(scope=scope)
        if any(path == one or path.startswith(f"{one}/") for one in self._open):
            return None
        tokens = guest_tokens(headers)
        if self._sessions.admits(headers) if self._sessions is not None else not tokens:
            return None
        shares = self._guests.shares(tokens)
        if not shares and self._sessions is not None:
            return _login_required(scope) if scope["type"] == "http" else Response(status_code=401)
        try:
            if not shares:
                raise LinkExpired
            self._guests.admit(scope, shares)
        except (OutsideLink, LinkExpired) as error:
            scope.setdefault("state", {})["shares"] = ()
            if scope["type"] != "http":
                return Response(status_code=error.http_status)
            return negotiated_error(Request(scope), error.http_status, error.what, error.fix)
        return None


def _login_required(scope: Scope) -> Response:
    headers = Headers(scope=scope)
    if scope["method"] in ("GET", "HEAD") and accepts_html(headers) and "hx-request" not in headers:
        path = scope["path"] + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        return RedirectResponse(f"/login?next={quote(path)}", 303)
    return error_response(401, "A password is required.", "Log in at /login first, and keep the cookie.")


def _session_token(headers: Headers) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(SESSION_COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


class Password(RequestModel):
    password: SecretStr


def login_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter(tags=["login"], responses=ERROR_RESPONSES)

    @router.get("/login", include_in_schema=False)
    async def login_page(request: Request, next: str = "/") -> Response:  # noqa: A002 - the name people know
        if sessions.is_valid(_session_token(request.headers)):
            return RedirectResponse(_local_path(next), 303)
        return page_response(request, "shared/login.html", next=_local_path(next))

    @router.post("/login", summary="Log in; sets a session cookie")
    async def log_in(request: Request, body: Password) -> Response:
        caller = request.client.host if request.client else ""
        try:
            token = await sessions.log_in(body.password.get_secret_value(), caller)
        except TooManyTries as error:
            response = error_response(error.http_status, f"password: {error.what}", error.fix)
            response.headers["Retry-After"] = str(ceil(error.wait_s))
            return response
        except WrongPassword as error:
            return error_response(error.http_status, f"password: {error.what}", error.fix)
        done = JSONResponse({"done": True})
        secure = request.url.scheme == "https"
        done.set_cookie(SESSION_COOKIE, token, SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
        return done

    @router.post("/logout", summary="Log out")
    async def log_out(request: Request, response: Response) -> DoneResponse:
        sessions.log_out(_session_token(request.headers))
        response.delete_cookie(SESSION_COOKIE)
        return DoneResponse()

    return router


def _local_path(address: str) -> str:
    """The path to go to after login; `/` for anything that leads to another site."""
    inside = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if inside and address.isprintable() else "/"
