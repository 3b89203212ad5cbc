"""Moonshine's tiny English model, from the weights in its wheel.

The weights run here directly, which costs half of the wheel's own greedy decoder. The saving pays for a beam search
over two variants of the audio, the second slightly stretched. If their transcriptions differ, a third variant decides.
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

_LENGTH_PENALTY = 0.6
"""Exponent of the length normalisation."""

LogProbabilities = npt.NDArray[np.float32]
Step = Callable[[list[int], list[int]], LogProbabilities]
"""Extends the prefixes at these positions of the previous step by these tokens; returns what may follow each."""
Bonus = Callable[[tuple[int, ...]], Mapping[int, float]]
"""Returns what to add to the log probability of some tokens after a prefix."""


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]
    log_probability: float
    ended: bool = True

    def score(self, extra: float = 0.0) -> float:
        """A score comparable between lengths and audio variants; `extra` is added to the log probability."""
        # A text that did not end repeats itself, and ranks below any that did.
        return (self.log_probability + extra) / ((len(self.tokens) + 1) ** _LENGTH_PENALTY if self.ended else 1)


@dataclass(frozen=True)
class _Prefix:
    tokens: tuple[int, ...]
    log_probability: float


def beam_search(
    first: LogProbabilities, step: Step, *, end: int, max_tokens: int, width: int, bonus: Bonus = lambda _: {}
) -> list[Hypothesis]:
    """Find likely token sequences up to `end` or `max_tokens`; `first` is the distribution of the first token."""
    prefixes = [_Prefix((), 0.0)]
    scores = first.reshape(1, -1).copy()
    hypotheses: list[Hypothesis] = []
    for length in range(1, max_tokens + 1):
        extended: list[tuple[float, int, int]] = []
        for place, prefix in enumerate(prefixes):
            for token, added in bonus(prefix.tokens).items():
                scores[place, token] += added
            likely = np.argpartition(-scores[place], width + 1)[: width + 1]
            extended += [(prefix.log_probability + float(scores[place, token]), place, int(token)) for token in likely]
        kept: list[tuple[float, int, int]] = []
        for score, place, token in sorted(extended, reverse=True):
            if token == end:
                hypotheses.append(Hypothesis(prefixes[place].tokens, score))
            else:
                kept.append((score, place, token))
            if len(kept) == width:
                break
        if len(hypotheses) >= width and max(map(Hypothesis.score, hypotheses)) >= kept[0][0] / length**_LENGTH_PENALTY:
            break
        prefixes = [_Prefix((*prefixes[place].tokens, token), score) for score, place, token in kept]
        scores = step([place for _, place, _ in kept], [token for _, _, token in kept])
    return hypotheses or [Hypothesis(prefixes[0].tokens, prefixes[0].log_probability, ended=False)]


_BONUS = 2.5
"""Added to the log probability: enough for an unclear word, too little for one that was not said."""
WORD_START = "▁"
"""First character of a token that begins a word."""


class WordBoost:
    """Makes expected words likelier during the search. Corrections afterwards cannot recover a dropped word."""

    def __init__(self, words: Iterable[str], tokens: Sequence[bytes]) -> None:
        self._texts = [token.decode("utf-8", "ignore") for token in tokens]
        numbers = {text: number for number, text in enumerate(self._texts)}
        self._completions: dict[str, dict[int, float]] = {"": {}}
        for written in {form for word in words for form in (word, word.capitalize())}:
            form = WORD_START + written
            for start in range(len(form)):
                if (number := numbers.get(form[start:])) is not None:
                    self._completions.setdefault(form[:start], {})[number] = _BONUS

    def bonus(self, prefix: Sequence[int]) -> Mapping[int, float]:
        """Return the tokens that complete an expected word after this prefix, with their bonus."""
        return self._completions[""] | self._completions.get(self._last_word(prefix), {})

    def _last_word(self, prefix: Sequence[int]) -> str:
        word = ""
        for token in reversed(prefix):
            word = self._texts[token] + word
            if word.startswith(WORD_START):
                break
        return word


_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_SENTENCE_START, _SENTENCE_END = "<s>", "</s>"
_HISTORY = 2
_MIN_LOG_PROBABILITY = -18.0
"""Floor, so that an unknown name costs no more than the rarest word."""


class LanguageModelPrior:
    """A trigram model of American English from the pocketsphinx wheel; rates which transcription reads likelier."""

    def __init__(self) -> None:
        try:
            import pocketsphinx
        except ImportError:
            raise MissingExtra("audio", "Understanding what a stream says") from None
        model = Path(pocketsphinx.get_model_path("en-us")) / "en-us.lm.bin"
        self._log_math: Any = pocketsphinx.LogMath()
        self._ngrams: Any = pocketsphinx.NGramModel(pocketsphinx.Config(), self._log_math, str(model))

    def log_probability(self, text: str) -> float:
        """Log probability of a sentence. Case and punctuation are ignored."""
        words = [_SENTENCE_START, *_WORD.findall(text.casefold().replace("’", "'")), _SENTENCE_END]
        return sum(self._conditional(words[max(0, at - _HISTORY) : at + 1]) for at in range(1, len(words)))

    def _conditional(self, words: list[str]) -> float:
        """Log probability of the last word after the others."""
        return max(float(self._log_math.log_to_ln(self._ngrams.prob(words[::-1]))), _MIN_LOG_PROBABILITY)


_EXPECTED_WORDS = ("chat",)
_PADDING_S = 0.3
_NOISE_LEVEL = 0.001
_TARGET_PEAK = 0.9
_MAX_GAIN = 20.0
_BEAM_WIDTH = 4
_TOKENS_A_SECOND = 6.5
"""Limit on the output; more than speech contains, so a longer text is a repetition."""
_START_TOKEN, _END_TOKEN = 1, 2
_LAST_SPECIAL_TOKEN = 2
_MIN_SAMPLES = 1_600
_PRIOR_WEIGHT = 0.25
"""Weight of the language model beside the acoustic score."""
_HEADS, _HEAD_SIZE = 8, 36
_SAMPLES_PER_FRAME = 384
_NON_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class AudioVariant:
    """A modification of the audio before recognition."""

    stretch: float = 1.0
    """Factor by which the audio gets longer and lower."""
    pre_emphasis: float = 0.0
    """Share of each sample subtracted from the next, which attenuates low frequencies."""

    def apply(self, samples: Samples) -> Samples:
        if self.stretch != 1:
            # Resampled in the frequency domain: linear interpolation would add noise.
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
    english = True

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
        options.intra_op_num_threads = 1  # leaves the other cores to the server
        self._encoder: Any = onnxruntime.InferenceSession(str(weights / "encoder_model.ort"), options)
        self._decoder: Any = onnxruntime.InferenceSession(str(weights / "decoder_model_merged.ort"), options)
        self._cache_names = [
            each.name for each in self._decoder.get_inputs() if each.name.startswith("past_key_values")
        ]
        self._output_names = [each.name for each in self._decoder.get_outputs()]
        self._tokens = _parse_tokens((weights / "tokenizer.bin").read_bytes())
        self._expected = WordBoost(expected, self._tokens)
        self._prior = LanguageModelPrior()
        # The first two variants run in parallel, to keep the latency of one.
        self._executor = ThreadPoolExecutor(len(_VARIANTS), thread_name_prefix="moonshine")

    def transcribe(self, samples: Samples) -> str:
        if len(samples) < _MIN_SAMPLES:
            return ""
        results = list(self._executor.map(lambda variant: self._transcribe_once(variant.apply(samples)), _VARIANTS))
        if len({_NON_WORD.sub(" ", result.text).strip().casefold() for result in results}) > 1:
            results.append(self._transcribe_once(_TIE_BREAK_VARIANT.apply(samples)))
        return max(results, key=lambda result: result.score).text

    def _decode_tokens(self, hypothesis: Hypothesis) -> str:
        text = b"".join(self._tokens[token] for token in hypothesis.tokens if token > _LAST_SPECIAL_TOKEN)
        return text.decode("utf-8", "ignore").replace(WORD_START, " ").strip()

    def _transcribe_once(self, samples: Samples) -> Transcription:
        # The training data is never perfectly silent: a little noise reduces errors.
        sound = np.pad(_normalise_volume(samples), round(_PADDING_S * SAMPLE_RATE))
        sound = sound + np.random.default_rng(0).normal(0, _NOISE_LEVEL, len(sound)).astype(np.float32)
        (hidden,) = self._encoder.run(
            None, {"input_values": sound[None], "attention_mask": np.ones((1, len(sound)), np.int64)}
        )
        decoder = _Decoder(self._decoder, self._cache_names, self._output_names, hidden)
        max_tokens = round(len(sound) / SAMPLE_RATE * _TOKENS_A_SECOND)
        hypotheses = beam_search(
            decoder.first(),
            decoder.step,
            end=_END_TOKEN,
            max_tokens=max_tokens,
            width=_BEAM_WIDTH,
            bonus=self._expected.bonus,
        )
        return max(map(self._score, hypotheses), key=lambda transcription: transcription.score)

    def _score(self, hypothesis: Hypothesis) -> Transcription:
        text = self._decode_tokens(hypothesis)
        return Transcription(text, hypothesis.score(_PRIOR_WEIGHT * self._prior.log_probability(text)))


class _Decoder:
    """Decodes one recording token by token, for several prefixes at once."""

    def __init__(
        self, decoder: Any, cache_names: list[str], output_names: list[str], hidden: npt.NDArray[np.float32]
    ) -> None:
        self._decoder = decoder
        self._output_names = output_names
        self._hidden = hidden
        self._state = {name: np.zeros((1, _HEADS, 0, _HEAD_SIZE), np.float32) for name in cache_names}

    def first(self) -> LogProbabilities:
        return self._run([_START_TOKEN], continued=False).reshape(-1)

    def step(self, places: list[int], tokens: list[int]) -> LogProbabilities:
        # The encoder cache is the same for all prefixes; only their number may have changed.
        self._state = {
            name: cache[places] if ".decoder." in name or len(cache) != len(places) else cache
            for name, cache in self._state.items()
        }
        return self._run(tokens, continued=True)

    def _run(self, tokens: list[int], *, continued: bool) -> LogProbabilities:
        count, length = len(tokens), self._hidden.shape[1]
        outputs = self._decoder.run(
            None,
            {
                "input_ids": np.array(tokens, np.int64)[:, None],
                "encoder_hidden_states": np.repeat(self._hidden, count, axis=0),
                # Counted in samples: one per frame fails beyond nine seconds.
                "encoder_attention_mask": np.ones((count, length * _SAMPLES_PER_FRAME), np.int64),
                "use_cache_branch": np.array([continued]),
                **self._state,
            },
        )
        outputs_by_name = dict(zip(self._output_names, outputs, strict=True))
        for name in self._state:
            # The encoder cache is returned only by the first step.
            if not continued or ".decoder." in name:
                self._state[name] = outputs_by_name[name.replace("past_key_values", "present")]
        return _log_softmax(outputs_by_name["logits"][:, -1])


def _log_softmax(logits: npt.NDArray[np.float32]) -> LogProbabilities:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: LogProbabilities = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _normalise_volume(samples: Samples) -> Samples:
    """Scale to a common peak, so that a quiet microphone is recognised as well as a loud one."""
    peak = float(np.abs(samples).max(initial=0.0))
    return samples * np.float32(min(_TARGET_PEAK / peak, _MAX_GAIN)) if peak else samples


def _parse_tokens(file: bytes) -> list[bytes]:
    """Parse the tokenizer file: for each token its length in one or two bytes, then its bytes."""
    tokens: list[bytes] = []
    at = 0
    while at < len(file):
        length, at = file[at], at + 1
        if length >= 128:
            length, at = length - 128 + 128 * file[at], at + 1
        tokens.append(file[at : at + length])
        at += length
    return tokens
