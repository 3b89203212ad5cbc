"""Sets of sequence numbers as closed intervals, for the active events of a stream.

Streams are long and rewound parts are contiguous, so a few intervals describe a set of millions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Pair = tuple[int, int]


class Ranges:
    """An immutable set of integers, kept as sorted, disjoint, non-adjacent closed intervals."""

    __slots__ = ("_starts", "pairs")

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        merged: list[Pair] = []
        for low, high in sorted(pairs):
            if low > high:
                continue
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        self.pairs: tuple[Pair, ...] = tuple(merged)
        self._starts = [low for low, _ in merged]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number <= self.pairs[index][1]

    def __iter__(self) -> Iterator[int]:
        for low, high in self.pairs:
            yield from range(low, high + 1)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Ranges({list(self.pairs)})"

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges((*self.pairs, *other.pairs))

    def __sub__(self, other: Ranges) -> Ranges:
        remaining: list[Pair] = []
        holes = iter(other.pairs)
        hole = next(holes, None)
        for low, high in self.pairs:
            start = low
            while hole is not None and hole[1] < start:
                hole = next(holes, None)
            while hole is not None and hole[0] <= high:
                remaining.append((start, hole[0] - 1))
                start = hole[1] + 1
                if hole[1] > high:
                    break
                hole = next(holes, None)
            remaining.append((start, high))
        return Ranges(remaining)

    def up_to(self, number: int) -> Ranges:
        return Ranges((low, min(high, number)) for low, high in self.pairs)

    def after(self, number: int) -> Ranges:
        return Ranges((max(low, number + 1), high) for low, high in self.pairs)
