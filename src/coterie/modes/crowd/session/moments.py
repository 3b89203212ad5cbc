"""What happened in the stream, guessed from its words: a question to the chat, joy, a mishap. C9"""

from __future__ import annotations

import re

_CHAT = r"(?:chat|guys|folks|everyone|everybody|friends)"
_CALLED = re.compile(rf"(?i)^(?:\w+,? ){{0,2}}{_CHAT},|,\s*{_CHAT}\b[\s,.!?]*(?:\w+[.!?]?)?$|, {_CHAT},|\bin chat\b")
"""The chat is spoken to, not about."""
_YOU = re.compile(
    r"(?i)\b(?:you|your|you're|y'all|anyone|anybody|any of|somebody|who (?:here|else|wants|thinks)|any \w+s)\b"
    r"|\b(?:should|shall|do|are|can|could) (?:i|we)\b|\bam i\b|\bis it just me\b|\b(?:did|have) i already\b"
)
"""The question is one that somebody who watches could answer."""
_ASKS = re.compile(
    r"(?i)^(?:(?:ok(?:ay)?|so|and|now|well|alright|right|guys|chat|remind me),? )*"
    r"(?:should|shall|do|does|did|what|what's|which|who|who's|where|when|how|would|could|can|is|are|am|have|has|any)\b"
)
_ASKS_YOU = re.compile(
    rf"(?i)^(?:(?:ok(?:ay)?|so|and|{_CHAT}),? )*(?:(?:do|did|have|would|could|are) you|should (?:i|we))\b"
)
"""Also where whoever wrote it down left commas and question marks out."""
_REQUEST = re.compile(
    r"(?i)\b(?:let me know|tell me (?:in chat|what|which|where|if|whether|how)|type (?:one|1|yes|a)\b.*\bif you"
    r"|vote (?:now|in)|(?:give|send) me (?:a|some|your)\b.*\bchat|drop .* in (?:the )?chat|help me out)\b"
)
_CHOICE = re.compile(r"(?i)\b\w+ or \w+\b")
_RHETORICAL = re.compile(
    r"(?i)^(?:(?:oh|okay|and|so|but),? )*(?:why\b|how (?:did i|is that|hard|lovely)|what (?:was|is) that"
    r"|who (?:put|needs|would)|what (?:a|an|if)\b|really\b|are you (?:kidding|serious)|do i look like"
    r"|do you mind|would you look at|come on\b)"
    r"|\boh come on\b"
)
_QUOTED = re.compile(
    r"(?i)\b(?:says?|said|asks?|asked|reads|wants to know|the riddle is|the sign|wonders?),? "
    r"|\b(?:hello|hey|hi) (?:little|old|mister|you)\b"
)
_JOY = re.compile(
    r"(?i)\b(?:yes+|let'?s go+|we did it|first try|i did it|got (?:it|him|her|them)|no way|oh my god|finally|woo+|huge"
    r"|unbelievable|insane|victory)\b|(?:!{2,})"
)
_MISHAP = re.compile(
    r"(?i)\b(?:oh no|no no|nooo*|i (?:died|fell|missed|lost|messed|dropped)|i'?m dead|we lost|game over|ouch|oops"
    r"|whoops|wrong (?:one|button|lever|door)|everything is on fire)\b"
)
_CLOSE = re.compile(
    r"(?i)\b(?:one (?:hit|second|life|hp) left|barely|just in time|by a (?:hair|pixel)|cannot believe i made)\b"
)


def moment(text: str) -> tuple[str, float] | None:
    """The kind of event and how sure it is; None for an ordinary sentence."""
    if _MISHAP.search(text):
        return "fail", 0.75
    if _CLOSE.search(text) and _JOY.search(text):
        return "clutch", 0.7
    asks = "?" in text or _ASKS.search(text) is not None
    if _asks_chat(text):
        return "chat_question", 0.9 if "?" in text else 0.7
    if _JOY.search(text) and not asks:
        return "hype", 0.8 if "!" in text or text.isupper() else 0.65
    return None


def _asks_chat(text: str) -> bool:
    if _RHETORICAL.search(text):
        return False
    called = _CALLED.search(text) is not None
    if _REQUEST.search(text):
        return called or _QUOTED.search(text) is None
    if _QUOTED.search(text) and not called:
        return False
    if called:
        return "?" in text or _ASKS.search(text) is not None or _CHOICE.search(text) is not None
    return _YOU.search(text) is not None and ("?" in text or _ASKS_YOU.search(text) is not None)
