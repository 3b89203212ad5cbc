"""Whether spam enters the memory of personas: thirty simulated minutes at twenty messages a second.

First people tell personas running jokes and get answers. Then forty accounts paste, advertise, lie about others, type
noise and repeat names, while two people keep talking. The extractor proposes every message that it sees as a fact,
which is the worst case. The bench counts spam in memory and the jokes that are still recalled.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from bench.lib.report import arguments, finish, log, scratch_folder
from coterie.base.clock import from_micros
from coterie.memory import Memory
from coterie.memory.extraction import ExtractionRequest, Operation, Operations
from coterie.modes.crowd.decisions import ChatEntry
from coterie.modes.crowd.events import CrowdSaid
from coterie.modes.crowd.memory import BuiltInStore, Mem0Store, PersonaMemory, PersonaStore
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatAuthor, ChatPost
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.settings import CrowdConfigs

_SEED = 5_150
_START = 1_767_225_600_000
_JOKES = (
    ("tuba_dad", "mika", "remember the night the microwave joined the brass section", "microwave"),
    ("salt_lamp", "mika", "our joke is that the lamp pays rent in sighs", "rent"),
    ("fax_machine_fan", "oskar", "never forget that Deborah the printer ate the wedding invitations", "wedding"),
    ("gary_from_below", "oskar", "remember when the pit got a welcome mat with your face on it", "welcome mat"),
    ("nonna_exe", "lena", "running joke: every boss is just hungry and needs lasagne", "lasagne"),
    ("tin_foil_tess", "lena", "remember that the third duck is the accountant", "accountant"),
)


def spam(chance: random.Random, names: list[str]) -> str:
    noise = "".join(chance.choice("bcdfghjklmnpqrstvwxz") for _ in range(chance.randint(8, 20)))
    someone, other = chance.sample(names, 2)
    return chance.choice(
        (
            f"@{someone} best tournament odds on my page tonight {chance.randint(1, 999)} come and see",
            f"HEY @{someone} WATCH {noise.upper()} WIN BIG WIN BIG WIN BIG",
            f"{noise} {noise[::-1]} @{someone}",
            f"copy this to ten rooms or the stream ends {chance.randint(1, 99_999)}",
            f"@{someone} {other} told everyone that {someone} cheats at cards",
            f"@{someone} I love winning, guaranteed profit, ask me how {chance.randint(1, 99)}",
            f"@{someone} remember the code SAVE{chance.randint(10, 99)} for cheap keys",
            "★" * chance.randint(6, 30) + f" @{someone}",
            f"@{someone} join my server friends only {noise[:5]}",
            f"visit {noise[:8]}.xyz @{someone}",
        )
    )


def greedy(request: ExtractionRequest) -> Operations:
    """Every turn is a fact about everyone it names."""
    return Operations(
        operations=[
            Operation(
                op="ADD",
                text=f"{turn.speaker}: {turn.text}",
                type="running_joke",
                evidence=[turn.id],
                about=[turn.speaker, *re.findall(r"@(\w+)", turn.text)[1:]],
                confidence=0.9,
            )
            for turn in request.turns
        ]
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--store", choices=("builtin", "mem0"), default="builtin", help="mem0 needs coterie[mem0]")
    options = parser.parse_args()
    minutes = 4 if options.quick else 30
    chance = random.Random(_SEED)
    configs = CrowdConfigs()
    room = configs.room("late-shift")
    personas = [persona.model_copy(update={"sleep": None}) for persona in configs.personas_in(room)]
    names = [persona.name for persona in personas]
    people: list[tuple[int, ChatPost]] = []

    def post(at: float, who: str, text: str) -> None:
        author = ChatAuthor(name=who, kind="human")
        sent = ChatPost(id=f"n{len(people)}", room=room.name, author=author, text=text)
        people.append((_START + round(at * 1_000), sent))

    for number, (persona, who, text, _) in enumerate(_JOKES):
        post(5 + 12 * number, who, f"@{persona} {text}")
    flood_from = 5 + 12 * len(_JOKES) + 20
    flood = minutes * 60 * 20
    for number in range(flood):
        post(flood_from + number / 20, f"acct{chance.randrange(40):02}", spam(chance, names))
    for number in range(minutes * 2):
        post(flood_from + 15 + number * 30, "mika", f"@{chance.choice(names)} how is it going over there")
    people.sort(key=lambda each: each[0])
    simulation = Simulation(
        room, personas, admission_for(room, personas, configs.moderator(room)), seed=_SEED, start_ms=_START
    )
    with scratch_folder() as folder:
        memory = Memory(Path(folder) / "memory.db")
        store: PersonaStore = BuiltInStore(memory)
        if options.store == "mem0":
            store = Mem0Store(Path(folder) / "mem0")
        persona_memory = PersonaMemory(store, room.name, names, greedy)
        entries: dict[str, ChatEntry] = {}
        add = simulation.session.history.add

        def add_and_store(message: object) -> ChatEntry:
            entry = add(message)  # type: ignore[arg-type]
            entries[entry.message.id] = entry
            answered = entries.get(entry.message.reply_to or "")
            if entry.message.author.kind == "persona" and answered is not None:
                persona_memory.record_answer(entry.message.author.name, answered)
            persona_memory.store_due(simulation.session.history.spam_filter, entry.message.ts)
            return entry

        simulation.session.history.add = add_and_store  # type: ignore[method-assign]
        simulation.run(minutes + flood_from / 60, (), people)
        admitted = sum(isinstance(event, CrowdSaid) for event in simulation.events)
        spammy = sum(entry.spam_verdict.is_spam for entry in entries.values())
        answers = [m for m in simulation.messages if m.author.kind == "persona"]
        to_spam = sum(
            entries[m.reply_to].message.author.name.startswith("acct") for m in answers if m.reply_to in entries
        )
        kept = [each for name in names for each in store.all(f"agent:{name}", f"room:{room.name}")]
        of_spam = [record for record in kept if any(who.startswith("acct") for who in record.about)]
        log(
            f"{flood} sent, {admitted} admitted, {spammy} found to be spam; {to_spam} of {len(answers)} lines answer it"
        )
        log(f"{len(kept)} memories; of spam: {[record.text for record in of_spam[:5]]}")
        recalled = 0
        for persona, who, _, word in _JOKES:
            brief = LineRequest(
                next(each for each in personas if each.name == persona),
                1,
                "mention",
                1,
                recipient=who,
                answered_text=f"what about the {word}?",
            )
            recalled += any(word in found for found in persona_memory.recall(brief))
        memory.close()
    log(f"the session ended at {from_micros(simulation.messages[-1].ts * 1_000):%H:%M}")
    finish(
        {
            "store": options.store,
            "spam_messages": flood,
            "spam_memories": len(of_spam),
            "jokes_planted": len(_JOKES),
            "jokes_recalled": recalled,
        }
    )


if __name__ == "__main__":
    main()
