"""Looking back at a session: what it did to somebody's traits and interests, in bounds that no chat can push. C14

Each trait moves by at most 0.05 a session and stays within 0.25 of what was authored, for life. Every change has its
reason and the messages it comes from; nothing that the screen took for spam counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coterie.modes.crowd.mind.hearing import Heard
from coterie.modes.crowd.personas import Persona, Traits

A_SESSION = 0.05
FOR_LIFE = 0.25
_MOST_INTERESTS = 8
_ACQUIRED = 3
"""So many beyond the authored ones, at least."""
_TAKEN_UP_AFTER = 3
_EVIDENCE = 5
_PLACES = 4

TRAITS = ("talkativeness", "meme_level", "helpfulness", "contrarian", "warmth")


@dataclass
class Happened:
    """What a persona lived through in a session."""

    spoke: int = 0
    answered: list[Heard] = field(default_factory=list)
    """People's messages that it answered."""
    called: list[Heard] = field(default_factory=list)
    """People's messages that named it."""
    waves: int = 0
    """Lines it said because something happened or everybody else spoke."""

    @classmethod
    def of(cls, name: str, heard: Iterable[Heard]) -> Happened:
        told = list(heard)
        by_id = {each.message.id: each for each in told}
        found = cls()
        for each in told:
            if each.message.author.name == name:
                found.spoke += 1
                trace = each.message.trace
                found.waves += trace is not None and trace.because in ("event", "trend")
                before = by_id.get(each.message.reply_to or "")
                if before is not None and before.human and not before.standing.spam:
                    found.answered.append(before)
            elif each.human and not each.standing.spam and name in each.message.mentions:
                found.called.append(each)
        return found


@dataclass(frozen=True)
class Change:
    what: str
    before: float | str
    after: float | str
    why: str
    evidence: tuple[str, ...] = ()


def reflect(
    authored: Persona, traits: Traits, interests: tuple[str, ...], happened: Happened
) -> tuple[Traits, tuple[str, ...], list[Change]]:
    """Traits and interests as they are from now on, and what changed and why."""
    if not happened.spoke and not happened.called:
        return traits, interests, []
    changes: list[Change] = []
    asked = [each for each in happened.answered if "?" in each.message.text]
    met, called = len(happened.answered), len(happened.called)
    wanted: dict[str, tuple[float, str, list[Heard]]] = {
        "talkativeness": (0.01 * called - 0.01 * (not called), "how often people spoke to them", happened.called),
        "meme_level": (0.005 * happened.waves - 0.01 * (not happened.waves), "how they went along with the room", []),
        "helpfulness": (0.01 * len(asked), "people asked them", asked),
        "contrarian": (0.005 * (not met) - 0.005 * met, "how often they met people halfway", happened.answered),
        "warmth": (0.01 * met, "they talked with people", happened.answered),
    }
    values = {}
    for name in TRAITS:
        delta, why, evidence = wanted[name]
        before = getattr(traits, name)
        values[name] = bounded(getattr(authored.traits, name), before, delta)
        if values[name] != before:
            ids = tuple(each.message.id for each in evidence[:_EVIDENCE])
            changes.append(Change(name, before, values[name], why, ids))
    return Traits(**values), _interests(authored, interests, happened, changes), changes


def bounded(authored: float, before: float, delta: float) -> float:
    """A trait after a session: no step above 0.05, never farther than 0.25 from the authored value, within 0 and 1."""
    step = max(-A_SESSION, min(A_SESSION, delta))
    low, high = max(0.0, authored - FOR_LIFE), min(1.0, authored + FOR_LIFE)
    return round(max(low, min(high, before + step)), _PLACES)


def _interests(
    authored: Persona, interests: tuple[str, ...], happened: Happened, changes: list[Change]
) -> tuple[str, ...]:
    """What several people talked about with them is taken up; of what was taken up before, the oldest makes room."""
    talked: Counter[str] = Counter()
    for each in happened.answered:
        talked.update(each.words)
    authors = {word: {each.message.author.name for each in happened.answered if word in each.words} for word in talked}
    names = {each.message.author.name for each in happened.answered} | {authored.name}
    kept = list(interests)
    for word in sorted(word for word, times in talked.items() if times >= _TAKEN_UP_AFTER and len(authors[word]) > 1):
        if word in kept or word in names:
            continue
        if len(kept) >= max(_MOST_INTERESTS, len(authored.interests) + _ACQUIRED):
            acquired = [each for each in interests if each in kept and each not in authored.interests]
            if not acquired:
                break
            kept.remove(acquired[0])
            changes.append(Change("interest", acquired[0], "", "it made room"))
        ids = tuple(each.message.id for each in happened.answered if word in each.words)[:_EVIDENCE]
        kept.append(word)
        changes.append(Change("interest", "", word, "several people talked with them about it", ids))
    return tuple(kept)
