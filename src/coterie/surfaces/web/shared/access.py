"""Who may use a route: the owner every one, a guest only those declared with `open_to_guests`.

A guest holds links, each of which opens one document on one branch. The links are in a cookie; a name in a query or a
body never decides who acts. A route that is not declared is closed to guests. The declaration names the document that a
request is about, which must be the one of a link, and the role that the link must have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coterie.base.errors import CoterieError
from coterie.base.values import is_loopback
from coterie.characters import OWNER
from coterie.modes.draft import Contributor, DraftService, GuestRole, Share
from coterie.surfaces.web.shared.dependencies import PeopleDep, Services
from coterie.surfaces.web.shared.errors import error_response

GUEST_COOKIE = "coterie-person"
"""The tokens of the guest's links, separated by dots."""
MAX_LINKS = 20
_RULE = "__guest_rule__"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class OutsideLink(CoterieError):
    """A guest asks for something that none of their links opens."""

    http_status = 403

    def __init__(self) -> None:
        super().__init__("Your link does not open this.", "Open the link that you were given, or ask for another one.")


class LinkExpired(CoterieError):
    http_status = 401

    def __init__(self) -> None:
        super().__init__(
            "Your link is no longer valid.", "Ask for a new one. If this is your own Coterie, continue at /join."
        )


@dataclass(frozen=True, slots=True)
class DocumentOnBranch:
    workspace: str
    document: str
    branch: str | None
    """None if the request's body names it; the route must then call `Access.contributor`."""


FindDocument = Callable[[DraftService, HTTPConnection], DocumentOnBranch | None]
"""The document that a request is about; None if the route itself checks each one, with `Access`."""


@dataclass(frozen=True, slots=True)
class GuestRule:
    find: FindDocument
    role: GuestRole


def open_to_guests(find: FindDocument, role: GuestRole = "reader") -> Callable[[_Endpoint], _Endpoint]:
    """Declare that guests with a link to the document, and at least this role, may use a route."""

    def declare(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _RULE, GuestRule(find, role))
        return endpoint

    return declare


def guest_rule(route: BaseRoute) -> GuestRule | None:
    rule: GuestRule | None = getattr(getattr(route, "endpoint", None), _RULE, None)
    return rule


# Cookies


