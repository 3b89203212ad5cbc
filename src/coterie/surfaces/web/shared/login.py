"""Login with a password: sessions, the middleware that admits the owner and guests, and the login page.

Sessions are kept in this process only, as digests of their tokens, so a restart asks for the password again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
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
from coterie.surfaces.web.shared.access import (
    GuestAccess,
    LinkExpired,
    OutsideLink,
    cookie_name,
    cookie_values,
    guest_tokens,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES, error_response, negotiated_error
from coterie.surfaces.web.shared.templates import accepts_html, page_response
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel, ResponseModel

SESSION_SECONDS = 30 * 86_400
DEVICE_SECONDS = 365 * 86_400
CONFIRMATION_SECONDS = 120
CONFIRMATION_HEADER = "coterie-confirmation"
_FREE_TRIES = 5
_FIRST_WAIT_S, _MAX_WAIT_S = 30.0, 900.0
_MAX_CALLERS = 10_000
_FREE_TRIES_OF_ALL = 50
_REFILL_S = 10.0
"""How long until unknown callers together may try once more."""
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


class LoginLimits:
    """How soon a caller may try a password again.

    Each address waits for its own wrong tries, twice as long after each. Wrong tries from all addresses together are
    limited too, so that many addresses guess no faster than a few. A browser that has logged in before is a caller of
    its own and is not subject to either: nobody can lock it out from elsewhere.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: dict[str, tuple[int, float]] = {}
        """Caller → wrong tries so far, and when it may try again."""
        self._tries_left = float(_FREE_TRIES_OF_ALL)
        self._counted_at = clock.monotonic()

    def check(self, caller: str, *, is_known: bool) -> None:
        """Raise `TooManyTries` if the caller has to wait."""
        now = self._clock.monotonic()
        _, not_before = self._wrong.get(caller, (0, 0.0))
        wait = not_before - now
        if not is_known:
            wait = max(wait, (1 - self._refilled(now)) * _REFILL_S)
        if wait > 0:
            raise TooManyTries(wait)

    def count_wrong(self, caller: str, *, is_known: bool) -> None:
        now = self._clock.monotonic()
        if not is_known:
            self._tries_left, self._counted_at = self._refilled(now) - 1, now
        tries = self._wrong.pop(caller, (0, 0.0))[0] + 1
        wait = min(_FIRST_WAIT_S * 2.0 ** (tries - _FREE_TRIES), _MAX_WAIT_S) if tries >= _FREE_TRIES else 0.0
        if len(self._wrong) >= _MAX_CALLERS:
            self._wrong.pop(next(iter(self._wrong)))
        self._wrong[caller] = (tries, now + wait)

    def clear(self, caller: str) -> None:
        self._wrong.pop(caller, None)

    def _refilled(self, now: float) -> float:
        return min(self._tries_left + (now - self._counted_at) / _REFILL_S, float(_FREE_TRIES_OF_ALL))


@dataclass(frozen=True)
class LogIn:
    session: str
    """The token of the session."""
    device: str
    """Marks the browser as one that has logged in before."""


