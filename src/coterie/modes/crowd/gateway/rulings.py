"""What moderators decided: timeouts, bans, slow mode, followers only, and the switch that silences a room."""

from __future__ import annotations

from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.events import CrowdRuled
from coterie.modes.crowd.gateway.limits import RoomLimits
from coterie.modes.crowd.protocol import ChatAuthor


class ModerationState:
    def __init__(self, limits: RoomLimits) -> None:
        self._timed_out_until: dict[str, int] = {}
        self._banned: set[str] = set()
        self._followers: set[str] = set()
        self._last_message_ms: dict[str, int] = {}
        self.slow_ms = round(limits.slow_mode_s * 1_000)
        self.followers_only = limits.followers_only
        self.killed = False

    def apply(self, ruling: CrowdRuled) -> None:
        who = ruling.who.casefold()
        match ruling.what:
            case "timeout":
                self._timed_out_until[who] = ruling.at_ms + round((ruling.seconds or 60) * 1_000)
            case "ban":
                self._banned.add(who)
            case "pardon":
                self._banned.discard(who)
                self._timed_out_until.pop(who, None)
            case "slow":
                self.slow_ms = round((ruling.seconds or 0) * 1_000)
            case "followers":
                self.followers_only = ruling.on
            case "follow":
                (self._followers.add if ruling.on else self._followers.discard)(who)
            case "kill":
                self.killed = True
            case "revive":
                self.killed = False

    def check(self, author: ChatAuthor, now_ms: int) -> None:
        """`Refused` if this author may not speak now."""
        if self.killed and author.kind != "system":
            raise MessageRefused("killed", "This room is switched off.", "Wait until a moderator switches it on again.")
        who = author.name.casefold()
        if who in self._banned:
            raise MessageRefused("ban", "You are banned from this room.", "A moderator can lift it.")
        if (until := self._timed_out_until.get(who, 0)) > now_ms:
            seconds = (until - now_ms) / 1_000
            raise MessageRefused("timeout", "You are timed out.", f"Come back in {seconds:.0f} s.", seconds)
        if author.kind == "system":
            return
        if self.followers_only and author.kind == "human" and who not in self._followers:
            raise MessageRefused("followers", "Only followers may chat here.", "Follow the room first.")
        if self.slow_ms and (wait := self._last_message_ms.get(who, -self.slow_ms) + self.slow_ms - now_ms) > 0:
            raise MessageRefused(
                "slow", "The room is in slow mode.", f"Try again in {wait / 1_000:.0f} s.", wait / 1_000
            )

    def record_message(self, author: ChatAuthor, now_ms: int) -> None:
        if self.slow_ms:
            self._last_message_ms[author.name.casefold()] = now_ms
