"""Keywords, trends and spam detection over chat messages."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from coterie.memory import STOP_WORDS
from coterie.modes.crowd.protocol import ChatMessage, TrendCount, Trends

_WORD = re.compile(r"[^\W\d_][\w'-]{2,}")
_COMMON_IN_CHAT = frozenset(
    """
    one day get man new now old see two way boy put say use know want good much time come just like long make many
    take well every first found house large place right small sound still thing think three water world write yeah
    okay chat going gonna really never ever even also
    """.split()  # noqa: SIM905 - easier to read than quoted words
)


def chat_keywords(text: str) -> Iterator[str]:
    """Yield the words of a text that say what it is about, case-folded and without common words."""
    for word in _WORD.findall(text.casefold()):
        if word.partition("'")[0] not in STOP_WORDS and word not in _COMMON_IN_CHAT:
            yield word


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
    """Counts the messages of the last minute: velocity, words, emotes, mentions, share of personas, mood."""

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
        count = len(self._window)
        return Trends(
            room=self._room,
            ts=at_ms,
            velocity=len(self._recent_times) * 1_000 / _VELOCITY_MS,
            top_tokens=_top(self._tokens),
            top_emotes=_top(self._emotes),
            bot_fraction=self._persona_count / count if count else 0.0,
            top_mentions=_top(self._mentions),
            mood=max(-1.0, min(1.0, self._mood_sum / count)) if count else 0.0,
        )

    def _count(self, message: ChatMessage, words: list[str], by: int) -> None:
        self._persona_count += by * (message.author.kind == "persona")
        tokens = message.text.casefold().split()
        self._mood_sum += by * (any(each in _POSITIVE for each in tokens) - any(each in _NEGATIVE for each in tokens))
        for counter, counted in (
            (self._tokens, words),
            (self._emotes, message.emotes),
            (self._mentions, message.mentions),
        ):
            for what in counted:
                counter[what] += by
                if not counter[what]:
                    del counter[what]


def _top(counter: Counter[str]) -> tuple[TrendCount, ...]:
    """The most common, ties by name, so that the result does not depend on the order of messages."""
    first = sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:_TOP]
    return tuple(TrendCount(what=what, times=times) for what, times in first if times > 1)


_MAX_PER_MINUTE = 12
_FLAG_MS = 180_000
_PASTED_MIN_COUNT = 3
_PASTED_SHARE = 0.5
_MIN_KEYWORDS = 2
_TOKEN = re.compile(r"[^\W_]+")
_PROMOTION = re.compile(
    r"(?i)\b(?:check out|follow (?:me|my)|sub(?:scribe)? to|my (?:channel|stream|server|onlyfans|discord|shop)|giveaway"
    r"|promo|discount|free (?:skins?|coins?|gifts?|subs?|stuff)|link in|dm me|join my|buy (?:now|my|cheap)|earn|invest"
    r"|viewers? for|guaranteed|limited time)\b"
)
_VOWELS = frozenset("aeiouyäöüáéíóú")


class SpamVerdict(NamedTuple):
    is_spam: bool = False
    is_informative: bool = True
    """Whether it may hold something to remember."""
    reason: str = ""


class SpamFilter:
    """Detects floods, pasted text, promotion and noise.

    A verdict depends only on earlier messages, so a replay gives the same one. Spam is neither answered nor remembered.
    """

    def __init__(self) -> None:
        self._by_author: dict[str, deque[int]] = {}
        self._flagged_until: dict[str, int] = {}
        self._bigram_counts: Counter[str] = Counter()
        self._window: deque[tuple[int, frozenset[str]]] = deque()

    def check(self, message: ChatMessage) -> SpamVerdict:
        if message.author.kind != "human":
            return SpamVerdict(is_informative=False, reason="a persona said it")
        name, now = message.author.name, message.ts
        pasted = self._add_and_check_pasted(message.text, now)
        times = self._by_author.setdefault(name, deque())
        times.append(now)
        while times[0] <= now - _WINDOW_MS:
            times.popleft()
        reason = ""
        if len(times) > _MAX_PER_MINUTE:
            reason = "its author floods the room"
        elif pasted:
            reason = "it is pasted again and again"
        elif _PROMOTION.search(message.text):
            reason = "it offers something"
        elif _is_noise(message.text):
            reason = "it is noise"
        if reason:
            self._flagged_until[name] = now + _FLAG_MS
            return SpamVerdict(True, False, reason)
        if self._flagged_until.get(name, 0) > now:
            return SpamVerdict(True, False, "its author has just been spamming")
        if len(set(chat_keywords(message.text))) < _MIN_KEYWORDS:
            return SpamVerdict(False, False, "there is little in it")
        return SpamVerdict()

    def still_acceptable(self, message: ChatMessage) -> bool:
        """Whether a message is still no spam, given what its author and others have sent since."""
        return self._flagged_until.get(message.author.name, 0) <= message.ts and not self._is_repeated(
            _bigrams(message.text)
        )

    def _add_and_check_pasted(self, text: str, now: int) -> bool:
        while self._window and self._window[0][0] <= now - _WINDOW_MS:
            for bigram in self._window.popleft()[1]:
                self._bigram_counts[bigram] -= 1
                if not self._bigram_counts[bigram]:
                    del self._bigram_counts[bigram]
        bigrams = _bigrams(text)
        pasted = self._is_repeated(bigrams)
        self._window.append((now, bigrams))
        self._bigram_counts.update(bigrams)
        return pasted

    def _is_repeated(self, bigrams: frozenset[str]) -> bool:
        repeated = sum(self._bigram_counts[bigram] >= _PASTED_MIN_COUNT for bigram in bigrams)
        return len(bigrams) > 1 and repeated / len(bigrams) >= _PASTED_SHARE


def _bigrams(text: str) -> frozenset[str]:
    words = [word for word in _TOKEN.findall(re.sub(r"@\S+", "", text.casefold())) if not word.isdigit()]
    return frozenset(f"{first} {second}" for first, second in pairwise(words))


def _is_noise(text: str) -> bool:
    bare = re.sub(r"@\S+", "", text)
    words = _TOKEN.findall(bare.casefold())
    letters = sum(letter.isalpha() for letter in bare)
    if len(bare) > 12 and letters < len(bare.replace(" ", "")) * 0.5:
        return True
    if len(words) >= 4 and len(set(words)) <= len(words) // 2:
        return True
    long = [word for word in words if len(word) > 5]
    return bool(long) and sum(_VOWELS.isdisjoint(word) or len(word) > 24 for word in long) / len(long) > 0.5
