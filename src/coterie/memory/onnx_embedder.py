"""An embedder run here with ONNX through fastembed, an extra: `pip install "coterie[fastembed]"`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.base.errors import MissingExtra
from coterie.memory.errors import EmbedderFailed


class OnnxEmbedder:
    def __init__(self, model: str = "sentence-transformers/all-MiniLM-L6-v2", **options: Any) -> None:
        self.name = model
        try:
            fastembed = importlib.import_module("fastembed")
        except ImportError:
            raise MissingExtra("fastembed", "The ONNX embedder") from None
        try:
            self._model = fastembed.TextEmbedding(model_name=model, **options)
        except Exception as error:  # what it raises depends on where the download stopped
            raise EmbedderFailed(
                f"The model {model} could not be loaded: {error}.",
                "It is downloaded once: check the connection and the model's name.",
            ) from error

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array(list(self._model.embed(list(texts))), np.float32)
