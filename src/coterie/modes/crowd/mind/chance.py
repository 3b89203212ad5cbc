"""Chance that is the same in every process: numbers made of names, not drawn from a generator that others share."""

from __future__ import annotations

import hashlib

_SEED_RANGE = 2.0**64


def derive_seed(*parts: object) -> int:
    """A whole number below 2**64 that these names, and only they, lead to."""
    told = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


def derive_random(*parts: object) -> float:
    """A number in [0, 1)."""
    return derive_seed(*parts) / _SEED_RANGE
