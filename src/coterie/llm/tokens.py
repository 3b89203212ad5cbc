"""Token counts without a network: by the model's own tokenizer if it is available, otherwise by an estimate.

The estimate is calibrated: each count that a provider reports moves the model's factor toward it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from coterie.llm.embedded.gguf import load_tokenizer
from coterie.llm.messages import Prompt, ToolSpec
from coterie.llm.settings import Catalogue, Target

if TYPE_CHECKING:
    from tiktoken import Encoding


# For the estimate, a text is split into runs of one script each. The weights of each kind of run are fitted to real
# vocabularies (cl100k, the base of Llama 3's; o200k; tekken) with 52 languages, Markdown, code and chat.
# `python -m bench.tokens` measures the error.
@dataclass(frozen=True)
class TokenWeights:
    """Tokens per run of a script and per letter in it; accents are added."""

    latin: tuple[float, float]
    accent: float
    han: tuple[float, float]
    kana: tuple[float, float]
    hangul: tuple[float, float]
    cyrillic: tuple[float, float]
    greek: tuple[float, float]
    arabic: tuple[float, float]
    hebrew: tuple[float, float]
    thai: tuple[float, float]
    letter: tuple[float, float]
    marks: tuple[float, float]
    symbol: tuple[float, float]
    line: tuple[float, float]
    gap: tuple[float, float]
    three_digits: float


CL100K = TokenWeights(
    latin=(0.044, 0.217),
    accent=2.307,
    han=(0, 1.176),
    kana=(0, 0.925),
    hangul=(0, 0.987),
    cyrillic=(1.244, 0.345),
    greek=(0, 1.047),
    arabic=(2.731, 0.229),
    hebrew=(1.445, 0.850),
    thai=(0, 0.935),
    letter=(0, 2.080),
    marks=(0.736, 0.254),
    symbol=(0, 0.742),
    line=(0, 0),
    gap=(1.149, 0),
    three_digits=3.428,
)
O200K = TokenWeights(
    latin=(0.078, 0.202),
    accent=1.242,
    han=(0, 0.894),
    kana=(0, 0.603),
    hangul=(0, 0.623),
    cyrillic=(1.524, 0.062),
    greek=(0, 0.383),
    arabic=(1.242, 0.055),
    hebrew=(1.448, 0.094),
    thai=(0, 0.392),
    letter=(0, 0.353),
    marks=(0.834, 0.256),
    symbol=(0, 0.473),
    line=(0, 0),
    gap=(1.273, 0),
    three_digits=2.939,
)
TEKKEN = TokenWeights(
    latin=(0, 0.245),
    accent=1.245,
    han=(0, 1.126),
    kana=(0, 0.568),
    hangul=(0, 0.665),
    cyrillic=(0.471, 0.286),
    greek=(0.152, 0.390),
    arabic=(1.489, 0),
    hebrew=(1.141, 0.246),
    thai=(0, 0.532),
    letter=(0, 0.469),
    marks=(0.583, 0.264),
    symbol=(0, 0.650),
    line=(0.549, 0),
    gap=(0.766, 0),
    three_digits=5.217,
)

_FAMILIES: tuple[tuple[re.Pattern[str], TokenWeights], ...] = (
    (re.compile(r"mi[sx]tral|nemo|magistral|devstral|pixtral", re.IGNORECASE), TEKKEN),
    (re.compile(r"gpt-4o|gpt-4\.1|gpt-[5-9]|gpt-oss|\bo[1-9]\b|gemma|gemini", re.IGNORECASE), O200K),
)

_RUNS = re.compile(
    r"""
      (?P<latin>[A-Za-z\u00c0-\u024f\u1e00-\u1eff][A-Za-z\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]*)
    | (?P<han>[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)
    | (?P<kana>[\u3040-\u30ff\u31f0-\u31ff]+)
    | (?P<hangul>[\uac00-\ud7af\u1100-\u11ff]+)
    | (?P<cyrillic>[\u0400-\u052f][\u0300-\u036f\u0400-\u052f]*)
    | (?P<greek>[\u0370-\u03ff\u1f00-\u1fff]+)
    | (?P<arabic>[\u0600-\u06ff\u0750-\u077f]+)
    | (?P<hebrew>[\u0590-\u05ff]+)
    | (?P<thai>[\u0e00-\u0e7f]+)
    | (?P<digits>\d+)
    | (?P<line>\s*\n\s*)
    | (?P<gap>\s\s+)
    | (?P<blank>\s)
    | (?P<marks>[\x21-\x7e]+)
    | (?P<letter>[^\W_])
    | (?P<symbol>.)
    """,
    re.VERBOSE | re.DOTALL,
)


_STACKED = "\u1e00"
"""From here on letters have two accents (Vietnamese); vocabularies contain them, so no accent is added."""


def token_weights_for(model: str) -> TokenWeights:
    """The weights of the model's family, by its name; otherwise those that give the highest estimate."""
    return next((weights for pattern, weights in _FAMILIES if pattern.search(model)), CL100K)


@lru_cache(maxsize=4096)
def estimate_tokens(text: str, weights: TokenWeights = CL100K) -> int:
    total = 0.0
    for run in _RUNS.finditer(text):
        kind, length = run.lastgroup or "symbol", run.end() - run.start()
        if kind == "blank":
            continue
        if kind == "digits":
            total += weights.three_digits * -(-length // 3)
            continue
        per_run, per_letter = getattr(weights, kind)
        total += per_run + per_letter * length
        if kind == "latin" and not (word := run.group()).isascii():
            total += weights.accent * sum("\x7f" < letter < _STACKED for letter in word)
    return max(1, round(total)) if text else 0


_PER_MESSAGE = 5
"""Tokens that a chat template adds to each message: a role, two markers, line ends."""
_PER_REPLY = 3
"""Tokens that a template puts before the answer."""
IMAGE_TOKENS = 800
"""What a picture counts as."""
_MAX_CACHED_COUNTS, _MAX_KEY_LENGTH = 4_000, 4_000
"""The size of the count cache, and the length above which a text's hash is the key."""
_MAX_CACHED_TOOLS = 1_000
_LEARNING_RATE = 0.2
_MIN_FACTOR, _MAX_FACTOR = 0.5, 2.0


class TokenCounter:
    """Counts the tokens of texts and prompts for a model, with caches and calibration."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._factors: dict[Target, float] = {}
        self._tokenizers: dict[Target, Encoding] = {}
        self._count_cache: dict[Target, dict[str | int, int]] = {}
        self._tool_json_cache: dict[int, tuple[ToolSpec, str]] = {}

    def count(self, target: Target, text: str) -> int:
        return self.counter(target)(text)

    def count_prompt(self, target: Target, prompt: Prompt) -> int:
        count = self.counter(target)
        total = _PER_REPLY
        for message in prompt.messages:
            total += count(message.text) + _PER_MESSAGE + IMAGE_TOKENS * len(message.images)
            for call in message.calls:
                total += count(call.name + call.arguments)
        return total + sum(count(self._tool_json(tool)) for tool in prompt.tools)

    def counter(self, target: Target) -> Callable[[str], int]:
        """A count function for the model, which looks up the tokenizer only once for all parts of a prompt."""
        if (exact := self._tokenizer(target)) is not None:
            return partial(_count_exactly, self._count_cache.setdefault(target, {}), exact)
        weights, factor = token_weights_for(target.model), self._factors.get(target, 1.0)
        return lambda text: round(estimate_tokens(text, weights) * factor)

    def _tool_json(self, tool: ToolSpec) -> str:
        """The tool as JSON, cached: serialising it takes longer than counting it."""
        cached = self._tool_json_cache.get(id(tool))
        if cached is None or cached[0] is not tool:
            if len(self._tool_json_cache) > _MAX_CACHED_TOOLS:
                self._tool_json_cache.clear()
            cached = self._tool_json_cache[id(tool)] = (tool, tool.model_dump_json())
        return cached[1]

    def is_exact(self, target: Target) -> bool:
        return self._tokenizer(target) is not None

    async def prepare(self, target: Target) -> None:
        """Load the model's tokenizer off the event loop, so that the first count does not block it."""
        if target.provider == "embedded" and target not in self._tokenizers:
            await asyncio.to_thread(self._tokenizer, target)

    def forget(self, target: Target) -> None:
        """Drop what was derived from the model's file, which has changed."""
        self._tokenizers.pop(target, None)
        self._count_cache.pop(target, None)

    def calibrate(self, target: Target, counted: int, actual: int) -> None:
        """Adjust the estimate by our count and the provider's count of the same prompt."""
        if counted <= 0 or actual <= 0 or self.is_exact(target):
            return
        factor = self._factors.get(target, 1.0)
        measured = min(max(factor * actual / counted, _MIN_FACTOR), _MAX_FACTOR)
        self._factors[target] = factor + _LEARNING_RATE * (measured - factor)

    def _tokenizer(self, target: Target) -> Encoding | None:
        if target.provider != "embedded":
            return None
        # Finding the file takes a millisecond, and a prompt is counted in hundreds of parts.
        if target not in self._tokenizers:
            tokenizer = load_tokenizer(self._catalogue.weights(target))
            if tokenizer is None:
                return None
            self._tokenizers[target] = tokenizer
        return self._tokenizers[target]


def _count_exactly(cache: dict[str | int, int], tokenizer: Encoding, text: str) -> int:
    """Count with a cache, because most parts of a prompt were in the previous one too."""
    key = text if len(text) <= _MAX_KEY_LENGTH else hash((len(text), text))
    if (count := cache.get(key)) is None:
        if len(cache) > _MAX_CACHED_COUNTS:
            cache.clear()
        count = cache[key] = len(tokenizer.encode_ordinary(text))
    return count
