"""Embedders that can be chosen: an endpoint on a real socket, and what happens without fastembed. L9"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coterie.memory import Memory
from coterie.memory.errors import EmbedderFailed
from coterie.memory.index.chosen_embedders import EndpointEmbedder, FastEmbedder

WORDS = ("sea", "boat", "cake", "walnut")


@contextmanager
def endpoint(answer: object = None, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            keys.append(self.headers.get("authorization", ""))
            rows = [
                {"index": at, "embedding": [float(word in text.lower()) + 0.01 for word in WORDS]}
                for at, text in enumerate(body["input"])
            ]
            found = json.dumps({"data": rows[::-1]} if answer is None else answer).encode()
            self.send_response(status if self.path == "/v1/embeddings" and body["model"] == "embed" else 404)
            self.send_header("content-length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", keys
        server.shutdown()


def test_l9_memories_are_embedded_again_with_an_endpoint(tmp_path: Path) -> None:
    with endpoint() as (url, keys), Memory(tmp_path / "memory.db") as memory:
        memory.add("The boat went out to sea.")
        memory.add("Ana baked a cake with walnut.")
        assert memory.embedding_worker.status().model is None
        memory.use_embedder(EndpointEmbedder(url, "embed", "sk-embed"))
        memory.embedding_worker.wait(30)
        status = memory.embedding_worker.status()
        assert (status.done, status.total, status.error) == (2, 2, None)
        assert status.model is not None and status.model.endswith("/embed")
        assert memory.recall("walnut cake", k=1)[0].memory.text.startswith("Ana baked")
        assert set(keys) == {"Bearer sk-embed"}


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"data": []}, 200, "0 vectors for 1 texts"),
        ({"data": [{"index": 0, "embedding": ["x"]}]}, 200, "did not answer with vectors"),
        ([], 200, "did not answer with vectors"),
        ({}, 401, "does not accept the key"),
        ({}, 500, "HTTP 500"),
    ],
)
def test_l9_a_bad_endpoint_is_a_sentence(answer: object, status: int, said: str) -> None:
    with endpoint(answer, status) as (url, _), pytest.raises(EmbedderFailed, match=said):
        EndpointEmbedder(url, "embed").embed(["a text"])


def test_l9_an_endpoint_that_is_gone_is_a_sentence() -> None:
    with endpoint() as (url, _):
        pass
    with pytest.raises(EmbedderFailed, match="could not be reached"):
        EndpointEmbedder(url, "embed").embed(["a text"])


def test_l9_without_fastembed_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(EmbedderFailed, match="pip install fastembed"):
        FastEmbedder()
