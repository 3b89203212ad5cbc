"""What a text is about: its telling words, folded, the common ones left out."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator

from coterie.memory.text import STOP_WORDS
from coterie.modes.crowd.protocol import ChatMessage, Trends
from coterie.modes.crowd.protocol.messages import TrendCount

_WORD = re.compile(r"[^\W\d_][\w'-]{2,}")
_COMMON_IN_CHAT = frozenset(
    """
    one day get man new now old see two way boy put say use know want good much time come just like long make many
    take well every first found house large place right small sound still thing think three water world write yeah
    okay chat going gonna really never ever even also
    """.split()  # noqa: SIM905 - easier to read than quoted words
)


def chat_keywords(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if word.partition("'")[0] not in STOP_WORDS and word not in _COMMON_IN_CHAT:
            yield word


# How the chat is going, kept up message by message: velocity, words, emotes, mentions, personas' share, mood. C15


_VELOCITY_MS = 10_000
_WINDOW_MS = 60_000
_TOP = 5
_POSITIVE = frozenset(
    """
    lol lmao haha love lovely nice clean gg pog yes wow beautiful clutch hype best great win cosy happy bravo
    """.split()  # noqa: SIM905 - easier to read than quoted words
)
_NEGATIVE = frozenset(
    """
    no rip sad pain ouch oof lost worst boring died dead fail cry noo nooo why alas sorry
    """.split()  # noqa: SIM905 - easier to read than quoted words
)


class TrendTracker:
    def __init__(self, room: str) -> None:
        self._room = room
        self._window: deque[tuple[ChatMessage, list[str]]] = deque()
        self._recent_times: deque[int] = deque()
        self._tokens: Counter[str] = Counter()
        self._emotes: Counter[str] = Counter()
        self._mentions: Counter[str] = Counter()
        self._persona_count = 0
        self._mood_sum = 0

    def add(self, message: ChatMessage) -> None:
        words = list(dict.fromkeys(chat_keywords(message.text)))
        self._window.append((message, words))
        self._recent_times.append(message.ts)
        self._count(message, words, 1)

    def trends_at(self, at_ms: int) -> Trends:
        while self._window and self._window[0][0].ts <= at_ms - _WINDOW_MS:
            self._count(*self._window.popleft(), -1)
        while self._recent_times and self._recent_times[0] <= at_ms - _VELOCITY_MS:
            self._recent_times.popleft()
        heard = len(self._window)
        return Trends(
            room=self._room,
            ts=at_ms,
            velocity=len(self._recent_times) * 1_000 / _VELOCITY_MS,
            top_tokens=_top(self._tokens),
            top_emotes=_top(self._emotes),
            bot_fraction=self._persona_count / heard if heard else 0.0,
            top_mentions=_top(self._mentions),
            mood=max(-1.0, min(1.0, self._mood_sum / heard)) if heard else 0.0,
        )

    def _count(self, message: ChatMessage, words: list[str], by: int) -> None:
        self._persona_count += by * (message.author.kind == "persona")
        said = message.text.casefold().split()
        self._mood_sum += by * (any(word in _POSITIVE for word in said) - any(word in _NEGATIVE for word in said))
        for counter, found in (
            (self._tokens, words),
            (self._emotes, message.emotes),
            (self._mentions, message.mentions),
        ):
            for what in found:
                counter[what] += by
                if not counter[what]:
                    del counter[what]


def _top(counter: Counter[str]) -> tuple[TrendCount, ...]:
    """The most common, ties by name: the order in which things were said must not show."""
    first = sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:_TOP]
    return tuple(TrendCount(what=what, times=times) for what, times in first if times > 1)