class Sessions:
    def __init__(self, password: str, clock: Clock | None = None) -> None:
        """`password` as it is, or the Argon2 hash of it."""
        self._hash = hash_password(password)
        self._clock = clock or SystemClock()
        self._limits = LoginLimits(self._clock)
        self._expiry: dict[bytes, float] = {}
        self._confirmations: dict[bytes, tuple[bytes, float]] = {}
        """Digest of a confirmation → digest of its session, and when it expires."""
        # From the salted hash, never from the password itself, which a cookie would then help to guess.
        self._device_key = hashlib.sha256(f"coterie device {self._hash}".encode()).digest()
        # Argon2 takes 64 MB a time: many logins at once must not fill the memory.
        self._hashing = asyncio.Semaphore(1)

    async def log_in(self, password: str, address: str, device: str = "") -> LogIn:
        """A new session. After a few wrong passwords, each doubles the wait of its caller."""
        await self._check_password(password, address, device)
        now = self._clock.monotonic()
        self._expiry = {digest: until for digest, until in self._expiry.items() if until > now}
        token = secrets.token_urlsafe(32)
        self._expiry[_digest(token)] = now + SESSION_SECONDS
        return LogIn(token, device if self._is_device(device) else self._new_device())

    async def confirm(self, session: str, password: str, address: str, device: str = "") -> str:
        """A token with which this session may, once and soon, do something that needs the password."""
        await self._check_password(password, address, device)
        now = self._clock.monotonic()
        self._confirmations = {key: entry for key, entry in self._confirmations.items() if entry[1] > now}
        token = secrets.token_urlsafe(32)
        self._confirmations[_digest(token)] = (_digest(session), now + CONFIRMATION_SECONDS)
        return token

    def use_confirmation(self, headers: Headers) -> bool:
        """Whether the request has a confirmation of its session; it cannot be used again."""
        token = headers.get(CONFIRMATION_HEADER, "")
        session = self.session_of(headers)
        if not token or not session:
            return False
        confirmed, until = self._confirmations.pop(_digest(token), (b"", 0.0))
        return confirmed == _digest(session) and self._clock.monotonic() < until

    def is_valid(self, token: str) -> bool:
        until = self._expiry.get(_digest(token))
        return until is not None and until > self._clock.monotonic()

    def session_of(self, headers: Headers) -> str:
        """The token of the request's session; empty if it has none."""
        return next(filter(self.is_valid, cookie_values(headers, session_cookie(headers))), "")

    def admits(self, headers: Headers) -> bool:
        """Whether a request with these headers has a session."""
        return bool(self.session_of(headers))

    def log_out(self, token: str) -> None:
        self._expiry.pop(_digest(token), None)

    async def _check_password(self, password: str, address: str, device: str) -> None:
        is_known = self._is_device(device)
        caller = device if is_known else _network(address)
        async with self._hashing:
            self._limits.check(caller, is_known=is_known)
            if not await asyncio.to_thread(self._matches, password):
                self._limits.count_wrong(caller, is_known=is_known)
                raise WrongPassword("That is not the password.", "Try again; `coterie password` sets a new one.")
            self._limits.clear(caller)

    def _matches(self, password: str) -> bool:
        try:
            return PasswordHasher().verify(self._hash, password)
        except (VerificationError, InvalidHashError):
            return False

    def _new_device(self) -> str:
        identity = secrets.token_urlsafe(16)
        return f"{identity}.{self._sign(identity)}"

    def _is_device(self, device: str) -> bool:
        identity, _, signature = device.partition(".")
        return hmac.compare_digest(signature.encode(), self._sign(identity).encode())

    def _sign(self, identity: str) -> str:
        return hmac.new(self._device_key, identity.encode("utf-8", "replace"), "sha256").hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _network(address: str) -> str:
    """The address, or the network of 64 bits of an IPv6 address, all of which one caller has."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4 or parsed.is_loopback:
        return address
    return parsed.ipv4_mapped.compressed if parsed.ipv4_mapped else str(ip_network((parsed, 64), strict=False))


SESSION_COOKIE = "coterie"
LOCAL_KEY_HEADER = "Coterie-Local-Key"
DEVICE_COOKIE = "coterie-device"
_PUBLIC_PATHS = ("/login", "/health", "/join")


class LoginMiddleware:
    """Admits the owner, guests where their links allow it, and everybody to what is public.

    With a password, the owner is who has a session. Without one, SecurityMiddleware admits only this machine, and the
    owner is every browser that holds no link.
    """

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions | None,
        guests: GuestAccess,
        keyed: tuple[str, ...] = (),
        local_key: str = "",
    ) -> None:
        """`keyed` are path prefixes whose routes check a key themselves. With `local_key`, which only the owner's own
        account on this machine can read, commands are admitted without a password."""
        self._local_key = local_key.encode()
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
        given = headers.get(LOCAL_KEY_HEADER, "").encode("utf-8", "replace")
        if self._local_key and hmac.compare_digest(given, self._local_key):
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


def session_cookie(headers: Headers) -> str:
    return cookie_name(SESSION_COOKIE, headers)


class Password(RequestModel):
    password: SecretStr


class ConfirmationResponse(ResponseModel):
    confirmation: str
    """Sent once, within two minutes, as the header `Coterie-Confirmation` of the request that needs it."""


def login_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter(tags=["login"], responses=ERROR_RESPONSES)

    @router.get("/login", include_in_schema=False)
    async def login_page(request: Request, next: str = "/") -> Response:  # noqa: A002 - the name people know
        if sessions.admits(request.headers):
            return RedirectResponse(_local_path(next), 303)
        return page_response(request, "shared/login.html", next=_local_path(next))

    @router.post("/login", summary="Log in; sets a session cookie")
    async def log_in(request: Request, body: Password) -> Response:
        try:
            made = await sessions.log_in(body.password.get_secret_value(), *_caller(request))
        except (TooManyTries, WrongPassword) as error:
            return _refused_password(error)
        done = JSONResponse({"done": True})
        cookies = ((SESSION_COOKIE, made.session, SESSION_SECONDS), (DEVICE_COOKIE, made.device, DEVICE_SECONDS))
        for name, value, seconds in cookies:
            name = cookie_name(name, request.headers)
            secure = request.url.scheme == "https"
            done.set_cookie(name, value, seconds, httponly=True, samesite="strict", secure=secure)
        return done

    @router.post(
        "/confirm", summary="Confirm with the password; the next request may do what is protected", response_model=None
    )
    async def confirm(request: Request, body: Password) -> ConfirmationResponse | Response:
        session = sessions.session_of(request.headers)
        try:
            token = await sessions.confirm(session, body.password.get_secret_value(), *_caller(request))
        except (TooManyTries, WrongPassword) as error:
            return _refused_password(error)
        return ConfirmationResponse(confirmation=token)

    @router.post("/logout", summary="Log out")
    async def log_out(request: Request, response: Response) -> DoneResponse:
        sessions.log_out(sessions.session_of(request.headers))
        response.delete_cookie(session_cookie(request.headers))
        return DoneResponse()

    return router


def _caller(request: Request) -> tuple[str, str]:
    """The address of who calls, and the mark of a browser that has logged in before."""
    devices = cookie_values(request.headers, cookie_name(DEVICE_COOKIE, request.headers))
    return request.client.host if request.client else "", devices[0] if devices else ""


def _refused_password(error: TooManyTries | WrongPassword) -> Response:
    response = error_response(error.http_status, f"password: {error.what}", error.fix)
    if isinstance(error, TooManyTries):
        response.headers["Retry-After"] = str(ceil(error.wait_s))
    return response


def _local_path(address: str) -> str:
    """The path to go to after login; `/` for anything that leads to another site."""
    inside = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if inside and address.isprintable() else "/"
