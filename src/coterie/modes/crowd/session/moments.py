"""What happened in the stream, guessed from its words: a question to the chat, joy, a mishap. C9"""

from __future__ import annotations

import re

_TO_CHAT = re.compile(
    r"(?i)\bchat\b|\b(?:you guys|you all|y'all|everyone|anybody|anyone)\b|\bwhat do you think\b|\bshould (?:i|we)\b"
    r"|\bdo you (?:want|remember|think|like|know)\b|\bwould you\b|\blet me know\b|\bhelp me\b"
    r"|\bhave you (?:ever|guys)\b|\bwho(?:'s| is) (?:your|here)\b"
)
_ASKS = re.compile(
    r"(?i)\?|^(?:ok(?:ay)?,? )?(?:so,? )?(?:chat,? )?"
    r"(?:should|do|does|did|what|which|who|where|when|how|why|would|could|can|is|are|have)\b"
)
_RHETORICAL = re.compile(
    r"(?i)^(?:why (?:would|am i|is it always)|how (?:did i|is that)|what (?:was|is) that|who put|really)\b"
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
    asks = _ASKS.search(text) is not None
    if asks and _TO_CHAT.search(text) and not _RHETORICAL.search(text):
        return "chat_question", 0.9 if "?" in text else 0.7
    if _JOY.search(text) and not asks:
        return "hype", 0.8 if "!" in text or text.isupper() else 0.65
    return None
