"""Telling talk from spam, as the room hears it: who floods, what is pasted, what is only noise. C12

Nobody answers spam, and nothing in it is remembered. A message is judged by what came before it and nothing else, so
that a replay judges it the same.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from itertools import pairwise
from typing import NamedTuple

from coterie.modes.crowd.mind.words import telling
from coterie.modes.crowd.protocol import ChatMessage

_WINDOW_MS = 60_000
_MOST_A_MINUTE = 12
_GRUDGE_MS = 180_000
_PASTED_SEEN = 3
_PASTED_SHARE = 0.5
_FEWEST_TELLING = 2
_WORD = re.compile(r"[^\W_]+")
_OFFER = re.compile(
    r"(?i)\b(?:check out|follow (?:me|my)|sub(?:scribe)? to|my (?:channel|stream|server|onlyfans|discord|shop)|giveaway"
    r"|promo|discount|free (?:skins?|coins?|gifts?|subs?|stuff)|link in|dm me|join my|buy (?:now|my|cheap)|earn|invest"
    r"|viewers? for|guaranteed|limited time)\b"
)
_VOWELS = frozenset("aeiouyäöüáéíóú")


class Standing(NamedTuple):
    spam: bool = False
    evidence: bool = True
    """Whether something could be learned from it."""
    why: str = ""


class Screen:
    def __init__(self) -> None:
        self._by_author: dict[str, deque[int]] = {}
        self._grudge: dict[str, int] = {}
        self._pieces: Counter[str] = Counter()
        self._window: deque[tuple[int, frozenset[str]]] = deque()

    def judge(self, message: ChatMessage) -> Standing:
        if message.author.kind != "human":
            return Standing(evidence=False, why="a persona said it")
        name, now = message.author.name, message.ts
        pasted = self._pasted(message.text, now)
        times = self._by_author.setdefault(name, deque())
        times.append(now)
        while times[0] <= now - _WINDOW_MS:
            times.popleft()
        why = ""
        if len(times) > _MOST_A_MINUTE:
            why = "its author floods the room"
        elif pasted:
            why = "it is pasted again and again"
        elif _OFFER.search(message.text):
            why = "it offers something"
        elif _is_noise(message.text):
            why = "it is noise"
        if why:
            self._grudge[name] = now + _GRUDGE_MS
            return Standing(True, False, why)
        if self._grudge.get(name, 0) > now:
            return Standing(True, False, "its author has just been spamming")
        if len(set(telling(message.text))) < _FEWEST_TELLING:
            return Standing(False, False, "there is little in it")
        return Standing()

    def stands(self, message: ChatMessage) -> bool:
        """Whether a message still looks like talk, with what is known by now of its author and its words."""
        return self._grudge.get(message.author.name, 0) <= message.ts and not self._seen(_pieces(message.text))

    def _pasted(self, text: str, now: int) -> bool:
        while self._window and self._window[0][0] <= now - _WINDOW_MS:
            for piece in self._window.popleft()[1]:
                self._pieces[piece] -= 1
                if not self._pieces[piece]:
                    del self._pieces[piece]
        pieces = _pieces(text)
        pasted = self._seen(pieces)
        self._window.append((now, pieces))
        self._pieces.update(pieces)
        return pasted

    def _seen(self, pieces: frozenset[str]) -> bool:
        often = sum(self._pieces[piece] >= _PASTED_SEEN for piece in pieces)
        return len(pieces) > 1 and often / len(pieces) >= _PASTED_SHARE


def _pieces(text: str) -> frozenset[str]:
    words = [word for word in _WORD.findall(re.sub(r"@\S+", "", text.casefold())) if not word.isdigit()]
    return frozenset(f"{first} {second}" for first, second in pairwise(words))


def _is_noise(text: str) -> bool:
    bare = re.sub(r"@\S+", "", text)
    words = _WORD.findall(bare.casefold())
    letters = sum(letter.isalpha() for letter in bare)
    if len(bare) > 12 and letters < len(bare.replace(" ", "")) * 0.5:
        return True
    if len(words) >= 4 and len(set(words)) <= len(words) // 2:
        return True
    long = [word for word in words if len(word) > 5]
    return bool(long) and sum(_VOWELS.isdisjoint(word) or len(word) > 24 for word in long) / len(long) > 0.5
