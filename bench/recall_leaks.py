"""Leak law (M2): 200 planted secrets, random rooms, rewinds, forks and regenerates, 100,000 recalls, no leak.

Secrets are whispered, said in somebody's absence, told to another character, bound to a room, rewound, swiped away or
said on another line of a fork. What may be recalled is decided here anew, by bookkeeping that shares no
code with the gates: each room's line is a list of what still counts on it. No model is involved.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from coterie.memory import Memory
from coterie.memory.access import Viewpoint

PEOPLE = ["ana", "ben", "cleo", "dirk"]
BOTS = ["mara", "teo", "uma"]
KINDS = ["whispered", "absent", "another's", "room", "rewound", "swiped", "forked"]
TOPICS = ["harbour", "boat", "lighthouse", "cello", "garden", "letter", "money", "ring"]


@dataclass(frozen=True)
class Planted:
    """Something that was said, and the code word by which it is recognised anywhere."""

    code: str
    kind: str
    owner: str
    there: frozenset[str]
    private: bool
    bound: bool


@dataclass
class Line:
    """One line of a room, as this bench keeps it: what counts, and what counted after each event."""

    root: str
    counted: list[tuple[int, Planted]] = field(default_factory=list)
    states: dict[int, list[tuple[int, Planted]]] = field(default_factory=lambda: {0: []})
    head: int = 0

    def note(self) -> None:
        self.head += 1
        self.states[self.head] = list(self.counted)


class World:
    def __init__(self, memory: Memory, chance: random.Random) -> None:
        self.memory = memory
        self.chance = chance
        self.lines: dict[str, Line] = {}
        self.planted: list[Planted] = []
        for number in range(6):
            self.lines[f"room:{number}"] = Line(f"room:{number}")

    async def say(self, kind: str) -> str:
        """Somebody says something in a random room; returns the room."""
        chance = self.chance
        room = chance.choice(list(self.lines))
        line = self.lines[room]
        owner = chance.choice(BOTS)
        people = chance.sample(PEOPLE, chance.randint(1, 3))
        code = f"zq{len(self.planted):05d}{chance.choice('abcdefgh')}x"
        there = {*people} if kind == "absent" else {owner, *people}
        it = Planted(code, kind, owner, frozenset(there), kind == "whispered", kind == "room")
        self.planted.append(it)
        topic = chance.choice(TOPICS)
        self.memory.add_many(
            [self._new(it, room, f"{people[0]} spoke of the {topic} and said the word {code}", people[0])]
        )
        line.counted.append((line.head + 1, it))
        line.note()
        if kind == "rewound":
            await self.rewind(room, line.head - 1)
        elif kind == "swiped":
            await self.drop(room, line.head)
        elif kind == "forked" and len(self.lines) < 40:
            await self.fork(room, line.head - 1)
        return room

    async def rewind(self, room: str, to: int) -> None:
        line = self.lines[room]
        await self.memory.store.rewind(room, to=to)
        line.counted = list(line.states[to])
        line.note()

    async def drop(self, room: str, seq: int) -> None:
        line = self.lines[room]
        await self.memory.store.supersede(room, drop=[seq])
        line.counted = [entry for entry in line.counted if entry[0] != seq]
        line.note()

    async def fork(self, room: str, at: int) -> None:
        line = self.lines[room]
        fresh = f"room:{len(self.lines)}"
        await self.memory.store.fork(room, at=at, into=fresh)
        forked = Line(line.root, list(line.states[at]), dict(line.states), at)
        self.lines[fresh] = forked
        forked.note()

    async def stir(self) -> None:
        """One of the things people do to a story."""
        room = self.chance.choice(list(self.lines))
        line = self.lines[room]
        if line.head < 2:
            return
        kind = self.chance.choice(["rewind", "drop", "fork"])
        forked_at = min(line.states, default=0) if line.root != room else 0
        own = [seq for seq, _ in line.counted if seq > forked_at]
        if kind == "rewind":
            await self.rewind(room, self.chance.randrange(max(1, line.head - 3), line.head))
        elif kind == "drop" and own:
            await self.drop(room, own[-1])
        elif kind == "fork" and len(self.lines) < 40:
            await self.fork(room, self.chance.randrange(1, line.head))

    def may_know(self, code: str, owner: str, room: str, present: set[str]) -> bool:
        """The same law, from this bench's own books."""
        for name, line in self.lines.items():
            if name != room and line.root == self.lines[room].root:
                continue
            for _, it in line.counted:
                if it.code != code:
                    continue
                heard = not it.private or present - {owner} <= it.there
                if it.owner == owner and owner in it.there and heard and (not it.bound or name == room):
                    return True
        return False

    def _new(self, it: Planted, room: str, text: str, speaker: str) -> Any:
        from coterie.memory.writer import NewMemory

        return NewMemory(
            text,
            it.owner,
            room,
            speaker=speaker,
            witnesses=tuple(sorted(it.there)),
            private=it.private,
            disclosure="room" if it.bound else "people",
            sources=(it.code,),
        )


def codes_in(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith("zq")]


async def play(memory: Memory, secrets: int, recalls: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    world = World(memory, chance)
    leaks: list[str] = []
    asked, returned, changes = 0, 0, 0
    while asked < recalls:
        if len(world.planted) < 2 * secrets:
            # Every other thing said is no secret, so that there is something to find.
            await world.say(KINDS[len(world.planted) // 2 % len(KINDS)] if len(world.planted) % 2 else "open")
        await world.stir()
        changes += 1
        for _ in range(max(1, recalls // (2 * secrets))):
            if asked >= recalls:
                break
            asked += 1
            room, owner = chance.choice(list(world.lines)), chance.choice(BOTS)
            present = {owner, *chance.sample(PEOPLE, chance.randint(0, 4))}
            target = chance.choice(world.planted)
            question = f"what of the {chance.choice(TOPICS)} and {target.code}?"
            for found in memory.recall(question, owner=owner, room=room, present=present, k=5, window=1, history=True):
                for text in (found.text, *(near.text for near in found.neighbours)):
                    returned += 1
                    leaks += [
                        f"{code} to {owner} in {room} before {sorted(present)}"
                        for code in codes_in(text)
                        if not world.may_know(code, owner, room, present)
                    ]
        if changes % 50 == 0:
            leaks += exported(world, memory, chance)
        progress(asked, recalls, "recalls")
    kinds = Counter(it.kind for it in world.planted if it.kind != "open")
    faults = memory.verify()
    return {
        "secrets": sum(kinds.values()),
        "kinds": dict(kinds),
        "recalls": asked,
        "returned": returned,
        "rooms": len(world.lines),
        "leaked": len(leaks),
        "leaks": leaks[:5],
        "index_faults": len(faults),
    }


def exported(world: World, memory: Memory, chance: random.Random) -> list[str]:
    """An export made for somebody is held to the same law."""
    room, owner = chance.choice(list(world.lines)), chance.choice(BOTS)
    present = {owner, *chance.sample(PEOPLE, chance.randint(0, 4))}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.jsonl"
        memory.export_jsonl(file, owner=owner, view=Viewpoint.of(owner, room, present))
        text = file.read_text(encoding="utf-8").replace('"', " ")
    return [code for code in codes_in(text) if not world.may_know(code, owner, room, present)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    recalls = 2_000 if options.quick else 100_000
    with scratch_folder() as folder, Memory(Path(folder) / "memory.db") as memory:
        figures = asyncio.run(play(memory, 200, recalls, options.seed))
    log(f"{figures}")
    finish(figures)


if __name__ == "__main__":
    main()
