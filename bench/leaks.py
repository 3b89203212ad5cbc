"""Check that planted secrets do not leak (M2): 200 secrets, random rewinds, forks and regenerates, 100,000 recalls.

Secrets are whispered, said in someone's absence, said to another character, limited to a room, rewound, regenerated or
said in another fork. What may be recalled is decided by a separate model that shares no code with the access rules. No
language model is involved.
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
CHARACTERS = ["mara", "teo", "uma"]
KINDS = ["whispered", "absent", "another's", "room", "rewound", "regenerated", "forked"]
TOPICS = ["harbour", "boat", "lighthouse", "cello", "garden", "letter", "money", "ring"]


@dataclass(frozen=True)
class Statement:
    """Something that was said, with a code word by which it is recognised."""

    code: str
    kind: str
    owner: str
    witnesses: frozenset[str]
    private: bool
    room_only: bool


@dataclass
class Branch:
    """The expected history of a room: the statements that count now, and after each event."""

    root: str
    counted: list[tuple[int, Statement]] = field(default_factory=list)
    states: dict[int, list[tuple[int, Statement]]] = field(default_factory=lambda: {0: []})
    head: int = 0

    def record(self) -> None:
        self.head += 1
        self.states[self.head] = list(self.counted)


class LeakModel:
    """Plants statements, changes histories, and knows which statements may be recalled."""

    def __init__(self, memory: Memory, rng: random.Random) -> None:
        self.memory = memory
        self.rng = rng
        self.branches: dict[str, Branch] = {}
        self.statements: list[Statement] = []
        for number in range(6):
            self.branches[f"room:{number}"] = Branch(f"room:{number}")

    async def say(self, kind: str) -> str:
        """Store a statement of this kind in a random room; returns the room."""
        rng = self.rng
        room = rng.choice(list(self.branches))
        branch = self.branches[room]
        owner = rng.choice(CHARACTERS)
        people = rng.sample(PEOPLE, rng.randint(1, 3))
        code = f"zq{len(self.statements):05d}{rng.choice('abcdefgh')}x"
        witnesses = {*people} if kind == "absent" else {owner, *people}
        statement = Statement(code, kind, owner, frozenset(witnesses), kind == "whispered", kind == "room")
        self.statements.append(statement)
        topic = rng.choice(TOPICS)
        self.memory.add_many(
            [self._new(statement, room, f"{people[0]} spoke of the {topic} and said the word {code}", people[0])]
        )
        branch.counted.append((branch.head + 1, statement))
        branch.record()
        if kind == "rewound":
            await self.rewind(room, branch.head - 1)
        elif kind == "regenerated":
            await self.drop(room, branch.head)
        elif kind == "forked" and len(self.branches) < 40:
            await self.fork(room, branch.head - 1)
        return room

    async def rewind(self, room: str, to: int) -> None:
        branch = self.branches[room]
        await self.memory.store.rewind(room, to=to)
        branch.counted = list(branch.states[to])
        branch.record()

    async def drop(self, room: str, seq: int) -> None:
        branch = self.branches[room]
        await self.memory.store.supersede(room, drop=[seq])
        branch.counted = [entry for entry in branch.counted if entry[0] != seq]
        branch.record()

    async def fork(self, room: str, at: int) -> None:
        branch = self.branches[room]
        new_room = f"room:{len(self.branches)}"
        await self.memory.store.fork(room, at=at, into=new_room)
        forked = Branch(branch.root, list(branch.states[at]), dict(branch.states), at)
        self.branches[new_room] = forked
        forked.record()

    async def change_history(self) -> None:
        """Rewind, drop or fork in a random room."""
        room = self.rng.choice(list(self.branches))
        branch = self.branches[room]
        if branch.head < 2:
            return
        kind = self.rng.choice(["rewind", "drop", "fork"])
        forked_at = min(branch.states, default=0) if branch.root != room else 0
        own = [seq for seq, _ in branch.counted if seq > forked_at]
        if kind == "rewind":
            await self.rewind(room, self.rng.randrange(max(1, branch.head - 3), branch.head))
        elif kind == "drop" and own:
            await self.drop(room, own[-1])
        elif kind == "fork" and len(self.branches) < 40:
            await self.fork(room, self.rng.randrange(1, branch.head))

    def may_recall(self, code: str, owner: str, room: str, present: set[str]) -> bool:
        """The access rules, from this model's own records."""
        for name, branch in self.branches.items():
            if name != room and branch.root == self.branches[room].root:
                continue
            for _, statement in branch.counted:
                if statement.code != code:
                    continue
                disclosed = not statement.private or present - {owner} <= statement.witnesses
                in_scope = not statement.room_only or name == room
                if statement.owner == owner and owner in statement.witnesses and disclosed and in_scope:
                    return True
        return False

    def _new(self, statement: Statement, room: str, text: str, speaker: str) -> Any:
        from coterie.memory.writer import NewMemory

        return NewMemory(
            text,
            statement.owner,
            room,
            speaker=speaker,
            witnesses=tuple(sorted(statement.witnesses)),
            private=statement.private,
            disclosure="room" if statement.room_only else "people",
            sources=(statement.code,),
        )


