"""Counts tokens for any model, offline: with its own tokenizer where we have it, with a calibrated estimate otherwise.

The estimate learns: whenever a provider says how many tokens a prompt really had, the model's factor moves toward it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from coterie.llm.catalogue import Catalogue, Target
from coterie.llm.estimate import estimate, weights_for
from coterie.llm.messages import Prompt, Tool
from coterie.llm.tokenizer import tokenizer_of
from coterie.llm.weights import find_weights

if TYPE_CHECKING:
    from tiktoken import Encoding

_PER_MESSAGE = 5
"""What a chat template puts around each message: a role, two marks, line ends."""
_PER_REPLY = 3
"""How a template begins the answer."""
_PER_IMAGE = 800
_MOST_COUNTED, _LONG = 4_000, 4_000
"""How many texts are known by their count, and how long one may be to be kept for that; of a longer one the hash is."""
_MOST_TOOLS = 1_000
_LEARNING = 0.2
_NARROWEST, _WIDEST = 0.5, 2.0


class TokenCounter:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._factors: dict[Target, float] = {}
        self._exact: dict[Target, Encoding] = {}
        self._counted: dict[Target, dict[str | int, int]] = {}
        self._written: dict[int, tuple[Tool, str]] = {}

    def count(self, target: Target, text: str) -> int:
        return self.counter(target)(text)

    def count_prompt(self, target: Target, prompt: Prompt) -> int:
        count = self.counter(target)
        total = _PER_REPLY
        for message in prompt.messages:
            total += count(message.text) + _PER_MESSAGE + _PER_IMAGE * len(message.images)
            for call in message.calls:
                total += count(call.name + call.arguments)
        return total + sum(count(self._as_written(tool)) for tool in prompt.tools)

    def counter(self, target: Target) -> Callable[[str], int]:
        """For all pieces of a prompt: whose they are is looked up once."""
        if (exact := self._tokenizer(target)) is not None:
            return partial(_counted_exactly, self._counted.setdefault(target, {}), exact)
        weights, factor = weights_for(target.model), self._factors.get(target, 1.0)
        return lambda text: round(estimate(text, weights) * factor)

    def _as_written(self, tool: Tool) -> str:
        """The same tools go with every prompt of a process: writing them out took longer than counting them."""
        known = self._written.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._written) > _MOST_TOOLS:
                self._written.clear()
            known = self._written[id(tool)] = (tool, tool.model_dump_json())
        return known[1]

    def is_exact(self, target: Target) -> bool:
        return self._tokenizer(target) is not None

    async def prepare(self, target: Target) -> None:
        """Load the model's tokenizer off the event loop, so that the first count does not hold it up."""
        if target.provider == "embedded" and target not in self._exact:
            await asyncio.to_thread(self._tokenizer, target)

    def learn(self, target: Target, counted: int, actual: int) -> None:
        """`counted` was ours, `actual` the provider's, for the same prompt."""
        if counted <= 0 or actual <= 0 or self.is_exact(target):
            return
        factor = self._factors.get(target, 1.0)
        aimed = min(max(factor * actual / counted, _NARROWEST), _WIDEST)
        self._factors[target] = factor + _LEARNING * (aimed - factor)

    def _tokenizer(self, target: Target) -> Encoding | None:
        if target.provider != "embedded":
            return None
        # Looking for the file takes a millisecond, and a prompt is counted in hundreds of pieces.
        if target not in self._exact:
            found = tokenizer_of(find_weights(self._catalogue.settings.embedded.model))
            if found is None:
                return None
            self._exact[target] = found
        return self._exact[target]


def _counted_exactly(known: dict[str | int, int], tokenizer: Encoding, text: str) -> int:
    """Most of a prompt was in the last one too, and reading it again is what would take the time."""
    name = text if len(text) <= _LONG else hash((len(text), text))
    if (count := known.get(name)) is None:
        if len(known) > _MOST_COUNTED:
            known.clear()
        count = known[name] = len(tokenizer.encode_ordinary(text))
    return count
