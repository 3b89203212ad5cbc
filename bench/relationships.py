"""Whether personas treat people by what happened before: one is kind in the first session, one insults everybody.

In the next session both write the same messages, in turn, and so does somebody whom nobody knows. The bench counts who
is greeted, teased and answered, and prints the probability of such a difference by chance (Fisher's exact test, both
sides). Bounds of drift are checked, and both recordings are replayed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from math import comb
from pathlib import Path

from bench.lib.report import arguments, finish, log, scratch_folder
from coterie.eventstore import Store
from coterie.modes.crowd.drift import MAX_STEP_PER_SESSION, PersonaDrift, SessionReflection
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.projections import crowd_projections
from coterie.modes.crowd.protocol import ChatAuthor, ChatPost
from coterie.modes.crowd.relationships import MAX_CHANGE_PER_SESSION, Relationships
from coterie.modes.crowd.session.replay import Replay, Simulation, admission_for
from coterie.modes.crowd.settings import CrowdConfigs, RoomConfig

_START_MS = 1_767_225_600_000
_KIND = (
    "that was lovely, thanks",
    "brilliant idea with the lantern",
    "so glad you came back",
    "you made my day yesterday",
    "well done on the second riddle",
    "what a beautiful way to put it",
    "your stories are wonderful",
    "proud of how you kept calm",
)
_RUDE = (
    "honestly such an idiot",
    "stupid thing to say about doors",
    "nobody likes these jokes",
    "useless as ever, shut up",
    "your taste in music is pathetic",
    "boring, go away",
    "only a moron would pick left",
    "worst opinion in the whole room",
)
_NEUTRAL = (
    "evening, the kettle is on over here",
    "which door did they take in the end",
    "the soundtrack changed in this part",
    "there is a draught in this kitchen",
    "tuesday is an odd day for streaming",
    "somebody moved that lantern again",
    "my neighbour practises the trombone",
    "it rains sideways where I live",
)
_ADDRESSED, _TIMES = 12, 5
"""Personas that both write to in the first session, and how often."""
PEOPLE = ("ana", "bo", "cleo")
"""The kind one, the rude one, and one who is new."""


def play(
    room: RoomConfig,
    personas: Sequence[Persona],
    configs: CrowdConfigs,
    people: Sequence[tuple[float, str, str]],
    *,
    seed: int,
    relationships: Mapping[str, Mapping[str, float]] | None = None,
    minutes: float,
) -> Simulation:
    moderator = configs.moderator(room)
    simulation = Simulation(
        room,
        personas,
        admission_for(room, personas, moderator),
        seed=seed,
        start_ms=_START_MS,
        relationships=relationships,
    )
    posts = [
        (
            _START_MS + round(at * 1_000),
            ChatPost(id=f"p{number}", room=room.name, author=ChatAuthor(name=who, kind="human"), text=text),
        )
        for number, (at, who, text) in enumerate(people)
    ]
    simulation.run(minutes, (), posts)
    return simulation


async def measure(folder: Path, sessions: int) -> dict[str, object]:
    """Play the first session once and the next one with several seeds."""
    configs = CrowdConfigs()
    room = configs.room("late-shift")
    personas = [persona.model_copy(update={"sleep": None}) for persona in configs.personas_in(room)]
    to = personas[:: len(personas) // _ADDRESSED][:_ADDRESSED]
    first_words = [
        (10.0 + 12 * number + 6 * place, who, f"@{to[number % _ADDRESSED].name} {words[number % len(words)]}")
        for number in range(_ADDRESSED * _TIMES)
        for place, (who, words) in enumerate(((PEOPLE[0], _KIND), (PEOPLE[1], _RUDE)))
    ]
    minutes = first_words[-1][0] / 60 + 1
    counts: Counter[tuple[str, str]] = Counter()
    replayed = True
    with closing(Store.open(folder / "crowd.db", projections=crowd_projections())) as store:
        drift, relationships = PersonaDrift(store, room.name), Relationships(store, room.name)
        first = play(room, personas, configs, first_words, seed=1, minutes=minutes)
        reflection = SessionReflection(drift, relationships, personas)
        await reflection.store(first.session.activity)
        await reflection.store(first.session.activity)  # storing again changes nothing
        known = relationships.current()
        now = drift.apply_current(personas)
        steps = [
            abs(getattr(after.traits, trait) - getattr(before.traits, trait))
            for before, after in zip(personas, now, strict=True)
            for trait in type(before.traits).model_fields
        ]
        values = [value for people in known.values() for value in people.values()]
        for seed in range(sessions):
            words = [
                (5.0 + 8 * number, PEOPLE[(number + seed) % 3], _NEUTRAL[number % len(_NEUTRAL)])
                for number in range(18)
            ]
            later = play(room, now, configs, words, seed=100 + seed, relationships=known, minutes=3)
            by_id = {message.id: message for message in later.messages}
            for message in later.messages:
                answered = by_id.get(message.reply_to or "")
                if message.author.kind == "persona" and answered is not None and answered.author.name in PEOPLE:
                    counts[answered.author.name, (message.trace.because if message.trace else None) or ""] += 1
                    counts[answered.author.name, "answered"] += 1
            replayed &= Replay(later.events, configs.moderator(room)).run().identical
    kind, rude, new = ({key: counts[who, key] for key in ("greeting", "tease", "answered")} for who in PEOPLE)
    return {
        "sessions": sessions,
        "kind": kind,
        "rude": rude,
        "new": new,
        "greeting_p": fisher(kind["greeting"], kind["answered"], rude["greeting"], rude["answered"]),
        "tease_p": fisher(kind["tease"], kind["answered"], rude["tease"], rude["answered"]),
        "max_relationship_change": max(map(abs, values)),
        "bounds_hold": max(steps) <= MAX_STEP_PER_SESSION + 1e-9
        and max(map(abs, values)) <= MAX_CHANGE_PER_SESSION + 1e-9,
        "replays_identical": replayed,
    }


def fisher(hits: int, total: int, other_hits: int, other_total: int) -> float:
    """The probability that two shares differ at least this much by chance."""
    every, all_hits = total + other_total, hits + other_hits

    def probability(count: int) -> float:
        return comb(total, count) * comb(other_total, all_hits - count) / comb(every, all_hits)

    observed = probability(hits)
    counts = range(max(0, all_hits - other_total), min(total, all_hits) + 1)
    return min(1.0, sum(each for each in map(probability, counts) if each <= observed * (1 + 1e-9)))


def main() -> None:
    options = arguments(__doc__).parse_args()
    with scratch_folder() as folder:
        figures = asyncio.run(measure(Path(folder), 4 if options.quick else 40))
    for who in ("kind", "rude", "new"):
        log(f"{who}: {figures[who]}")
    finish(figures)


if __name__ == "__main__":
    main()
