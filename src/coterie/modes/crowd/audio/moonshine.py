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
from coterie.modes.crowd.audio.beam_search import (
    WORD_START,
    Hypothesis,
    LanguageModelPrior,
    LogProbabilities,
    WordBoost,
    beam_search,
)
from coterie.modes.crowd.audio.source import SAMPLE_RATE, Samples
from coterie.modes.crowd.errors import AudioUnavailable

_EXPECTED_WORDS = ("chat",)
_PADDING_S = 0.3
_NOISE_LEVEL = 0.001
_TARGET_PEAK = 0.9
_MAX_GAIN = 20.0
_BEAM_WIDTH = 4
_TOKENS_A_SECOND = 6.5
"""More than anybody says: where it goes on and on, it repeats itself."""
_START_TOKEN, _END_TOKEN = 1, 2
_LAST_SPECIAL_TOKEN = 2
_MIN_SAMPLES = 1_600
_PRIOR_WEIGHT = 0.25
"""How much it counts that words are likely after one another, beside how they sound."""
_HEADS, _HEAD_SIZE = 8, 36
_SAMPLES_PER_FRAME = 384
_NON_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class AudioVariant:
    stretch: float = 1.0
    """How many times as long the sound is made, and as much lower."""
    pre_emphasis: float = 0.0
    """How much of each sample is taken from the next: what is low in the sound gets quieter."""

    def apply(self, samples: Samples) -> Samples:
        if self.stretch != 1:
            # By way of its frequencies: between two samples there is no straight line.
            length = round(len(samples) * self.stretch)
            samples = (np.fft.irfft(np.fft.rfft(samples), length) * self.stretch).astype(np.float32)
        if self.pre_emphasis:
            samples = samples - np.float32(self.pre_emphasis) * np.pad(samples, (1, 0))[:-1]
        return samples


@dataclass(frozen=True)
class Transcription:
    text: str
    score: float


_VARIANTS = (AudioVariant(), AudioVariant(stretch=1.07))
_TIE_BREAK_VARIANT = AudioVariant(stretch=1.15, pre_emphasis=0.5)