def codes_in(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith("zq")]


async def check_leaks(memory: Memory, secrets: int, recalls: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    model = LeakModel(memory, rng)
    leaks: list[str] = []
    recalled, returned, changes = 0, 0, 0
    while recalled < recalls:
        if len(model.statements) < 2 * secrets:
            # Every other statement is open, so that recalls return something.
            await model.say(KINDS[len(model.statements) // 2 % len(KINDS)] if len(model.statements) % 2 else "open")
        await model.change_history()
        changes += 1
        for _ in range(max(1, recalls // (2 * secrets))):
            if recalled >= recalls:
                break
            recalled += 1
            room, owner = rng.choice(list(model.branches)), rng.choice(CHARACTERS)
            present = {owner, *rng.sample(PEOPLE, rng.randint(0, 4))}
            target = rng.choice(model.statements)
            question = f"what of the {rng.choice(TOPICS)} and {target.code}?"
            for found in memory.recall(question, owner=owner, room=room, present=present, k=5, window=1, history=True):
                for text in (found.text, *(near.text for near in found.neighbours)):
                    returned += 1
                    leaks += [
                        f"{code} to {owner} in {room} before {sorted(present)}"
                        for code in codes_in(text)
                        if not model.may_recall(code, owner, room, present)
                    ]
        if changes % 50 == 0:
            leaks += export_leaks(model, memory, rng)
        progress(recalled, recalls, "recalls")
    kinds = Counter(statement.kind for statement in model.statements if statement.kind != "open")
    problems = memory.verify()
    return {
        "secrets": sum(kinds.values()),
        "kinds": dict(kinds),
        "recalls": recalled,
        "returned": returned,
        "rooms": len(model.branches),
        "leaked": len(leaks),
        "leaks": leaks[:5],
        "index_faults": len(problems),
    }


def export_leaks(model: LeakModel, memory: Memory, rng: random.Random) -> list[str]:
    """The codes that an export with a viewpoint contains but must not."""
    room, owner = rng.choice(list(model.branches)), rng.choice(CHARACTERS)
    present = {owner, *rng.sample(PEOPLE, rng.randint(0, 4))}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.jsonl"
        memory.export_jsonl(file, owner=owner, view=Viewpoint.of(owner, room, present))
        text = file.read_text(encoding="utf-8").replace('"', " ")
    return [code for code in codes_in(text) if not model.may_recall(code, owner, room, present)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    recalls = 2_000 if options.quick else 100_000
    with scratch_folder() as folder, Memory(Path(folder) / "memory.db") as memory:
        figures = asyncio.run(check_leaks(memory, 200, recalls, options.seed))
    log(f"{figures}")
    finish(figures)


if __name__ == "__main__":
    main()