def cookie_name(name: str, headers: Headers) -> str:
    """The name with the port of this server's address: browsers send cookies to all ports of a host alike."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{name}-{port}" if port.isascii() and port.isdecimal() else name


def cookie_values(headers: Headers, name: str) -> list[str]:
    """The values of all cookies of this name. Cookies of other apps, which may have any form, are skipped."""
    pairs = (pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value.strip().strip('"') for key, _, value in pairs if key.strip() == name]


# The document that a request is about


def document_in_path(draft: DraftService, request: HTTPConnection) -> DocumentOnBranch:
    """`{workspace}` and `{path}` in the path, `branch` in the query."""
    workspace = request.path_params["workspace"]
    branch = request.query_params.get("branch") or draft.workspaces.repository(workspace).main_branch
    return DocumentOnBranch(workspace, request.path_params["path"], branch)


def document_in_query(draft: DraftService, request: HTTPConnection) -> DocumentOnBranch:
    """`{workspace}` in the path, `document` and `branch` in the query."""
    workspace = request.path_params["workspace"]
    branch = request.query_params.get("branch") or draft.workspaces.repository(workspace).main_branch
    return DocumentOnBranch(workspace, request.query_params.get("document", ""), branch)


def branch_in_body(draft: DraftService, request: HTTPConnection) -> DocumentOnBranch:
    """`{workspace}` and `{path}` in the path, the branch in the body."""
    return DocumentOnBranch(request.path_params["workspace"], request.path_params["path"], None)


def document_of_thread(draft: DraftService, request: HTTPConnection) -> DocumentOnBranch:
    thread = draft.thread_queries.thread(f"room:{request.path_params['thread']}")
    return DocumentOnBranch(thread.workspace, thread.document, thread.branch)


def document_of_change(draft: DraftService, request: HTTPConnection) -> DocumentOnBranch:
    change = draft.proposal_queries.proposal(request.path_params["change"])
    return DocumentOnBranch(change.workspace, change.document, change.branch)


def checked_by_route(draft: DraftService, request: HTTPConnection) -> None:
    """The route checks what it is asked for, with `Access`."""


# Guests


def guest_cookie(headers: Headers) -> str:
    return cookie_name(GUEST_COOKIE, headers)


def guest_tokens(headers: Headers) -> list[str]:
    values = cookie_values(headers, guest_cookie(headers))
    return [token for value in values for token in value.split(".") if token][:MAX_LINKS]


class GuestAccess:
    """Decides which requests of guests are let through. `routers` are in the order in which the server asks them."""

    def __init__(self, routers: Sequence[APIRouter], services: Services) -> None:
        self._routers = routers
        self._services = services

    def shares(self, tokens: Sequence[str]) -> list[Share]:
        return [share for token in tokens if (share := self._services.draft.sharing.find(token)) is not None]

    def admit(self, scope: Scope, shares: Sequence[Share]) -> None:
        """Note in the scope what the guest may do; raises `OutsideLink` if it is not what the request asks for."""
        rule, path_params = self._declared(scope)
        if rule is None:
            raise OutsideLink
        try:
            wanted = rule.find(self._services.draft, HTTPConnection({**scope, "path_params": path_params}))
        except CoterieError:
            raise OutsideLink from None  # whether it exists is not for guests to know
        allowed = [share for share in shares if share.allows(rule.role)]
        if wanted is not None:
            allowed = [
                share
                for share in allowed
                if share.opens(wanted.workspace, wanted.document, wanted.branch or share.branch)
            ]
        if not allowed:
            raise OutsideLink
        chosen = allowed[0] if wanted is not None and wanted.branch is not None else None
        scope.setdefault("state", {}).update(share=chosen, shares=tuple(allowed))

    def _declared(self, scope: Scope) -> tuple[GuestRule | None, dict[str, Any]]:
        for router in self._routers:
            for route in router.routes:
                match, child = route.matches(scope)
                if match is Match.FULL:
                    return guest_rule(route), child.get("path_params", {})
        return None, {}


@dataclass(frozen=True, slots=True)
class Access:
    """What the person who asks may do."""

    owner: Contributor
    shares: tuple[Share, ...] | None
    """The links of a guest that the route's declaration admits; None for the owner."""

    def contributor(self, workspace: str, document: str, branch: str, role: GuestRole = "reader") -> Contributor:
        """The person who acts on a document; raises `OutsideLink` for a guest without a link to it."""
        if self.shares is None:
            return self.owner
        for share in self.shares:
            if share.opens(workspace, document, branch) and share.allows(role):
                return Contributor(share.person, share.name)
        raise OutsideLink


def guest_share(request: HTTPConnection) -> Share | None:
    """The link that a guest's request uses; None for the owner, and for routes that check links themselves."""
    share: Share | None = request.scope.get("state", {}).get("share")
    return share


async def _access(people: PeopleDep, request: HTTPConnection) -> Access:
    owner = people.person(OWNER)
    return Access(Contributor(owner.id, owner.name), request.scope.get("state", {}).get("shares"))


AccessDep = Annotated[Access, Depends(_access)]


async def _current_person(people: PeopleDep, request: HTTPConnection) -> Contributor:
    share = guest_share(request)
    if share is not None:
        return Contributor(share.person, share.name)
    if request.scope.get("state", {}).get("shares") is not None:
        raise OutsideLink
    owner = people.person(OWNER)
    return Contributor(owner.id, owner.name)


CurrentPerson = Annotated[Contributor, Depends(_current_person)]


class PasswordConfirmations(Protocol):
    """Checks that the owner has confirmed a request with the password."""

    def use_confirmation(self, headers: Headers) -> bool: ...


async def _confirmed(request: HTTPConnection) -> bool:
    confirmations: PasswordConfirmations | None = request.app.state.confirmations
    return confirmations is not None and confirmations.use_confirmation(request.headers)


Confirmed = Annotated[bool, Depends(_confirmed)]
"""Whether the owner has confirmed this request with the password; never without a password."""


# Admits only requests to this machine's own name, and no changes that come from another site's page.
#
# A page elsewhere can make a browser send requests here, and can point a name of its own at 127.0.0.1 (DNS rebinding).
# So the Host must be a name of this machine, and what changes anything must not come from another origin. With a
# password other names are allowed, because a rebound name has no session. It is plain ASGI: Starlette's
# BaseHTTPMiddleware would keep a live stream from noticing that its connection ended.


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
