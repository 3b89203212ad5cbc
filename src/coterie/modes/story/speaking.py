"""Who speaks next among several: whoever is addressed, then whoever attends and likes to talk. S6"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from coterie.modes.story.events import Activity

_CHATTY = re.compile(r"talkative|chatty|outgoing|garrulous|lively|eager|loud", re.IGNORECASE)
_QUIET = re.compile(r"quiet|silent|shy|taciturn|reserved|laconic|withdrawn", re.IGNORECASE)


def next_speaker(
    text: str,
    characters: Sequence[str],
    names: Mapping[str, str],
    traits: Mapping[str, Sequence[str]],
    activities: Mapping[str, Activity],
    last_speaker: str | None,
) -> str:
    """The host is first among `characters`, and speaks when nothing speaks for somebody else."""
    addressed = [bot for bot in characters if _is_named(names[bot], text)]
    if addressed:
        return min(addressed, key=lambda bot: _first_mention(names[bot], text))
    if len(characters) == 1:
        return characters[0]

    def inclination(bot: str) -> tuple[float, int]:
        told = " ".join(traits.get(bot, ()))
        score: float = bool(_CHATTY.search(told)) - bool(_QUIET.search(told))
        activity = activities.get(bot, Activity())
        score += "you" in activity.attention.lower() or activity.attention == "you"
        score -= {"low": 0, "medium": 1, "high": 2}[activity.action.attention]
        score -= 0.5 * (bot == last_speaker)  # let others have a word
        return score, -characters.index(bot)

    return max(characters, key=inclination)


def _is_named(name: str, text: str) -> bool:
    return _first_mention(name, text) < len(text)


def _first_mention(name: str, text: str) -> int:
    first = name.split()[0] if name.split() else name
    found = re.search(rf"(?<!\w)(?:{re.escape(name)}|{re.escape(first)})(?!\w)", text, re.IGNORECASE)
    return found.start() if found else len(text)
