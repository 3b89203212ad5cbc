"""How often somebody may speak: a bucket of messages that refills, and slow mode on top of it."""

from __future__ import annotations

from pydantic import Field

from coterie.base.config import Section

_MAX_AUTHORS = 50_000


class RoomLimits(Section):
    """How fast a room may go."""

    burst: int = Field(default=5, ge=1)
    """So many messages at once …"""
    per_minute: float = Field(default=30, gt=0)
    """… and so many a minute in the long run, for each author."""
    slow_mode_s: float = Field(default=0, ge=0)
    """Seconds between two messages of a person; 0 is off. Personas keep to it too."""
    followers_only: bool = False


class TokenBuckets:
    """One bucket per author. Whoever has not spoken for long enough has a full one, and need not be remembered."""

    def __init__(self, limits: RoomLimits) -> None:
        self._burst = float(limits.burst)
        self._per_ms = limits.per_minute / 60_000
        self._left: dict[str, tuple[float, int]] = {}
        """Author → what was left in the bucket, and when."""

    def take(self, author: str, now_ms: int) -> float:
        """Take one message out. Returns 0, or the seconds after which there will be one to take."""
        left, since = self._left.get(author, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - since) * self._per_ms)
        if left < 1:
            return (1 - left) / self._per_ms / 1_000
        if len(self._left) >= _MAX_AUTHORS and author not in self._left:
            self._drop_full(now_ms)
        self._left[author] = (left - 1, now_ms)
        return 0.0

    def _drop_full(self, now_ms: int) -> None:
        self._left = {
            author: (left, since)
            for author, (left, since) in self._left.items()
            if left + (now_ms - since) * self._per_ms < self._burst
        }
