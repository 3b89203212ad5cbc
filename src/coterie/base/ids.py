"""Identifiers that sort by creation time, in the ULID layout.

48 bits of milliseconds and 80 of randomness, as 26 characters of Crockford's base 32. Within one millisecond the
random part is incremented, so the ids of one process are always in order.
"""

from __future__ import annotations

import secrets
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)
_RANDOM_BITS = 80

_lock = threading.Lock()
_last = 0


def new_id(now_ms: int | None = None) -> str:
    """A new identifier, greater than all that this process created before."""
    global _last
    ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with _lock:
        fresh = (ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        # A clock set back, or two ids in one millisecond, must not break the order.
        _last = fresh if fresh >> _RANDOM_BITS > _last >> _RANDOM_BITS else _last + 1
        value = _last
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in _SHIFTS])


def id_time_ms(identifier: str) -> int:
    """The creation time of an identifier in milliseconds since 1970."""
    value = 0
    for letter in identifier:
        value = value << 5 | _ALPHABET.index(letter)
    return value >> _RANDOM_BITS
