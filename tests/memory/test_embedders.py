"""The embedders there are, each held to the contract."""

from __future__ import annotations

import importlib.util
import json

import httpx
import numpy as np
import pytest

from coterie.base.errors import MissingExtra
from coterie.memory.embedder import OfflineEmbedder
from coterie.memory.errors import EmbedderFailed
from coterie.memory.onnx_embedder import OnnxEmbedder
from coterie.memory.remote_embedder import RemoteEmbedder
from coterie.memory.static import static_vectors
from tests.contracts.embedder_contract import EmbedderContract


class TestOffline(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> OfflineEmbedder:
        return OfflineEmbedder()


def endpoint(request: httpx.Request) -> httpx.Response:
    """An OpenAI-compatible endpoint that answers in any order, as some do."""
    body = json.loads(request.content)
    assert request.url.path == "/v1/embeddings"
    vectors = static_vectors().embed(body["input"])
    rows = [{"index": index, "embedding": vector.tolist()} for index, vector in enumerate(vectors)]
    return httpx.Response(200, json={"data": rows[::-1], "model": body["model"]})


class TestRemote(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> RemoteEmbedder:
        return RemoteEmbedder(
            "http://localhost/v1", "text-embedding", api_key="k" * 20, transport=httpx.MockTransport(endpoint)
        )


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx.Response(401), "answered 401"),
        (httpx.Response(503), "answered 503"),
        (httpx.Response(200, text="<html>"), "OpenAI form"),
        (httpx.Response(200, json={"data": []}), "0 vectors for 1 texts"),
        (httpx.Response(200, json={"data": [{"index": 0}]}), "OpenAI form"),
    ],
)
def test_an_endpoint_that_answers_wrongly_is_named_with_what_to_do(answer: httpx.Response, told: str) -> None:
    remote = RemoteEmbedder("http://localhost/v1", "m", transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(EmbedderFailed, match=told) as failed:
        remote.embed(["a"])
    assert failed.value.fix


def test_an_endpoint_that_is_away_is_named() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(EmbedderFailed, match="could not be reached"):
        RemoteEmbedder("http://localhost/v1", "m", transport=httpx.MockTransport(away)).embed(["a"])


def test_rows_of_different_lengths_are_refused() -> None:
    answer = httpx.Response(
        200, json={"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}
    )
    with pytest.raises(EmbedderFailed, match="one length"):
        RemoteEmbedder("http://localhost/v1", "m", transport=httpx.MockTransport(lambda _: answer)).embed(["a", "b"])


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("fastembed") is not None:
        monkeypatch.setitem(__import__("sys").modules, "fastembed", None)
    with pytest.raises(MissingExtra, match=r"coterie\[fastembed\]"):
        OnnxEmbedder()


class FastEmbed:
    """What the extra looks like from here: a model that yields one array per text."""

    class TextEmbedding:
        def __init__(self, model_name: str) -> None:
            if model_name == "unknown":
                raise ValueError("no such model")

        def embed(self, texts: list[str]) -> object:
            yield from np.asarray(static_vectors().embed(texts))


class TestOnnx(EmbedderContract):
    @pytest.fixture
    def embedder(self, monkeypatch: pytest.MonkeyPatch) -> OnnxEmbedder:
        monkeypatch.setitem(__import__("sys").modules, "fastembed", FastEmbed)
        return OnnxEmbedder()

    def test_a_model_that_cannot_be_loaded_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "fastembed", FastEmbed)
        with pytest.raises(EmbedderFailed, match="no such model"):
            OnnxEmbedder("unknown")
