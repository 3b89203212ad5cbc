"""Moonshine's tiny English model, from the weights in its wheel.

The wheel's own library takes the likeliest next word each time and costs twice as much as running the same weights
here. What that saves is spent on a beam search, and on listening to everything a second time, a little slower. Where
the two hearings differ there is a third, slower still and brighter, which makes up for a dull voice or microphone.
Where they agree a third would only cost time. Of all that was perhaps said, that is chosen which sounds and reads
likeliest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.errors import NoSound
from coterie.modes.crowd.listening.beam import Found, LogChances, searched
from coterie.modes.crowd.listening.expected import WORD, Expected
from coterie.modes.crowd.listening.prior import Prior
from coterie.modes.crowd.listening.sound import RATE
from coterie.modes.crowd.listening.utterances import Samples

_EXPECTED = ("chat",)
_AROUND_S = 0.3
_NOISE = 0.001
_LOUD = 0.9
_MOST_LOUDER = 20.0
_WIDTH = 4
_TOKENS_A_SECOND = 6.5
"""More than anybody says: where it goes on and on, it repeats itself."""
_BEGIN, _END = 1, 2
_LAST_SIGN = 2
_LEAST = 1_600
_READS = 0.25
"""How much it counts that words are likely after one another, beside how they sound."""
_HEADS, _HEAD_SIZE = 8, 36
_SAMPLES_A_PIECE = 384
_NO_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Hearing:
    longer: float = 1.0
    """How many times as long the sound is made, and as much lower."""
    brighter: float = 0.0
    """How much of each sample is taken from the next: what is low in the sound gets quieter."""

    def changed(self, samples: Samples) -> Samples:
        if self.longer != 1:
            # By way of its frequencies: between two samples there is no straight line.
            length = round(len(samples) * self.longer)
            samples = (np.fft.irfft(np.fft.rfft(samples), length) * self.longer).astype(np.float32)
        if self.brighter:
            samples = samples - np.float32(self.brighter) * np.pad(samples, (1, 0))[:-1]
        return samples


@dataclass(frozen=True)
class Heard:
    text: str
    score: float


_FIRST = (Hearing(), Hearing(longer=1.07))
_IN_DOUBT = Hearing(longer=1.15, brighter=0.5)


class Moonshine:
    name = "moonshine-tiny-en"

    def __init__(self, expected: Iterable[str] = _EXPECTED) -> None:
        try:
            import onnxruntime
            from moonshine_voice import get_assets_path
        except ImportError:
            raise MissingExtra("audio", "Understanding what a stream says") from None
        weights = Path(get_assets_path()) / "tiny-en"
        if not weights.is_dir():
            raise NoSound(
                "This moonshine-voice carries no weights.", 'Install the one that does: pip install "coterie[audio]"'
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # there is a house around it that wants the other cores
        self._encoder: Any = onnxruntime.InferenceSession(str(weights / "encoder_model.ort"), options)
        self._decoder: Any = onnxruntime.InferenceSession(str(weights / "decoder_model_merged.ort"), options)
        self._past = [each.name for each in self._decoder.get_inputs() if each.name.startswith("past_key_values")]
        self._given = [each.name for each in self._decoder.get_outputs()]
        self._tokens = _tokens((weights / "tokenizer.bin").read_bytes())
        self._expected = Expected(expected, self._tokens)
        self._prior = Prior()
        # Both first hearings at the same time: nobody should wait for a long sentence twice.
        self._ears = ThreadPoolExecutor(len(_FIRST), thread_name_prefix="ear")

    def transcribe(self, samples: Samples) -> str:
        if len(samples) < _LEAST:
            return ""
        heard = list(self._ears.map(lambda each: self._heard(each.changed(samples)), _FIRST))
        if len({_NO_WORD.sub(" ", each.text).strip().casefold() for each in heard}) > 1:
            heard.append(self._heard(_IN_DOUBT.changed(samples)))
        return max(heard, key=lambda each: each.score).text

    def _written(self, found: Found) -> str:
        written = b"".join(self._tokens[token] for token in found.tokens if token > _LAST_SIGN)
        return written.decode("utf-8", "ignore").replace(WORD, " ").strip()

    def _heard(self, samples: Samples) -> Heard:
        # No recording it was taught with is perfectly silent: with a little noise it mishears less.
        sound = np.pad(_loud(samples), round(_AROUND_S * RATE))
        sound = sound + np.random.default_rng(0).normal(0, _NOISE, len(sound)).astype(np.float32)
        (hidden,) = self._encoder.run(
            None, {"input_values": sound[None], "attention_mask": np.ones((1, len(sound)), np.int64)}
        )
        decoding = _Decoding(self._decoder, self._past, self._given, hidden)
        most = round(len(sound) / RATE * _TOKENS_A_SECOND)
        found = searched(decoding.first(), decoding.step, end=_END, most=most, width=_WIDTH, bonus=self._expected.bonus)
        return max(map(self._judged, found), key=lambda each: each.score)

    def _judged(self, found: Found) -> Heard:
        text = self._written(found)
        return Heard(text, found.score(_READS * self._prior.log_chance(text)))


class _Decoding:
    """One sound's words, token after token, for several beginnings at once."""

    def __init__(self, decoder: Any, past: list[str], given: list[str], hidden: npt.NDArray[np.float32]) -> None:
        self._decoder = decoder
        self._given = given
        self._hidden = hidden
        self._state = {name: np.zeros((1, _HEADS, 0, _HEAD_SIZE), np.float32) for name in past}

    def first(self) -> LogChances:
        return self._run([_BEGIN], goes_on=False).reshape(-1)

    def step(self, places: list[int], tokens: list[int]) -> LogChances:
        # What it knows of the sound is the same for all beginnings: only their number may have changed.
        self._state = {
            name: each[places] if ".decoder." in name or len(each) != len(places) else each
            for name, each in self._state.items()
        }
        return self._run(tokens, goes_on=True)

    def _run(self, tokens: list[int], *, goes_on: bool) -> LogChances:
        count, length = len(tokens), self._hidden.shape[1]
        given = self._decoder.run(
            None,
            {
                "input_ids": np.array(tokens, np.int64)[:, None],
                "encoder_hidden_states": np.repeat(self._hidden, count, axis=0),
                # Counted in samples: one for each piece went well up to nine seconds, and failed beyond.
                "encoder_attention_mask": np.ones((count, length * _SAMPLES_A_PIECE), np.int64),
                "use_cache_branch": np.array([goes_on]),
                **self._state,
            },
        )
        named = dict(zip(self._given, given, strict=True))
        for name in self._state:
            # What it knows of the sound is made once, at the beginning; afterwards it gives none.
            if not goes_on or ".decoder." in name:
                self._state[name] = named[name.replace("past_key_values", "present")]
        return _log_chances(named["logits"][:, -1])


def _log_chances(logits: npt.NDArray[np.float32]) -> LogChances:
    above = logits - logits.max(axis=-1, keepdims=True)
    chances: LogChances = above - np.log(np.exp(above).sum(axis=-1, keepdims=True))
    return chances


def _loud(samples: Samples) -> Samples:
    """As loud as it may be: a quiet microphone is no worse understood than a loud one."""
    peak = float(np.abs(samples).max(initial=0.0))
    return samples * np.float32(min(_LOUD / peak, _MOST_LOUDER)) if peak else samples


def _tokens(file: bytes) -> list[bytes]:
    """Each is its length, in one byte or in two, and its bytes."""
    found: list[bytes] = []
    at = 0
    while at < len(file):
        length, at = file[at], at + 1
        if length >= 128:
            length, at = length - 128 + 128 * file[at], at + 1
        found.append(file[at : at + length])
        at += length
    return found
