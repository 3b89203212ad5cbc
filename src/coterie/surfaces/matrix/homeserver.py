"""The client of the homeserver's API, and the errors of Matrix.

Requests that change something carry a transaction id where Matrix has one, so that they can be repeated safely.

MatrixRefused     the homeserver refused; `code` is its error code (M_FORBIDDEN …)
LoggedOut         the homeserver no longer accepts this login
KeysRefused       the homeserver has other keys of our device than we do
KeysLost          the keys of our device are lost, and a new device needs the password
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from coterie.base.errors import ConfigError, CoterieError
from coterie.base.untrusted import parse_json, parse_json_without_deep_parts
from coterie.base.values import is_text
from coterie.messaging import PlatformRateLimited, PlatformRefused, PlatformUnreachable, SurfaceError
from coterie.surfaces.matrix.schemas import Json as Json
from coterie.surfaces.matrix.schemas import object_at, objects


class MatrixRefused(PlatformRefused):
    def __init__(self, code: str, message: str, login_session: str = "") -> None:
        """`login_session` is set if the homeserver asks for the password."""
        super().__init__(f"The homeserver refused: {message} ({code}).", "Check the account's rights there.")
        self.code = code
        self.login_session = login_session


class LoggedOut(CoterieError):
    exit_code = 34


class KeysRefused(SurfaceError):
    pass


class KeysLost(CoterieError):
    exit_code = 35


_CLIENT = "/_matrix/client/v3"
_DEFAULT_RETRY_S, _MAX_RETRY_S = 5.0, 3600.0
_FILE_TIMEOUT_S = 300.0
"""Homeservers answer an upload only when they have stored all of it."""


class Homeserver:
    def __init__(self, url: str, token: str = "") -> None:
        try:
            self._http = httpx.AsyncClient(base_url=url.rstrip("/"), timeout=30.0, trust_env=False)
        except httpx.InvalidURL:
            raise _no_address(url) from None
        self.token = token

    async def close(self) -> None:
        await self._http.aclose()

    async def login(self, user: str, password: str, device: str | None = None) -> tuple[str, str, str]:
        """Returns the user, the device and the access token."""
        identifier = {"type": "m.id.user", "user": user}
        body = {"type": "m.login.password", "identifier": identifier, "password": password}
        body |= {"initial_device_display_name": "Coterie"} | ({"device_id": device} if device else {})
        response = await self.call("POST", f"{_CLIENT}/login", body)
        return _text(response, "user_id"), _text(response, "device_id"), _text(response, "access_token")

    async def sync(self, since: str | None, wait_s: float) -> Json:
        # Without a limit the homeserver returns at most ten messages per room.
        filters = '{"room":{"timeline":{"limit":100},"state":{"lazy_load_members":true}},"presence":{"types":[]}}'
        query: dict[str, str] = {"timeout": str(int(wait_s * 1000)), "filter": filters}
        query |= {"since": since} if since else {}
        return _object(await self.call("GET", f"{_CLIENT}/sync", query=query, wait_s=wait_s + 30))

    async def who_am_i(self) -> tuple[str, str]:
        """The user and the device of the access token."""
        response = await self.call("GET", f"{_CLIENT}/account/whoami")
        return _text(response, "user_id"), _text(response, "device_id")

    async def speaks_matrix(self) -> bool:
        try:
            return isinstance(_object(await self.call("GET", "/_matrix/client/versions")).get("versions"), list)
        except MatrixRefused:
            return False

    async def base_url_of_domain(self) -> str | None:
        """The address that the domain names as its homeserver's; None if it names none."""
        try:
            response = await self.call("GET", "/.well-known/matrix/client")
        except MatrixRefused:
            return None
        address = object_at(response, "m.homeserver").get("base_url")
        return address if isinstance(address, str) and address.startswith(("https://", "http://")) else None

    async def logout(self) -> None:
        """Also removes the device and its published keys."""
        await self.call("POST", f"{_CLIENT}/logout", {})

    async def state_of_joined_rooms(self, kinds: Sequence[str]) -> dict[str, list[Json]]:
        """The state events of these kinds of all joined rooms, in one request and without messages."""
        nothing = {"not_types": ["*"]}
        room = {"timeline": nothing, "ephemeral": nothing, "account_data": nothing, "state": {"types": list(kinds)}}
        filters = json.dumps({"room": room, "presence": nothing, "account_data": nothing})
        query = {"filter": filters, "timeout": "0", "full_state": "true"}
        response = await self.call("GET", f"{_CLIENT}/sync", query=query, wait_s=120)
        joined = object_at(response, "rooms", "join")
        return {room: objects(object_at(info, "state").get("events")) for room, info in joined.items()}

    async def messages_before(self, room: str, start: str | None, stop: str | None) -> Json:
        """A page of messages, newest first: before a position, or from the end."""
        query = {"dir": "b", "limit": "100"} | ({"from": start} if start else {}) | ({"to": stop} if stop else {})
        return _object(await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/messages", query=query))

    async def send(self, room: str, kind: str, content: Json, transaction: str) -> str:
        path = f"{_CLIENT}/rooms/{_quoted(room)}/send/{_quoted(kind)}/{_quoted(transaction)}"
        return _text(await self.call("PUT", path, content), "event_id")

    async def create_room(self, options: Json) -> str:
        return _text(await self.call("POST", f"{_CLIENT}/createRoom", options), "room_id")

    async def join(self, room: str) -> None:
        await self.call("POST", f"{_CLIENT}/join/{_quoted(room)}", {})

    async def leave(self, room: str) -> None:
        await self.call("POST", f"{_CLIENT}/rooms/{_quoted(room)}/leave", {})

    async def forget(self, room: str) -> None:
        await self.call("POST", f"{_CLIENT}/rooms/{_quoted(room)}/forget", {})

    async def invite(self, room: str, user: str) -> None:
        try:
            await self.call("POST", f"{_CLIENT}/rooms/{_quoted(room)}/invite", {"user_id": user})
        except MatrixRefused as error:
            if error.code != "M_FORBIDDEN":  # they are in the room already
                raise

    async def joined_rooms(self) -> list[str]:
        rooms = _object(await self.call("GET", f"{_CLIENT}/joined_rooms")).get("joined_rooms")
        return [room for room in rooms if isinstance(room, str)] if isinstance(rooms, list) else []

    async def state(self, room: str) -> list[Json]:
        return objects(await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/state"))

    async def put_state(self, room: str, kind: str, key: str, content: Json) -> None:
        await self.call("PUT", f"{_CLIENT}/rooms/{_quoted(room)}/state/{_quoted(kind)}/{_quoted(key)}", content)

    async def state_event(self, room: str, kind: str) -> Json:
        return _object(await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/state/{_quoted(kind)}/"))

    async def members(self, room: str) -> dict[str, str]:
        """The joined and the invited users, each with `join` or `invite`: both are to read what is sent from now on."""
        path = f"{_CLIENT}/rooms/{_quoted(room)}/members"
        response = _object(await self.call("GET", path, query={"not_membership": "leave"}))
        memberships = {
            event["state_key"]: str(object_at(event, "content").get("membership"))
            for event in objects(response.get("chunk"))
            if isinstance(event.get("state_key"), str)
        }
        return {user: membership for user, membership in memberships.items() if membership in ("join", "invite")}

    async def account_data(self, kinds: Sequence[str]) -> dict[str, Json]:
        """The account's own data of these kinds, which only it can read; a kind may end with `*`."""
        nothing = {"not_types": ["*"]}
        filters = json.dumps({"room": {"rooms": []}, "presence": nothing, "account_data": {"types": list(kinds)}})
        query = {"filter": filters, "timeout": "0"}
        response = await self.call("GET", f"{_CLIENT}/sync", query=query, wait_s=60)
        events = objects(object_at(response, "account_data").get("events"))
        return {str(event.get("type")): object_at(event, "content") for event in events}

    async def put_account_data(self, user: str, kind: str, content: Json) -> None:
        await self.call("PUT", f"{_CLIENT}/user/{_quoted(user)}/account_data/{_quoted(kind)}", content)

    async def receipt(self, room: str, event: str) -> None:
        await self.call("POST", f"{_CLIENT}/rooms/{_quoted(room)}/receipt/m.read/{_quoted(event)}", {})

    async def typing(self, room: str, user: str, on: bool) -> None:
        body = {"typing": on} | ({"timeout": 30_000} if on else {})
        await self.call("PUT", f"{_CLIENT}/rooms/{_quoted(room)}/typing/{_quoted(user)}", body)

    async def upload(self, chunks: AsyncIterator[bytes], size: int, media_type: str, name: str) -> str:
        headers = {"Content-Type": media_type, "Content-Length": str(size)}
        query = {"filename": name} if name else {}
        path = "/_matrix/media/v3/upload"
        response = await self.call("POST", path, query=query, content=chunks, headers=headers, wait_s=_FILE_TIMEOUT_S)
        return _text(response, "content_uri")

    async def upload_keys(self, keys: Json) -> None:
        await self.call("POST", f"{_CLIENT}/keys/upload", keys)

    async def query_keys(self, users: Sequence[str]) -> Json:
        body = {"device_keys": {user: [] for user in users}, "timeout": 10_000}
        return _object(await self.call("POST", f"{_CLIENT}/keys/query", body))

    async def claim_keys(self, wanted: Mapping[str, Mapping[str, str]]) -> Json:
        body = {"one_time_keys": {user: dict(devices) for user, devices in wanted.items()}, "timeout": 10_000}
        return _object(await self.call("POST", f"{_CLIENT}/keys/claim", body))

    async def send_to_device(self, kind: str, messages: Json, transaction: str) -> None:
        path = f"{_CLIENT}/sendToDevice/{_quoted(kind)}/{_quoted(transaction)}"
        await self.call("PUT", path, {"messages": messages})

    async def upload_identity(self, keys: Json, user: str, password: str | None) -> None:
        await self._call_with_password("POST", f"{_CLIENT}/keys/device_signing/upload", keys, user, password)

    async def upload_signatures(self, signatures: Json) -> None:
        await self.call("POST", f"{_CLIENT}/keys/signatures/upload", signatures)

    async def delete_device(self, device: str, user: str, password: str | None) -> None:
        await self._call_with_password("DELETE", f"{_CLIENT}/devices/{_quoted(device)}", {}, user, password)

    async def _call_with_password(self, method: str, path: str, body: Json, user: str, password: str | None) -> None:
        """For requests that may need the password again."""
        try:
            await self.call(method, path, body)
        except MatrixRefused as error:
            if not error.login_session or password is None:
                raise
            identifier = {"type": "m.id.user", "user": user}
            proof = {"type": "m.login.password", "identifier": identifier, "password": password}
            await self.call(method, path, {**body, "auth": {**proof, "session": error.login_session}})

    @asynccontextmanager
    async def download(self, uri: str) -> AsyncIterator[AsyncIterator[bytes]]:
        # The unauthenticated endpoint no longer returns new files.
        server, _, media = uri.removeprefix("mxc://").partition("/")
        path = f"/_matrix/client/v1/media/download/{_quoted(server)}/{_quoted(media)}"
        try:
            request = self._client().stream("GET", path, headers=self._headers({}), timeout=_FILE_TIMEOUT_S)
            async with request as response:
                if not response.is_success:
                    await response.aread()
                    self._check(response)
                yield response.aiter_bytes(65_536)
        except httpx.TransportError as error:
            raise PlatformUnreachable(f"The file could not be fetched ({type(error).__name__}).") from error

    async def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content: AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 30.0,
    ) -> Any:
        try:
            response = await self._client().request(
                method,
                path,
                json=body,
                params=dict(query or {}),
                content=content,
                headers=self._headers(headers or {}),
                timeout=wait_s,
            )
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise _no_address(str(self._http.base_url)) from None
        except httpx.TransportError as error:
            may_have_arrived = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise PlatformUnreachable(
                f"The homeserver does not answer ({type(error).__name__}).", ambiguous=may_have_arrived
            ) from error
        self._check(response)
        try:
            return parse_json_without_deep_parts(response.content)
        except ValueError as error:
            raise _not_matrix(f"it is not JSON: {error}") from None

    def _client(self) -> httpx.AsyncClient:
        if self._http.is_closed:  # the delivery is retried after the next connect
            raise PlatformUnreachable("The connection to Matrix is closed.", ambiguous=False)
        return self._http

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **more}

    def _check(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        try:
            body = _object(parse_json(response.content))
        except (ValueError, PlatformUnreachable):
            body = {}
        code = str(body.get("errcode", response.status_code))
        if response.status_code == 429:
            wait_s = _retry_after_s(response.headers.get("retry-after", ""), body.get("retry_after_ms"))
            raise PlatformRateLimited("The homeserver limits the rate.", wait_s)
        if code == "M_UNKNOWN_TOKEN":
            raise LoggedOut(
                "The homeserver no longer accepts this login.", "Enter the account again in Settings → Messengers."
            )
        if response.status_code >= 500:
            raise PlatformUnreachable(f"The homeserver answered {response.status_code}.")
        message = str(body.get("error", response.reason_phrase))
        raise MatrixRefused(code, message[:200], str(body.get("session", "")))


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _retry_after_s(header: str, body_ms: object) -> float:
    if header.isascii() and header.isdigit():
        return min(float(header), _MAX_RETRY_S)
    if isinstance(body_ms, int | float) and 0 <= body_ms <= _MAX_RETRY_S * 1000:
        return body_ms / 1000
    return _DEFAULT_RETRY_S


def _not_matrix(reason: str) -> PlatformUnreachable:
    return PlatformUnreachable(
        f"The homeserver's answer cannot be read ({reason}).", "Check that matrix.homeserver is its address."
    )


def _no_address(url: str) -> CoterieError:
    return ConfigError(f"{url[:100]} is no address of a homeserver.", "Enter one such as https://matrix.example.org.")


def _object(body: Any) -> Json:
    if not isinstance(body, dict):
        raise _not_matrix("it is not a JSON object")
    return body


def _text(body: Any, name: str) -> str:
    value = _object(body).get(name)
    if not isinstance(value, str) or not is_text(value):
        raise _not_matrix(f"it has no {name}")
    return value
