"""What tokens cost: the price in the settings, else the one in the price list that came with the installation.

The list (genai-prices) is data in a package and is never fetched. A model that neither knows is priced with an
assumption from the settings, and marked so: a cap that ignored unknown prices would not be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.llm.catalogue import Catalogue, Target
from coterie.llm.messages import Tokens

PriceBasis = Literal["known", "assumed", "flat", "free"]


@dataclass(frozen=True)
class Price:
    usd_micros: int
    basis: PriceBasis


class Prices:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._unlisted: set[Target] = set()

    def price(self, target: Target, tokens: Tokens) -> Price:
        spec = self._catalogue.spec(target.provider)
        if spec.free:
            return Price(0, "free")
        details = self._catalogue.details(target)
        if details.usd_per_million_in is not None and details.usd_per_million_out is not None:
            # Dollars per million tokens are micro-dollars per token.
            cost = tokens.input * details.usd_per_million_in + tokens.output * details.usd_per_million_out
            return Price(round(cost), "known")
        if spec.flat_rate:
            return Price(0, "flat")
        if (listed := self._list_price(target, tokens)) is not None:
            return Price(listed, "known")
        per_token = self._catalogue.settings.caps.unknown_usd_per_million
        return Price(round((tokens.input + tokens.output) * per_token), "assumed")

    def _list_price(self, target: Target, tokens: Tokens) -> int | None:
        if target in self._unlisted:
            return None
        from genai_prices import Usage, calc_price

        usage = Usage(
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cache_read_tokens=min(tokens.cached, tokens.input),
        )
        try:
            found = calc_price(usage, target.model, provider_id=target.provider)
        except LookupError:
            self._unlisted.add(target)
            return None
        return round(found.total_price * 1_000_000)
