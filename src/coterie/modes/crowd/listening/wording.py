"""What a recogniser wrote, as a streamer meant it: in today's spelling, and with the chat called by its name.

Recognisers learn from audio books: they write "to-night" and "any one", now "Ok" and now "okay", and where somebody
calls the chat they hear Chet or Chad, whom books know better. Only a word that sounds like "chat" is put right, and
only where somebody is called.
"""

from __future__ import annotations

import re

from coterie.modes.crowd.session.questions import INVERTED

_OLD_HYPHEN = re.compile(r"\b(to)-(day|night|morrow)\b", re.IGNORECASE)
_OLD_SPACE = re.compile(r"\b(any|some|every) (one|body)\b(?! of\b)", re.IGNORECASE)
_OK = re.compile(r"\b(o)k\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.?!])\s+")
_CALL_AHEAD = re.compile(r"(?:(?:okay|so|hey|hi|now|well|alright|all right|right|oh),? )*chat[.!]+", re.IGNORECASE)
_CALL_BEHIND = re.compile(r"chat[.?!]+", re.IGNORECASE)

_SOUNDS_LIKE_CHAT = r"(?:ch[aeiou]tt?|chats|chad|chadd|jett?|jatt?)"
"""Sounds like "chat", and is at most a name."""
_WORD_LIKE_CHAT = r"(?:check|chart|chap|chuck|jot)"
"""Sounds like it too, and is a word of its own: more has to speak for the chat."""
_LEAD = (
    r"(?:(?:ok(?:ay)?|so|and|but|now|well|al(?:l )?right|right|oh|hey|hi|hello|yes|no|yeah|thanks|thank you|sorry"
    r"|good evening|good morning|remind me|come on|help me out(?: here)?|tell me)[,.]? )*"
)
_TAKES_A_NAME = (
    r"(?:know|knows|like|likes|see|saw|seen|met|meet|call|called|named|ask|asked|tell|told|hear|heard|trust|beat|fight"
    r"|kill|find|is|was|am|be|a|the|my|your|this|that|and|or|to|of|for|about|with|by|from|at|on|in|than|like)"
)
"""Whoever comes after these is spoken of, not to."""
_ASKS = rf"{_LEAD}(?:{INVERTED}|(?:give|send|tell) me\b|help me\b|any (?:ideas?|suggestions?)\b)"
_ADDRESS_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # Chet, …   okay Chad should I …   Chut left or right
        rf"^{_LEAD}(?P<word>{_SOUNDS_LIKE_CHAT})(?=, | (?:{INVERTED})| (?:the )?\w+ or (?:the )?\w+[.?!]*$|[.?!]*$)",
        rf"^{_LEAD}(?P<word>{_WORD_LIKE_CHAT})(?=,? (?:{INVERTED}))",
        # North or south Chet.
        rf"^{_LEAD}(?:the )?\w+ or (?:the )?\w+,? (?P<word>{_SOUNDS_LIKE_CHAT})(?=[.?!]*$)",
        # …, Chad.   …, Chad, …   left or right, Chad quickly.
        rf", (?P<word>{_SOUNDS_LIKE_CHAT})(?=,|(?: (?!says?|said|ask)\w+)?[.?!]*$)",
        # Are we sure about this Chet?   What do we do, check?
        rf"^{_ASKS}.* (?!{_TAKES_A_NAME} )\w+ (?P<word>{_SOUNDS_LIKE_CHAT})(?=[.?!]*$)",
        rf"^{_ASKS}.*?, (?P<word>{_WORD_LIKE_CHAT})(?=,|[.?!]*$)",
    )
)


def fix_transcript(text: str) -> str:
    """What was heard, sentence by sentence."""
    return " ".join(fixed_sentences(text))


def fixed_sentences(text: str) -> list[str]:
    found: list[str] = []
    for each in _SENTENCES.split(" ".join(text.split())):
        sentence = _fix_chat_address(_modern_spelling(each))
        # Whoever is called belongs to what they are asked, though a recogniser makes a sentence of each.
        if found and _CALL_AHEAD.fullmatch(found[-1]):
            found[-1] = f"{found[-1].rstrip('.!')}, {sentence}"
        elif found and found[-1].endswith("?") and _CALL_BEHIND.fullmatch(sentence):
            found[-1] = f"{found[-1].rstrip('?')}, chat?"
        elif sentence:
            found.append(sentence)
    return found


def _modern_spelling(sentence: str) -> str:
    return _OK.sub(r"\1kay", _OLD_SPACE.sub(_join_groups, _OLD_HYPHEN.sub(_join_groups, sentence)))


def _join_groups(found: re.Match[str]) -> str:
    return found[1] + found[2]


def _fix_chat_address(sentence: str) -> str:
    for pattern in _ADDRESS_PATTERNS:
        if found := pattern.search(sentence):
            start, end = found.span("word")
            name = "Chat" if start == 0 else "chat"
            sentence = sentence[:start] + name + sentence[end:]
    return sentence
