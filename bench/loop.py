"""Whether personas keep answering each other: fifty of them, sixty simulated minutes, with and without people.

With a stream and no person in the room: the longest chain of personas answering each other, the average number of
answers to a persona's line (the reproduction number, which must stay below 1) and the share of near copies, by another
measure than the filter's. The same without damping for comparison. Then mentions by people: how many are answered, and
by how many personas. Last, the cost of a persona in a room of 1,000 and of 50.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from bench.lib.report import arguments, finish, log
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.session.stream_context import StreamScript, script_contexts
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs, RoomConfig

_SEED = 20_260_101
_LOOK_BACK_MS = 600_000


def play(
    room: RoomConfig,
    personas: Sequence[Persona],
    minutes: float,
    people: Sequence[tuple[int, ChatPost]] = (),
    stream: bool = True,
) -> Simulation:
    simulation = Simulation(room, personas, admission_for(room, personas, CrowdConfigs().moderator(room)), seed=_SEED)
    script = StreamScript.read(SHIPPED_CONFIGS / "streams" / "left-door.toml")
    contexts = script_contexts(script, room.name, simulation.start_ms, minutes=minutes) if stream else ()
    simulation.run(minutes, contexts, people)
    return simulation


def longest_chain(messages: Sequence[ChatMessage]) -> int:
    length: dict[str, int] = {}
    for message in messages:
        persona = message.author.kind == "persona"
        length[message.id] = 1 + length.get(message.reply_to or "", 0) if persona else 0
    return max(length.values(), default=0)


def reproduction(messages: Sequence[ChatMessage]) -> float:
    """Answers of personas to a persona, per line of a persona."""
    kinds = {message.id: message.author.kind for message in messages}
    lines = [message for message in messages if message.author.kind == "persona"]
    return sum(kinds.get(line.reply_to or "") == "persona" for line in lines) / max(len(lines), 1)


def near_duplicates(messages: Sequence[ChatMessage]) -> float:
    """The share of lines that nearly repeat a line of the last ten minutes, by letter trigrams."""
    seen: list[tuple[int, frozenset[str]]] = []
    copies = 0
    for message in messages:
        text = f"  {message.text.casefold()}  "
        mine = frozenset(text[at : at + 3] for at in range(len(text) - 2))
        seen = [(ts, theirs) for ts, theirs in seen if ts > message.ts - _LOOK_BACK_MS]
        copies += any(len(mine & theirs) / len(mine | theirs) >= 0.8 for _, theirs in seen)
        seen.append((message.ts, mine))
    return copies / max(len(messages), 1)


def mentions(room: RoomConfig, personas: Sequence[Persona], many: int, minutes: float) -> tuple[float, int, float]:
    """Of mentions by people: the share answered, the most personas that answered one, the median seconds it took."""
    chance = random.Random(_SEED)
    start = 1_767_225_600_000
    awake = [
        persona.name
        for persona in personas
        if not persona.is_asleep(start) and not persona.is_asleep(start + 3_600_000)
    ]
    people = []
    for number in range(many):
        at = start + round((number + chance.random() * 0.5) * minutes * 60_000 / (many + 1)) + 1_000
        text = f"@{chance.choice(awake)} {chance.choice(('what do you think', 'you there', 'did you see that', 'hi'))}?"
        author = ChatAuthor(name=f"person{number % 20}", kind="human")
        people.append((at, ChatPost(id=f"p{number}", room=room.name, author=author, text=text)))
    messages = play(room, personas, minutes, people).messages
    answers: dict[str, list[ChatMessage]] = {m.id: [] for m in messages if m.author.kind == "human"}
    asked = {message.id: message.ts for message in messages}
    for message in messages:
        if message.author.kind == "persona" and message.reply_to in answers:
            answers[message.reply_to].append(message)
    took = sorted(found[0].ts - asked[key] for key, found in answers.items() if found)
    return (
        sum(bool(found) for found in answers.values()) / len(answers),
        max(len({answer.author.name for answer in found}) for found in answers.values()),
        took[len(took) // 2] / 1_000,
    )


def cost(room: RoomConfig, personas: Sequence[Persona], many: int, minutes: float) -> float:
    """CPU microseconds per persona and tick."""
    crowd = [
        personas[number % len(personas)].model_copy(update={"name": f"p{number}", "sleep": None})
        for number in range(many)
    ]
    best = 1e9
    for _ in range(3):
        started = time.process_time()
        play(room, crowd, minutes)
        best = min(best, time.process_time() - started)
    return best / (many * minutes * 60) * 1e6


def main() -> None:
    options = arguments(__doc__).parse_args()
    minutes = 15 if options.quick else 60
    configs = CrowdConfigs()
    room = configs.room("late-shift")
    personas = configs.personas_in(room)
    alone = play(room, personas, minutes).messages
    log(f"{len(alone)} lines in {minutes} minutes of stream without people")
    tuning = room.tuning.model_copy(update={"depth": 0.99, "bots": 0.0, "answers": 1.0, "longest_chain": 1_000})
    undamped = play(room.model_copy(update={"tuning": tuning}), personas, minutes).messages
    log(
        f"damped: longest chain {longest_chain(alone)}, reproduction {reproduction(alone):.3f};"
        f" without damping: {longest_chain(undamped)}, {reproduction(undamped):.3f}, {len(undamped)} lines"
    )
    silent = play(room, personas, minutes, stream=False).messages
    log(f"without stream and people: {len(silent)} lines")
    answered, answerers, seconds = mentions(room, personas, 60 if options.quick else 240, minutes)
    log(f"mentions by people: {answered:.1%} answered, by at most {answerers}, in {seconds:.1f} s (median)")
    small = cost(room, personas, 50, 2 if options.quick else 5)
    large = cost(room, personas, 1_000, 0.5 if options.quick else 1)
    log(f"CPU per persona and tick: {small:.1f} µs of 50, {large:.1f} µs of 1,000")
    finish(
        {
            "longest_bot_chain": longest_chain(alone),
            "reproduction": round(reproduction(alone), 4),
            "near_duplicates": round(near_duplicates(alone), 4),
            "mention_answered": round(answered, 4),
            "mention_answerers_max": answerers,
            "lines": len(alone),
            "undamped": {
                "longest_bot_chain": longest_chain(undamped),
                "reproduction": round(reproduction(undamped), 4),
            },
            "silent_lines": len(silent),
            "persona_cost_ratio_1000": round(large / small, 3),
        }
    )


if __name__ == "__main__":
    main()
