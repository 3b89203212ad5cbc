"""The door: where a password is set, nobody reads or writes anything before they have given it. P17

Plain ASGI, like the guard. Without a password there is no door: the guard lets only this machine in.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from math import ceil
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.surfaces.web.errors import ERROR_RESPONSES, error_response
from coterie.surfaces.web.negotiation import accepts_html
from coterie.surfaces.web.paper import page_response
from coterie.surfaces.web.sessions import SESSION_SECONDS, Sessions, TooManyTries, WrongPassword
from coterie.surfaces.web.shapes import DoneResponse, RequestModel

SESSION_COOKIE = "coterie"
_PUBLIC_PATHS = ("/login", "/health")


class LoginMiddleware:
    def __init__(self, app: ASGIApp, sessions: Sessions, keyed: tuple[str, ...] = ()) -> None:
        """`keyed` are paths that ask for a key themselves, with all that is below them."""
        self._app = app
        self._sessions = sessions
        self._keyed = keyed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_allowed(scope["path"], Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        await _login_required(scope)(scope, receive, send)

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        if path in _PUBLIC_PATHS or path.startswith("/static/"):
            return True
        if any(path == one or path.startswith(f"{one}/") for one in self._keyed):
            return True
        return self._sessions.is_valid(_session_token(headers))


def _login_required(scope: Scope) -> Response:
    headers = Headers(scope=scope)
    if scope["method"] in ("GET", "HEAD") and accepts_html(headers) and "hx-request" not in headers:
        asked = scope["path"] + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        return RedirectResponse(f"/login?next={quote(asked)}", 303)
    return error_response(401, "This house asks for its password.", "Log in at /login first, and keep the cookie.")


def _session_token(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(SESSION_COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


class Password(RequestModel):
    password: SecretStr


def login_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter(tags=["login"], responses=ERROR_RESPONSES)

    @router.get("/login", include_in_schema=False)
    async def ask(request: Request, next: str = "/") -> Response:  # noqa: A002 - the name people know
        if sessions.is_valid(_session_token(request.headers)):
            return RedirectResponse(_local_path(next), 303)
        return page_response(request, "login.html", next=_local_path(next))

    @router.post("/login", summary="Come in with the password; the answer sets a session cookie")
    async def come_in(request: Request, told: Password) -> Response:
        caller = request.client.host if request.client else ""
        try:
            token = await sessions.log_in(told.password.get_secret_value(), caller)
        except TooManyTries as error:
            refused = error_response(error.http_status, f"password: {error.what}", error.fix)
            refused.headers["Retry-After"] = str(ceil(error.wait_s))
            return refused
        except WrongPassword as error:
            return error_response(error.http_status, f"password: {error.what}", error.fix)
        done = JSONResponse({"done": True})
        secure = request.url.scheme == "https"
        done.set_cookie(SESSION_COOKIE, token, SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
        return done

    @router.post("/logout", summary="Go out: this session ends")
    async def go_out(request: Request, response: Response) -> DoneResponse:
        sessions.log_out(_session_token(request.headers))
        response.delete_cookie(SESSION_COOKIE)
        return DoneResponse()

    return router


def _local_path(address: str) -> str:
    """Where to go afterwards, and nowhere but in this house."""
    inside = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if inside and address.isprintable() else "/"
