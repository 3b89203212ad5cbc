"""A small story domain with typical projections: turns, relationships shared between rooms, memories, scenes, a clock.

Benches and property tests replay it. It contains what makes rewinding hard: rows that several rooms write, updates that
clamp, conditional deletions, and handlers that read what they change.
"""

from __future__ import annotations

import random
from typing import Literal

from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, on


class SampleTurn(Payload, kind="sample_said"):
    turn: str
    speaker: str
    text: str


class SampleFeeling(Payload, kind="sample_felt"):
    of: str
    toward: str
    delta: int


class SampleMemory(Payload, kind="sample_noticed"):
    memory: str
    owner: str
    scene: str
    text: str
    weight: float


class SceneEnded(Payload, kind="sample_scene_ended"):
    scene: str
    keep: float


class TimePassed(Payload, kind="sample_time_passed"):
    minutes: int
    weather: Literal["sun", "rain", "snow"]


class Turns(Projection):
    name = "sample_turns"
    stream_column = "room"
    schema = """
        CREATE TABLE sample_turn(room TEXT, turn TEXT, seq INTEGER, speaker TEXT, text TEXT, PRIMARY KEY(room, turn))
            WITHOUT ROWID;
        CREATE TABLE sample_room(room TEXT PRIMARY KEY, turns INTEGER NOT NULL DEFAULT 0, minutes INTEGER NOT NULL
            DEFAULT 0, weather TEXT NOT NULL DEFAULT 'sun', last TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
    """

    @on(SampleTurn)
    def turn_added(self, rows: Rows, event: Event[SampleTurn]) -> None:
        turn = event.payload
        rows.run(
            "INSERT OR REPLACE INTO sample_turn VALUES (?, ?, ?, ?, ?)",
            (event.stream, turn.turn, event.seq, turn.speaker, turn.text),
        )
        rows.run(
            "INSERT INTO sample_room(room, turns, last) VALUES (?, 1, ?)"
            " ON CONFLICT(room) DO UPDATE SET turns = turns + 1, last = excluded.last",
            (event.stream, turn.text[:80]),
        )

    @on(TimePassed)
    def time_passed(self, rows: Rows, event: Event[TimePassed]) -> None:
        rows.run(
            "INSERT INTO sample_room(room, minutes, weather) VALUES (?1, ?2, ?3)"
            " ON CONFLICT(room) DO UPDATE SET minutes = minutes + ?2, weather = ?3",
            (event.stream, event.payload.minutes, event.payload.weather),
        )


class Edges(Projection):
    name = "sample_edges"
    schema = """
        CREATE TABLE sample_edge(of TEXT, toward TEXT, affinity INTEGER NOT NULL, last_room TEXT NOT NULL,
            PRIMARY KEY(of, toward)) WITHOUT ROWID;
    """

    @on(SampleFeeling)
    def felt(self, rows: Rows, event: Event[SampleFeeling]) -> None:
        felt = event.payload
        rows.run(
            "INSERT INTO sample_edge VALUES (?1, ?2, min(100, max(0, 50 + ?3)), ?4) ON CONFLICT(of, toward)"
            " DO UPDATE SET affinity = min(100, max(0, affinity + ?3)), last_room = ?4",
            (felt.of, felt.toward, felt.delta, event.stream),
        )


class Memories(Projection):
    name = "sample_memories"
    stream_column = "room"
    schema = """
        CREATE TABLE sample_memory(room TEXT, memory TEXT, owner TEXT, scene TEXT, text TEXT, weight REAL,
            PRIMARY KEY(room, memory));
        CREATE INDEX sample_memory_scene ON sample_memory(room, scene);
    """

    @on(SampleMemory)
    def noticed(self, rows: Rows, event: Event[SampleMemory]) -> None:
        seen = event.payload
        rows.run(
            "INSERT OR REPLACE INTO sample_memory VALUES (?, ?, ?, ?, ?, ?)",
            (event.stream, seen.memory, seen.owner, seen.scene, seen.text, seen.weight),
        )

    @on(SceneEnded)
    def scene_ended(self, rows: Rows, event: Event[SceneEnded]) -> None:
        ended = event.payload
        rows.run(
            "DELETE FROM sample_memory WHERE room = ? AND scene = ? AND weight < ?",
            (event.stream, ended.scene, ended.keep),
        )
        rows.run(
            "UPDATE sample_memory SET weight = weight * 0.9 WHERE room = ? AND scene = ?", (event.stream, ended.scene)
        )


def sample_projections() -> list[Projection]:
    return [Turns(), Edges(), Memories()]


_WORDS = "the rain had stopped and Mara looked from her letter while somebody in the harbour was singing".split(" ")  # noqa: SIM905


def sample_event(chance: random.Random, room: str, number: int) -> NewEvent:
    """One plausible event of a long story."""
    people = ["you", "mara", "teo"]
    turn = f"t{number // 4}"
    text = " ".join(chance.choices(_WORDS, k=chance.randint(4, 30)))
    payload: Payload
    match chance.choices(["said", "felt", "noticed", "time", "ended"], [40, 25, 25, 8, 2])[0]:
        case "said":
            payload = SampleTurn(turn=f"{turn}.{number}", speaker=chance.choice(people), text=text)
        case "felt":
            of, toward = chance.sample(people, 2)
            payload = SampleFeeling(of=of, toward=toward, delta=chance.randint(-9, 9))
        case "noticed":
            scene = f"s{number // 50}"
            payload = SampleMemory(
                memory=f"m{number}", owner=chance.choice(people), scene=scene, text=text, weight=chance.random()
            )
        case "time":
            payload = TimePassed(minutes=chance.randint(1, 90), weather=chance.choice(["sun", "rain", "snow"]))
        case _:
            payload = SceneEnded(scene=f"s{number // 50}", keep=chance.random())
    return NewEvent(room, payload, actor="sample", turn=turn)
