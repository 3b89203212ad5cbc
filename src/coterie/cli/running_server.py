"""The server that runs on this data folder: commands that change something go through it, because it has the database.

It leaves its address and a key in a file that only its user can read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coterie.base.errors import CoterieError
from coterie.base.paths import Paths, write_private_json

if TYPE_CHECKING:
    import httpx

KEY_HEADER = "Coterie-Local-Key"
_RUN_HEADER = "Coterie-Run"
_TIMEOUT_S = 60.0


class ServerRefused(CoterieError):
    """The server refused a command."""


class RunningServer:
    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer as JSON; None if it has none. `ServerRefused` says why it did not work, and what to do."""
        response = self._request(method, path, body, content, query)
        return response.json() if response.content else None

    def download(self, path: str, query: Mapping[str, str]) -> bytes:
        return self._request("GET", path, None, None, query).content

    def _request(
        self, method: str, path: str, body: Any, content: bytes | None, query: Mapping[str, str] | None
    ) -> httpx.Response:
        import httpx

        try:
            response = httpx.request(
                method,
                f"{self._url}{path}",
                json=body,
                content=content,
                params=dict(query or {}),
                headers={KEY_HEADER: self._key, "Accept": "application/json"},
                timeout=_TIMEOUT_S,
                trust_env=False,
            )
        except httpx.TransportError as error:
            raise ServerRefused(
                f"The server that runs does not answer ({type(error).__name__}).", "Try again, or restart it."
            ) from None
        if response.is_success:
            return response
        try:
            answer = response.json()
            raise ServerRefused(str(answer["error"]), str(answer.get("fix", "")))
        except (ValueError, KeyError, TypeError):
            raise ServerRefused(f"The server answered {response.status_code}.", "Its log says why.") from None


def find_server() -> RunningServer | None:
    """The server of this data folder; None if none runs."""
    import httpx

    try:
        known = json.loads(Paths.locate().server_file.read_text(encoding="utf-8"))
        health = httpx.get(f"{known['url']}/health", timeout=5.0, trust_env=False)
    except (OSError, ValueError, KeyError, TypeError, httpx.HTTPError):
        return None
    # Another program may have the port since: it does not get the key.
    return RunningServer(known["url"], known["key"]) if health.headers.get(_RUN_HEADER) == known.get("run") else None


@contextmanager
def announced(paths: Paths, run: str, key: str) -> Iterator[AnnounceAddress]:
    """Returns a function that is called with the address of the server once it listens."""
    try:
        yield AnnounceAddress(paths, run, key)
    finally:
        paths.server_file.unlink(missing_ok=True)


class AnnounceAddress:
    def __init__(self, paths: Paths, run: str, key: str) -> None:
        self._file, self._run, self._key = paths.server_file, run, key

    def __call__(self, host: str, port: int) -> None:
        """Addresses that stand for all of the machine are reached over its own."""
        own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is compared, not used
        url = f"http://{f'[{own}]' if ':' in own else own}:{port}"
        write_private_json(self._file, {"url": url, "run": self._run, "key": self._key})


def new_key() -> str:
    return secrets.token_urlsafe(32)
