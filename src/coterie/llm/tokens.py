"""Counts tokens for any model, offline: with its own tokenizer where we have it, with a calibrated estimate otherwise.

The estimate learns: whenever a provider says how many tokens a prompt really had, the model's factor moves toward it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from coterie.llm.catalogue import Catalogue, Target
from coterie.llm.estimate import estimate_tokens, token_weights_for
from coterie.llm.messages import Prompt, ToolSpec
from coterie.llm.tokenizer import load_tokenizer
from coterie.llm.weights import find_weights

if TYPE_CHECKING:
    from tiktoken import Encoding

_PER_MESSAGE = 5
"""What a chat template puts around each message: a role, two marks, line ends."""
_PER_REPLY = 3
"""How a template begins the answer."""
_PER_IMAGE = 800
_MAX_CACHED_COUNTS, _MAX_KEY_LENGTH = 4_000, 4_000
"""How many texts are known by their count, and how long one may be to be kept for that; of a longer one the hash is."""
_MAX_CACHED_TOOLS = 1_000
_LEARNING_RATE = 0.2
_MIN_FACTOR, _MAX_FACTOR = 0.5, 2.0


class TokenCounter:
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
            total += count(message.text) + _PER_MESSAGE + _PER_IMAGE * len(message.images)
            for call in message.calls:
                total += count(call.name + call.arguments)
        return total + sum(count(self._tool_json(tool)) for tool in prompt.tools)

    def counter(self, target: Target) -> Callable[[str], int]:
        """For all pieces of a prompt: whose they are is looked up once."""
        if (exact := self._tokenizer(target)) is not None:
            return partial(_count_exactly, self._count_cache.setdefault(target, {}), exact)
        weights, factor = token_weights_for(target.model), self._factors.get(target, 1.0)
        return lambda text: round(estimate_tokens(text, weights) * factor)

    def _tool_json(self, tool: ToolSpec) -> str:
        """The same tools go with every prompt of a process: writing them out took longer than counting them."""
        known = self._tool_json_cache.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._tool_json_cache) > _MAX_CACHED_TOOLS:
                self._tool_json_cache.clear()
            known = self._tool_json_cache[id(tool)] = (tool, tool.model_dump_json())
        return known[1]

    def is_exact(self, target: Target) -> bool:
        return self._tokenizer(target) is not None

    async def prepare(self, target: Target) -> None:
        """Load the model's tokenizer off the event loop, so that the first count does not hold it up."""
        if target.provider == "embedded" and target not in self._tokenizers:
            await asyncio.to_thread(self._tokenizer, target)

    def calibrate(self, target: Target, counted: int, actual: int) -> None:
        """`counted` was ours, `actual` the provider's, for the same prompt."""
        if counted <= 0 or actual <= 0 or self.is_exact(target):
            return
        factor = self._factors.get(target, 1.0)
        aimed = min(max(factor * actual / counted, _MIN_FACTOR), _MAX_FACTOR)
        self._factors[target] = factor + _LEARNING_RATE * (aimed - factor)

    def _tokenizer(self, target: Target) -> Encoding | None:
        if target.provider != "embedded":
            return None
        # Looking for the file takes a millisecond, and a prompt is counted in hundreds of pieces.
        if target not in self._tokenizers:
            found = load_tokenizer(find_weights(self._catalogue.settings.embedded.model))
            if found is None:
                return None
            self._tokenizers[target] = found
        return self._tokenizers[target]


def _count_exactly(known: dict[str | int, int], tokenizer: Encoding, text: str) -> int:
    """Most of a prompt was in the last one too, and reading it again is what would take the time."""
    name = text if len(text) <= _MAX_KEY_LENGTH else hash((len(text), text))
    if (count := known.get(name)) is None:
        if len(known) > _MAX_CACHED_COUNTS:
            known.clear()
        count = known[name] = len(tokenizer.encode_ordinary(text))
    return count
