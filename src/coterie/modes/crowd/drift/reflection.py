"""Looking back at a session: what it did to somebody's traits and interests, in bounds that no chat can push. C14

Each trait moves by at most 0.05 a session and stays within 0.25 of what was authored, for life. Every change has its
reason and the messages it comes from; nothing that the screen took for spam counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coterie.modes.crowd.mind.hearing import ChatEntry
from coterie.modes.crowd.personas import Persona, Traits

MAX_STEP_PER_SESSION = 0.05
MAX_TOTAL_DRIFT = 0.25
_MAX_INTERESTS = 8
_MAX_ACQUIRED = 3
"""So many beyond the authored ones, at least."""
_MIN_TOPIC_MESSAGES = 3
_MAX_EVIDENCE = 5
_DECIMALS = 4

TRAITS = ("talkativeness", "meme_level", "helpfulness", "contrarian", "warmth")


@dataclass
class SessionActivity:
    """What a persona lived through in a session."""

    lines_said: int = 0
    answered: list[ChatEntry] = field(default_factory=list)
    """People's messages that it answered."""
    mentioned_in: list[ChatEntry] = field(default_factory=list)
    """People's messages that named it."""
    reactions: int = 0
    """Lines it said because something happened or everybody else spoke."""

    @classmethod
    def from_history(cls, name: str, history: Iterable[ChatEntry]) -> SessionActivity:
        told = list(history)
        by_id = {each.message.id: each for each in told}
        found = cls()
        for each in told:
            if each.message.author.name == name:
                found.lines_said += 1
                trace = each.message.trace
                found.reactions += trace is not None and trace.because in ("event", "trend")
                before = by_id.get(each.message.reply_to or "")
                if before is not None and before.human and not before.spam_verdict.is_spam:
                    found.answered.append(before)
            elif each.human and not each.spam_verdict.is_spam and name in each.message.mentions:
                found.mentioned_in.append(each)
        return found


@dataclass(frozen=True)
class DriftChange:
    what: str
    before: float | str
    after: float | str
    why: str
    evidence: tuple[str, ...] = ()


def compute_drift(
    authored: Persona, traits: Traits, interests: tuple[str, ...], activity: SessionActivity
) -> tuple[Traits, tuple[str, ...], list[DriftChange]]:
    """Traits and interests as they are from now on, and what changed and why."""
    if not activity.lines_said and not activity.mentioned_in:
        return traits, interests, []
    changes: list[DriftChange] = []
    asked = [each for each in activity.answered if "?" in each.message.text]
    met, called = len(activity.answered), len(activity.mentioned_in)
    wanted: dict[str, tuple[float, str, list[ChatEntry]]] = {
        "talkativeness": (0.01 * called - 0.01 * (not called), "how often people spoke to them", activity.mentioned_in),
        "meme_level": (
            0.005 * activity.reactions - 0.01 * (not activity.reactions),
            "how they went along with the room",
            [],
        ),
        "helpfulness": (0.01 * len(asked), "people asked them", asked),
        "contrarian": (0.005 * (not met) - 0.005 * met, "how often they met people halfway", activity.answered),
        "warmth": (0.01 * met, "they talked with people", activity.answered),
    }
    values = {}
    for name in TRAITS:
        delta, why, evidence = wanted[name]
        before = getattr(traits, name)
        values[name] = bounded_trait(getattr(authored.traits, name), before, delta)
        if values[name] != before:
            ids = tuple(each.message.id for each in evidence[:_MAX_EVIDENCE])
            changes.append(DriftChange(name, before, values[name], why, ids))
    return Traits(**values), _interests(authored, interests, activity, changes), changes


def bounded_trait(authored: float, before: float, delta: float) -> float:
    """A trait after a session: no step above 0.05, never farther than 0.25 from the authored value, within 0 and 1."""
    step = max(-MAX_STEP_PER_SESSION, min(MAX_STEP_PER_SESSION, delta))
    low, high = max(0.0, authored - MAX_TOTAL_DRIFT), min(1.0, authored + MAX_TOTAL_DRIFT)
    return round(max(low, min(high, before + step)), _DECIMALS)


def _interests(
    authored: Persona, interests: tuple[str, ...], happened: SessionActivity, changes: list[DriftChange]
) -> tuple[str, ...]:
    """What several people talked about with them is taken up; of what was taken up before, the oldest makes room."""
    talked: Counter[str] = Counter()
    for each in happened.answered:
        talked.update(each.words)
    authors = {word: {each.message.author.name for each in happened.answered if word in each.words} for word in talked}
    names = {each.message.author.name for each in happened.answered} | {authored.name}
    kept = list(interests)
    for word in sorted(
        word for word, times in talked.items() if times >= _MIN_TOPIC_MESSAGES and len(authors[word]) > 1
    ):
        if word in kept or word in names:
            continue
        if len(kept) >= max(_MAX_INTERESTS, len(authored.interests) + _MAX_ACQUIRED):
            acquired = [each for each in interests if each in kept and each not in authored.interests]
            if not acquired:
                break
            kept.remove(acquired[0])
            changes.append(DriftChange("interest", acquired[0], "", "it made room"))
        ids = tuple(each.message.id for each in happened.answered if word in each.words)[:_MAX_EVIDENCE]
        kept.append(word)
        changes.append(DriftChange("interest", "", word, "several people talked with them about it", ids))
    return tuple(kept)