class Moonshine:
    name = "moonshine-tiny-en"

    def __init__(self, expected: Iterable[str] = _EXPECTED_WORDS) -> None:
        try:
            import onnxruntime
            from moonshine_voice import get_assets_path
        except ImportError:
            raise MissingExtra("audio", "Understanding what a stream says") from None
        weights = Path(get_assets_path()) / "tiny-en"
        if not weights.is_dir():
            raise AudioUnavailable(
                "This moonshine-voice carries no weights.", 'Install the one that does: pip install "coterie[audio]"'
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # there is a house around it that wants the other cores
        self._encoder: Any = onnxruntime.InferenceSession(str(weights / "encoder_model.ort"), options)
        self._decoder: Any = onnxruntime.InferenceSession(str(weights / "decoder_model_merged.ort"), options)
        self._cache_names = [
            each.name for each in self._decoder.get_inputs() if each.name.startswith("past_key_values")
        ]
        self._output_names = [each.name for each in self._decoder.get_outputs()]
        self._tokens = _parse_tokens((weights / "tokenizer.bin").read_bytes())
        self._expected = WordBoost(expected, self._tokens)
        self._prior = LanguageModelPrior()
        # Both first hearings at the same time: nobody should wait for a long sentence twice.
        self._executor = ThreadPoolExecutor(len(_VARIANTS), thread_name_prefix="ear")

    def transcribe(self, samples: Samples) -> str:
        if len(samples) < _MIN_SAMPLES:
            return ""
        heard = list(self._executor.map(lambda each: self._transcribe_once(each.apply(samples)), _VARIANTS))
        if len({_NON_WORD.sub(" ", each.text).strip().casefold() for each in heard}) > 1:
            heard.append(self._transcribe_once(_TIE_BREAK_VARIANT.apply(samples)))
        return max(heard, key=lambda each: each.score).text

    def _decode_tokens(self, found: Hypothesis) -> str:
        written = b"".join(self._tokens[token] for token in found.tokens if token > _LAST_SPECIAL_TOKEN)
        return written.decode("utf-8", "ignore").replace(WORD_START, " ").strip()

    def _transcribe_once(self, samples: Samples) -> Transcription:
        # No recording it was taught with is perfectly silent: with a little noise it mishears less.
        sound = np.pad(_normalise_volume(samples), round(_PADDING_S * SAMPLE_RATE))
        sound = sound + np.random.default_rng(0).normal(0, _NOISE_LEVEL, len(sound)).astype(np.float32)
        (hidden,) = self._encoder.run(
            None, {"input_values": sound[None], "attention_mask": np.ones((1, len(sound)), np.int64)}
        )
        decoding = _Decoder(self._decoder, self._cache_names, self._output_names, hidden)
        most = round(len(sound) / SAMPLE_RATE * _TOKENS_A_SECOND)
        found = beam_search(
            decoding.first(),
            decoding.step,
            end=_END_TOKEN,
            max_tokens=most,
            width=_BEAM_WIDTH,
            bonus=self._expected.bonus,
        )
        return max(map(self._scored, found), key=lambda each: each.score)

    def _scored(self, found: Hypothesis) -> Transcription:
        text = self._decode_tokens(found)
        return Transcription(text, found.score(_PRIOR_WEIGHT * self._prior.log_probability(text)))


class _Decoder:
    """One sound's words, token after token, for several beginnings at once."""

    def __init__(self, decoder: Any, past: list[str], given: list[str], hidden: npt.NDArray[np.float32]) -> None:
        self._decoder = decoder
        self._given = given
        self._hidden = hidden
        self._state = {name: np.zeros((1, _HEADS, 0, _HEAD_SIZE), np.float32) for name in past}

    def first(self) -> LogProbabilities:
        return self._run([_START_TOKEN], goes_on=False).reshape(-1)

    def step(self, places: list[int], tokens: list[int]) -> LogProbabilities:
        # What it knows of the sound is the same for all beginnings: only their number may have changed.
        self._state = {
            name: each[places] if ".decoder." in name or len(each) != len(places) else each
            for name, each in self._state.items()
        }
        return self._run(tokens, goes_on=True)

    def _run(self, tokens: list[int], *, goes_on: bool) -> LogProbabilities:
        count, length = len(tokens), self._hidden.shape[1]
        given = self._decoder.run(
            None,
            {
                "input_ids": np.array(tokens, np.int64)[:, None],
                "encoder_hidden_states": np.repeat(self._hidden, count, axis=0),
                # Counted in samples: one for each piece went well up to nine seconds, and failed beyond.
                "encoder_attention_mask": np.ones((count, length * _SAMPLES_PER_FRAME), np.int64),
                "use_cache_branch": np.array([goes_on]),
                **self._state,
            },
        )
        named = dict(zip(self._given, given, strict=True))
        for name in self._state:
            # What it knows of the sound is made once, at the beginning; afterwards it gives none.
            if not goes_on or ".decoder." in name:
                self._state[name] = named[name.replace("past_key_values", "present")]
        return _log_softmax(named["logits"][:, -1])


def _log_softmax(logits: npt.NDArray[np.float32]) -> LogProbabilities:
    above = logits - logits.max(axis=-1, keepdims=True)
    chances: LogProbabilities = above - np.log(np.exp(above).sum(axis=-1, keepdims=True))
    return chances


def _normalise_volume(samples: Samples) -> Samples:
    """As loud as it may be: a quiet microphone is no worse understood than a loud one."""
    peak = float(np.abs(samples).max(initial=0.0))
    return samples * np.float32(min(_TARGET_PEAK / peak, _MAX_GAIN)) if peak else samples


def _parse_tokens(file: bytes) -> list[bytes]:
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
