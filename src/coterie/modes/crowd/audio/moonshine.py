"""Moonshine's tiny English model, from the weights in its wheel.

The wheel's own library takes the likeliest next word each time and costs twice as much as running the same weights
here. What that saves is spent on a beam search, and on listening to everything a second time, a little slower. Where
the two hearings differ there is a third, slower still and brighter, which makes up for a dull voice or microphone.
Where they agree a third would only cost time. Of all that was perhaps said, that is chosen which sounds and reads
likeliest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.audio.source import SAMPLE_RATE, Samples
from coterie.modes.crowd.errors import AudioUnavailable

# Beam search: likely words, found by following a few beginnings at once and not only the best one.


_LENGTH_PENALTY = 0.6
"""How far longer texts are forgiven that more words are less likely together."""

LogProbabilities = npt.NDArray[np.float32]
Step = Callable[[list[int], list[int]], LogProbabilities]
"""Goes on with these beginnings (by their places in the step before) by these tokens; what may follow each."""
Bonus = Callable[[tuple[int, ...]], Mapping[int, float]]
"""How much likelier than the model thinks some tokens are after a beginning."""


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]
    log_probability: float
    """The logarithm of it."""
    ended: bool = True

    def score(self, extra: float = 0.0) -> float:
        """Comparable between texts of different lengths, and between hearings of the same words. `more` is what else
        speaks for them, as a logarithm."""
        # What never comes to an end repeats itself, and is worth less than anything that does.
        return (self.log_probability + extra) / ((len(self.tokens) + 1) ** _LENGTH_PENALTY if self.ended else 1)


@dataclass(frozen=True)
class _Prefix:
    tokens: tuple[int, ...]
    log_probability: float


def beam_search(
    first: LogProbabilities, step: Step, *, end: int, max_tokens: int, width: int, bonus: Bonus = lambda _: {}
) -> list[Hypothesis]:
    """Likely tokens until `end`, at most `most`; `first` is what may begin."""
    beginnings = [_Prefix((), 0.0)]
    chances = first.reshape(1, -1).copy()
    found: list[Hypothesis] = []
    for length in range(1, max_tokens + 1):
        longer: list[tuple[float, int, int]] = []
        for place, beginning in enumerate(beginnings):
            for token, more in bonus(beginning.tokens).items():
                chances[place, token] += more
            likely = np.argpartition(-chances[place], width + 1)[: width + 1]
            longer += [
                (beginning.log_probability + float(chances[place, token]), place, int(token)) for token in likely
            ]
        alive: list[tuple[float, int, int]] = []
        for chance, place, token in sorted(longer, reverse=True):
            if token == end:
                found.append(Hypothesis(beginnings[place].tokens, chance))
            else:
                alive.append((chance, place, token))
            if len(alive) == width:
                break
        if len(found) >= width and max(each.score() for each in found) >= alive[0][0] / length**_LENGTH_PENALTY:
            break
        beginnings = [_Prefix((*beginnings[place].tokens, token), chance) for chance, place, token in alive]
        chances = step([place for _, place, _ in alive], [token for _, _, token in alive])
    return found or [Hypothesis(beginnings[0].tokens, beginnings[0].log_probability, ended=False)]


# Words that are expected: a recogniser that learnt from audio books hears Chet where a streamer says chat.
#
# Whatever would complete such a word is made likelier while its words are still being searched for, where the sound can
# yet speak against it. Words put right afterwards are too late: by then the search may have left the word out.


_BONUS = 2.5
"""Added to the logarithm of its chance: enough for a word that was heard half, too little for one that was not."""
WORD_START = "▁"
"""What a token begins with where a word begins."""


class WordBoost:
    def __init__(self, words: Iterable[str], tokens: Sequence[bytes]) -> None:
        self._texts = [token.decode("utf-8", "ignore") for token in tokens]
        numbers = {text: number for number, text in enumerate(self._texts)}
        self._completions: dict[str, dict[int, float]] = {"": {}}
        for written in {form for word in words for form in (word, word.capitalize())}:
            form = WORD_START + written
            for start in range(len(form)):
                if (number := numbers.get(form[start:])) is not None:
                    self._completions.setdefault(form[:start], {})[number] = _BONUS

    def bonus(self, beginning: Sequence[int]) -> Mapping[int, float]:
        """Tokens that complete an expected word after this beginning, and how much likelier each is."""
        return self._completions[""] | self._completions.get(self._last_word(beginning), {})

    def _last_word(self, beginning: Sequence[int]) -> str:
        word = ""
        for token in reversed(beginning):
            word = self._texts[token] + word
            if word.startswith(WORD_START):
                break
        return word


# How likely words are after one another, whoever says them: what a recogniser half hears, it decides.
#
# The recogniser's weights have read little: among "the first boss" and "the first goss" they choose by sound alone. Here
# are three words at a time of everyday American English, from the wheel of an older recogniser that brings them along.


_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_SENTENCE_START, _SENTENCE_END = "<s>", "</s>"
_HISTORY = 2
_MIN_LOG_PROBABILITY = -18.0
"""A name that nobody wrote down is no worse than the rarest word."""


class LanguageModelPrior:
    def __init__(self) -> None:
        try:
            import pocketsphinx
        except ImportError:
            raise MissingExtra("audio", "Understanding what a stream says") from None
        model = Path(pocketsphinx.get_model_path("en-us")) / "en-us.lm.bin"
        self._log_math: Any = pocketsphinx.LogMath()
        self._ngrams: Any = pocketsphinx.NGramModel(pocketsphinx.Config(), self._log_math, str(model))

    def log_probability(self, text: str) -> float:
        """Of these words together, as a sentence of their own. Capitals and marks do not count."""
        words = [_SENTENCE_START, *_WORD.findall(text.casefold().replace("’", "'")), _SENTENCE_END]
        return sum(self._conditional(words[max(0, at - _HISTORY) : at + 1]) for at in range(1, len(words)))

    def _conditional(self, words: list[str]) -> float:
        """The last of them, after the others."""
        return max(float(self._log_math.log_to_ln(self._ngrams.prob(words[::-1]))), _MIN_LOG_PROBABILITY)


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
