"""Embedders that can be chosen in place of the built-in one: a `/embeddings` endpoint, or ONNX models by fastembed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from coterie.base.config import PageSetting, Section
from coterie.base.untrusted import parse_json
from coterie.base.values import is_loopback_url
from coterie.memory.errors import EmbedderFailed
from coterie.memory.index.embedders import Floats

_TIMEOUT_S = 60.0
_MAX_CHARACTERS = 8_000
"""Longer texts are cut: most models read at most a few thousand tokens."""
MULTILINGUAL_ONNX = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"


class MemorySettings(Section):
    """How memories are compared by meaning."""

    embedder: PageSetting[Literal["offline", "provider", "fastembed"]] = "offline"
    """`offline` uses the built-in word vectors; `provider` asks a provider's `/embeddings`; `fastembed` runs an ONNX
    model here. For texts that are not English, choose a multilingual model."""
    embedder_provider: PageSetting[str] = ""
    """With `provider`: the name of the provider, as in `models.providers`."""
    embedder_model: PageSetting[str] = ""
    """The name of the embedding model; for `fastembed` by default a multilingual one."""


class EndpointEmbedder:
    """Asks a server with OpenAI's `/embeddings`."""

    def __init__(self, base_url: str, model: str, key: str = "") -> None:
        self.name = f"{base_url.partition('://')[2].partition('/')[0]}/{model}"
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._model = model
        self._key = key

    def embed(self, texts: Sequence[str]) -> Floats:
        import httpx

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        body = {"model": self._model, "input": [text[:_MAX_CHARACTERS] or " " for text in texts]}
        try:
            # Redirects are not followed: the key is for this address only.
            with httpx.Client(timeout=_TIMEOUT_S, trust_env=not is_loopback_url(self._url)) as client:
                response = client.post(self._url, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise EmbedderFailed(
                f"The embedding model {self.name} could not be reached.", "Check that its server runs, then try again."
            ) from error
        if response.status_code in (401, 403):
            raise EmbedderFailed(f"{self.name} does not accept the key.", "Enter a new one in Settings → Models.")
        if not response.is_success:
            raise EmbedderFailed(
                f"The embedding model {self.name} failed (HTTP {response.status_code}).",
                "Check its name in Settings → Models.",
            )
        return _vectors(response.content, len(texts), self.name)


def _vectors(content: bytes, expected: int, name: str) -> Floats:
    try:
        rows: Any = parse_json(content)["data"]
        ordered = sorted(rows, key=lambda row: int(row["index"]))
        with np.errstate(over="ignore"):  # what is infinite then is refused with the vectors
            found = np.array([row["embedding"] for row in ordered], np.float32)
    except (ValueError, KeyError, TypeError) as error:
        raise EmbedderFailed(f"{name} did not answer with vectors.", "Choose an embedding model.") from error
    if len(found) != expected:
        raise EmbedderFailed(f"{name} answered with {len(found)} vectors for {expected} texts.", "Choose another.")
    return found


class FastEmbedder:
    """An ONNX model in this process, by the package fastembed."""

    def __init__(self, model: str = "") -> None:
        try:
            fastembed: Any = importlib.import_module("fastembed")
        except ImportError:
            raise EmbedderFailed(
                "An ONNX embedding model needs the package fastembed.", "Install it with: pip install fastembed"
            ) from None
        self.name = f"fastembed/{model or MULTILINGUAL_ONNX}"
        try:
            self._model = fastembed.TextEmbedding(model or MULTILINGUAL_ONNX)
        except Exception as error:  # it downloads the model and raises errors of many libraries
            raise EmbedderFailed(
                f"The embedding model {self.name} could not be loaded: {error}.", "Check its name and the network."
            ) from error

    def embed(self, texts: Sequence[str]) -> Floats:
        return np.array(list(self._model.embed([text[:_MAX_CHARACTERS] for text in texts])), np.float32)
