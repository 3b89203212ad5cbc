"""What happened in the stream, guessed from its words: a question to the chat, joy, a mishap. C9"""

from __future__ import annotations

import re

from coterie.modes.crowd.session.questions import asks_chat, is_question

_JOY = re.compile(
    r"(?i)\b(?:yes+|let'?s go+|we did it|first try|i did it|got (?:it|him|her|them)|no way|oh my god|finally|woo+|huge"
    r"|unbelievable|insane|victory)\b|(?:!{2,})"
)
_FAIL = re.compile(
    r"(?i)\b(?:oh no|no no|nooo*|i (?:died|fell|missed|lost|messed|dropped)|i'?m dead|we lost|game over|ouch|oops"
    r"|whoops|wrong (?:one|button|lever|door)|everything is on fire)\b"
)
_CLOSE = re.compile(
    r"(?i)\b(?:one (?:hit|second|life|hp) left|barely|just in time|by a (?:hair|pixel)|cannot believe i made)\b"
)


def detect_event(text: str) -> tuple[str, float] | None:
    """The kind of event and how sure it is; None for an ordinary sentence."""
    if _FAIL.search(text):
        return "fail", 0.75
    if _CLOSE.search(text) and _JOY.search(text):
        return "clutch", 0.7
    if asks_chat(text):
        return "chat_question", 0.9 if "?" in text else 0.7
    if _JOY.search(text) and not is_question(text):
        return "hype", 0.8 if "!" in text or text.isupper() else 0.65
    return None
