"""The embedders there are, each held to the contract."""

from __future__ import annotations

import pytest

from coterie.memory.index.embedders import StaticEmbedder, static_embedder
from tests.contracts.embedder_contract import EmbedderContract


class TestStaticVectors(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> StaticEmbedder:
        return static_embedder()
