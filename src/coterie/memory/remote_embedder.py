"""An embedder behind an OpenAI-compatible endpoint: `POST {base}/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import numpy as np
from numpy.typing import NDArray

from coterie.memory.errors import EmbedderFailed

_BATCH = 128


class RemoteEmbedder:
    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 20.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.name = model
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(
            base_url=base_url.rstrip("/") + "/", headers=headers, timeout=timeout_s, transport=transport
        )

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        parts = [self._ask(list(texts[start : start + _BATCH])) for start in range(0, len(texts), _BATCH)]
        try:
            return np.array([row for part in parts for row in part], np.float32)
        except ValueError as error:
            raise EmbedderFailed(
                f"The embeddings of {self.name} are not all of one length.", "Choose another embedding model."
            ) from error

    def close(self) -> None:
        self._client.close()

    def _ask(self, texts: list[str]) -> list[list[float]]:
        # An empty input is refused by some servers; a space means the same.
        body = {"model": self.name, "input": [text or " " for text in texts]}
        try:
            answer = self._client.post("embeddings", json=body)
            answer.raise_for_status()
            rows = sorted(answer.json()["data"], key=lambda row: int(row["index"]))
            found = [row["embedding"] for row in rows]
        except httpx.HTTPStatusError as error:
            raise EmbedderFailed(
                f"The embeddings endpoint answered {error.response.status_code} for the model {self.name}.",
                "Check the key and the model's name in the settings."
                if error.response.status_code in (400, 401, 402, 403, 404)
                else "It may be busy: what is missing is embedded at the next try.",
            ) from None
        except httpx.HTTPError as error:
            raise EmbedderFailed(
                f"The embeddings endpoint could not be reached ({type(error).__name__}).",
                "Check its address; memory goes on without it meanwhile.",
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            raise EmbedderFailed(
                "The embeddings endpoint did not answer in the OpenAI form.",
                "Check that the address ends where /embeddings begins, usually in /v1.",
            ) from error
        if len(found) != len(texts):
            raise EmbedderFailed(
                f"The embeddings endpoint returned {len(found)} vectors for {len(texts)} texts.",
                "Choose another embedding model.",
            )
        return found
