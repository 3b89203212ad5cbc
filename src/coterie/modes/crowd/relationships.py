"""How personas stand to people in the chat: friendlier after kind messages, cooler after insults.

A relationship is a number from -1 to 1 per persona and person. It changes by at most 0.25 a session, is stored with the
messages behind it, and decides in the next session whom a persona greets, answers and teases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.eventstore import NewEvent, Store
from coterie.modes.crowd.events import CrowdRelated, room_stream

MAX_CHANGE_PER_SESSION = 0.25
FRIENDLY = 0.15
"""From here on a persona greets a person; from its negative on it teases them."""
_PER_KIND_MESSAGE = 0.06
_PER_INSULT = 0.08
_PER_MESSAGE = 0.005
"""For every message that is not an insult: people who talk to a persona become familiar."""
_TEASES = 0.5
_MAX_EVIDENCE = 5
_DECIMALS = 4

_KIND = frozenset(
    """
    thanks thank thx love lovely loved great best wonderful brilliant kind sweet helpful favourite favorite glad happy
    proud bravo hug hugs cute amazing awesome good nice missed adore beautiful legend genius perfect cosy ♥ ❤ <3
    """.split()  # noqa: SIM905 - easier to read than quoted words
)
_UNKIND = frozenset(
    """
    idiot idiotic stupid dumb useless worst ugly hate hated pathetic trash garbage loser boring annoying moron clown
    awful terrible cringe disgusting worthless lame stfu fool ridiculous creep liar rubbish
    """.split()  # noqa: SIM905 - easier to read than quoted words
)
_UNKIND_PHRASES = re.compile(r"\b(?:shut up|go away|nobody (?:likes|asked|cares)|you suck|get lost|leave us alone)\b")
_KIND_PHRASES = re.compile(r"\b(?:well done|so right|good to see|you rock|made my day)\b")
_NEGATION = re.compile(r"^(?:not|never|no|isn't|aren't|don't|doesn't|wasn't|can't|cannot)$")
_TOKEN = re.compile(r"[\w']+|[♥❤]|<3")


def message_tone(text: str) -> float:
    """How kind a message is, from -1 to 1; 0 if it is neither kind nor an insult."""
    folded = re.sub(r"@\S+", " ", text.casefold().replace("’", "'"))
    tokens = _TOKEN.findall(folded)
    kind, unkind = len(_KIND_PHRASES.findall(folded)), len(_UNKIND_PHRASES.findall(folded))
    for place, token in enumerate(tokens):
        negated = any(_NEGATION.match(each) for each in tokens[max(0, place - 2) : place])
        if token in _KIND:
            kind, unkind = (kind, unkind + 1) if negated else (kind + 1, unkind)
        elif token in _UNKIND and not negated:
            unkind += 1
    return (kind - unkind) / (kind + unkind) if kind + unkind else 0.0


def relationship_change(tones: Sequence[float]) -> float:
    """The change that a session's messages of a person to a persona cause."""
    change = sum(
        _PER_KIND_MESSAGE * tone if tone > 0 else _PER_INSULT * tone if tone < 0 else _PER_MESSAGE for tone in tones
    )
    return max(-MAX_CHANGE_PER_SESSION, min(MAX_CHANGE_PER_SESSION, change))


def relationship_factor(relationship: float, teasing: float) -> float:
    """By how much an answer to this person becomes more or less likely.

    `teasing` is how contrary or fond of jokes the persona is. If it is, it teases whom it dislikes; others leave them
    alone.
    """
    if relationship >= 0:
        return 1 + 2 * relationship
    return 1 + 2 * teasing * -relationship if teasing >= _TEASES else max(0.2, 1 + 0.8 * relationship)


@dataclass(frozen=True)
class PersonaRelationship:
    persona: str
    person: str
    value: float
    why: str
    evidence: tuple[str, ...]


class Relationships:
    """Reads and writes the relationships of a room's personas."""

    def __init__(self, store: Store, room: str) -> None:
        self._store = store
        self._stream = room_stream(room)

    def current(self) -> dict[str, dict[str, float]]:
        """Persona → person → relationship."""
        found: dict[str, dict[str, float]] = {}
        for persona, person, value in self._store.query(
            "SELECT persona, person, value FROM crowd_relationship WHERE room = ? ORDER BY persona, person",
            (self._stream,),
        ):
            found.setdefault(persona, {})[person] = value
        return found

    def of(self, persona: str, limit: int = 20) -> list[PersonaRelationship]:
        """The strongest relationships of a persona."""
        rows = self._store.query(
            "SELECT person, value, why, evidence FROM crowd_relationship WHERE room = ? AND persona = ?"
            " ORDER BY abs(value) DESC, person LIMIT ?",
            (self._stream, persona, limit),
        )
        return [
            PersonaRelationship(persona, person, value, why, tuple(evidence.split()))
            for person, value, why, evidence in rows
        ]

    async def store(
        self, before: Mapping[str, Mapping[str, float]], heard: Mapping[str, Mapping[str, Sequence[tuple[float, str]]]]
    ) -> int:
        """Store what a session changed so far. `before` are the relationships at its beginning; `heard` has, for each
        persona and person, the tone and id of every message. Returns the number of changed relationships.
        """
        now = self.current()
        changed = []
        for persona, people in sorted(heard.items()):
            for person, messages in sorted(people.items()):
                earlier = before.get(persona, {}).get(person, 0.0)
                tones = [tone for tone, _ in messages]
                value = round(max(-1.0, min(1.0, earlier + relationship_change(tones))), _DECIMALS)
                if value == now.get(persona, {}).get(person, 0.0):
                    continue
                strongest = sorted(messages, key=lambda each: -abs(each[0]))[:_MAX_EVIDENCE]
                changed.append(
                    CrowdRelated(
                        persona=persona,
                        person=person,
                        before=earlier,
                        value=value,
                        why=_reason(tones),
                        evidence=tuple(message for _, message in strongest),
                    )
                )
        if changed:
            await self._store.append([NewEvent(self._stream, payload, "crowd") for payload in changed])
        return len(changed)


def _reason(tones: Sequence[float]) -> str:
    kind, unkind = sum(tone > 0 for tone in tones), sum(tone < 0 for tone in tones)
    return f"{len(tones)} messages, {kind} of them kind, {unkind} unkind"
