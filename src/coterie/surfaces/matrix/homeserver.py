"""Calls to a homeserver, with its answers turned into ours: patience, refusals, broken lines.

Requests that change something carry an id of ours where Matrix knows one, so that repeating them is harmless.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from coterie.base.errors import CoterieError
from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable, SurfaceError

# What can be wrong with Matrix.
#
# MatrixRefused     the homeserver said no; `code` is its word for it (M_FORBIDDEN …)
# LoggedOut         the homeserver no longer knows this login
# KeysRefused       the homeserver has other keys of our device than we do
# KeysLost          our device's keys are gone, and without the password no new device can take its place


class MatrixRefused(PlatformRefused):
    def __init__(self, code: str, told: str, login_session: str = "") -> None:
        """`login_session` where the homeserver would do it if the password came with it."""
        super().__init__(f"The homeserver refused: {told} ({code}).", "Look at the account's rights there.")
        self.code = code
        self.login_session = login_session


class LoggedOut(CoterieError):
    exit_code = 34


class KeysRefused(SurfaceError):
    pass


class KeysLost(CoterieError):
    exit_code = 35


Json = dict[str, Any]
_CLIENT = "/_matrix/client/v3"
_PATIENCE_S = 5.0
_FILE_S = 300.0
"""Homeservers answer an upload when they have stored all of it."""


class Homeserver:
    def __init__(self, url: str, token: str = "") -> None:
        self._http = httpx.AsyncClient(base_url=url.rstrip("/"), timeout=30.0, trust_env=False)
        self.token = token

    async def close(self) -> None:
        await self._http.aclose()

    async def login(self, user: str, password: str, device: str | None = None) -> Json:
        identifier = {"type": "m.id.user", "user": user}
        told = {"type": "m.login.password", "identifier": identifier, "password": password}
        told |= {"initial_device_display_name": "Coterie"} | ({"device_id": device} if device else {})
        return dict(await self.call("POST", f"{_CLIENT}/login", told))

    async def sync(self, since: str | None, wait_s: float) -> Json:
        """Trap 2: of what was missed only ten messages come unless asked for more."""
        wanted = '{"room":{"timeline":{"limit":100},"state":{"lazy_load_members":true}},"presence":{"types":[]}}'
        query: dict[str, str] = {"timeout": str(int(wait_s * 1000)), "filter": wanted}
        query |= {"since": since} if since else {}
        return dict(await self.call("GET", f"{_CLIENT}/sync", query=query, wait_s=wait_s + 30))

    async def logout(self) -> None:
        """The device and its published keys go with it."""
        await self.call("POST", f"{_CLIENT}/logout", {})

    async def state_of_joined_rooms(self, kinds: Sequence[str]) -> dict[str, list[Json]]:
        """What all rooms that we are in say of these kinds, in one request and without what was said in them."""
        nothing = {"not_types": ["*"]}
        room = {"timeline": nothing, "ephemeral": nothing, "account_data": nothing, "state": {"types": list(kinds)}}
        wanted = json.dumps({"room": room, "presence": nothing, "account_data": nothing})
        query = {"filter": wanted, "timeout": "0", "full_state": "true"}
        told = await self.call("GET", f"{_CLIENT}/sync", query=query, wait_s=120)
        joined = told.get("rooms", {}).get("join", {})
        return {room: info.get("state", {}).get("events", []) for room, info in joined.items()}

    async def messages_before(self, room: str, start: str | None, stop: str | None) -> Json:
        """A page of what was said, newest first: before a place, or from the end."""
        query = {"dir": "b", "limit": "100"} | ({"from": start} if start else {}) | ({"to": stop} if stop else {})
        return dict(await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/messages", query=query))

    async def send(self, room: str, kind: str, content: Json, transaction: str) -> str:
        path = f"{_CLIENT}/rooms/{_quoted(room)}/send/{_quoted(kind)}/{_quoted(transaction)}"
        return str((await self.call("PUT", path, content))["event_id"])

    async def create_room(self, options: Json) -> str:
        return str((await self.call("POST", f"{_CLIENT}/createRoom", options))["room_id"])

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
            if error.code != "M_FORBIDDEN":  # trap 5: they are there already
                raise

    async def joined_rooms(self) -> list[str]:
        return list((await self.call("GET", f"{_CLIENT}/joined_rooms"))["joined_rooms"])

    async def state(self, room: str) -> list[Json]:
        return list(await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/state"))

    async def put_state(self, room: str, kind: str, key: str, content: Json) -> None:
        await self.call("PUT", f"{_CLIENT}/rooms/{_quoted(room)}/state/{_quoted(kind)}/{_quoted(key)}", content)

    async def state_event(self, room: str, kind: str) -> Json:
        return dict(await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/state/{_quoted(kind)}/"))

    async def members(self, room: str) -> list[str]:
        """Who is there, and who is invited: they will want to read what was said meanwhile."""
        told = await self.call("GET", f"{_CLIENT}/rooms/{_quoted(room)}/members", query={"not_membership": "leave"})
        chunk = told.get("chunk", [])
        return [one["state_key"] for one in chunk if one["content"].get("membership") in ("join", "invite")]

    async def receipt(self, room: str, event: str) -> None:
        await self.call("POST", f"{_CLIENT}/rooms/{_quoted(room)}/receipt/m.read/{_quoted(event)}", {})

    async def typing(self, room: str, user: str, on: bool) -> None:
        told = {"typing": on} | ({"timeout": 30_000} if on else {})
        await self.call("PUT", f"{_CLIENT}/rooms/{_quoted(room)}/typing/{_quoted(user)}", told)

    async def upload(self, chunks: AsyncIterator[bytes], size: int, media_type: str, name: str) -> str:
        headers = {"Content-Type": media_type, "Content-Length": str(size)}
        query = {"filename": name} if name else {}
        path = "/_matrix/media/v3/upload"
        told = await self.call("POST", path, query=query, content=chunks, headers=headers, wait_s=_FILE_S)
        return str(told["content_uri"])

    async def upload_keys(self, keys: Json) -> None:
        await self.call("POST", f"{_CLIENT}/keys/upload", keys)

    async def query_keys(self, users: Sequence[str]) -> Json:
        told = {"device_keys": {user: [] for user in users}, "timeout": 10_000}
        return dict(await self.call("POST", f"{_CLIENT}/keys/query", told))

    async def claim_keys(self, wanted: Mapping[str, Mapping[str, str]]) -> Json:
        told = {"one_time_keys": {user: dict(devices) for user, devices in wanted.items()}, "timeout": 10_000}
        return dict(await self.call("POST", f"{_CLIENT}/keys/claim", told))

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
        """What the homeserver does only for somebody who says the password again."""
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
        """Trap 9: only the authenticated way gives anything."""
        server, _, media = uri.removeprefix("mxc://").partition("/")
        path = f"/_matrix/client/v1/media/download/{_quoted(server)}/{_quoted(media)}"
        try:
            async with self._client().stream("GET", path, headers=self._headers({}), timeout=_FILE_S) as answer:
                if not answer.is_success:
                    await answer.aread()
                    self._check(answer)
                yield answer.aiter_bytes(65_536)
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
            answer = await self._client().request(
                method,
                path,
                json=body,
                params=dict(query or {}),
                content=content,
                headers=self._headers(headers or {}),
                timeout=wait_s,
            )
        except httpx.TransportError as error:
            sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise PlatformUnreachable(
                f"The homeserver does not answer ({type(error).__name__}).", ambiguous=sent
            ) from error
        self._check(answer)
        return answer.json()

    def _client(self) -> httpx.AsyncClient:
        """Whoever has something to say after it was hung up hears that, and says it when it is there again."""
        if self._http.is_closed:
            raise PlatformUnreachable("Matrix was left.", ambiguous=False)
        return self._http

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **more}

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        try:
            told = answer.json()
        except ValueError:
            told = {}
        code, what = str(told.get("errcode", answer.status_code)), str(told.get("error", answer.reason_phrase))
        if answer.status_code == 429:
            header = answer.headers.get("retry-after", "")
            wait = float(header) if header.isdecimal() else float(told.get("retry_after_ms", _PATIENCE_S * 1000)) / 1000
            raise PlatformRateLimited("The homeserver asks for patience.", wait)
        if code == "M_UNKNOWN_TOKEN":
            raise LoggedOut("The homeserver no longer knows this login.", "Set matrix.password and start again.")
        if answer.status_code >= 500:
            raise PlatformUnreachable(f"The homeserver answered {answer.status_code}.")
        raise MatrixRefused(code, what[:200], str(told.get("session", "")))


def _quoted(text: str) -> str:
    return quote(text, safe="")
