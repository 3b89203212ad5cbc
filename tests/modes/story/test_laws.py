"""Laws that hold however a story is played: what is live is what the log says, and no turn is lost or doubled."""

from __future__ import annotations

import asyncio
import random
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.memory.memory import MAX_PINS
from tests.modes.story.conftest import StoryHarness
from tests.modes.story.echo_model import EchoModel
from tests.modes.story.random_commands import COMMANDS, SMALL, RandomCommands

OFTEN = [command for command, weight in COMMANDS.items() for _ in range(max(1, weight // 4))]


def holds(stage: StoryHarness, play: RandomCommands) -> None:
    """After every command."""
    stage.verify()
    play.shown()
    assert play.leaks == []
    for line in play.lines.values():
        turns = stage.story.timeline.latest(line.room, 1_000)
        assert len({turn.id for turn in turns}) == len(turns)
        assert [turn.seq for turn in turns] == sorted(turn.seq for turn in turns)
        assert not [turn for turn in turns if turn.state == "open"]
        for asked, answer in pairwise(turns):
            # A reply follows the message that it answers; one that was rewound to may stay unanswered.
            assert answer.by_person or answer.answers == asked.id
        chat = stage.story.chats.chat(line.room)
        scenes = stage.store.query("SELECT id FROM scene WHERE room = ? AND ends IS NULL", (line.room,))
        assert scenes == [(chat.scene,)]
    assert stage.store.query("SELECT count(*) FROM relationship WHERE affinity NOT BETWEEN 0 AND 100") == [(0,)]
    assert stage.store.query("SELECT count(*) FROM job WHERE state = 'dead' OR attempts > 1") == [(0,)]


async def play(folder: Path, seed: int, commands: list[str]) -> None:
    honest = EchoModel(chance=random.Random(seed))
    stage = StoryHarness(folder / "coterie.db", ManualClock(), honest, SMALL)
    played = RandomCommands(stage, honest, random.Random(seed))
    try:
        await played.prepare()
        for command in commands:
            await played.step(command)
            holds(stage, played)
        await stage.run_jobs()
        holds(stage, played)
        played.remembered()
        assert stage.memory.verify() == []
        for bot in played.bots.values():
            for line in played.lines:
                pinned = stage.store.query(
                    "SELECT count(*) FROM memory WHERE owner = ? AND pin AND stream = ?", (bot, line)
                )
                assert pinned[0][0] <= MAX_PINS
    finally:
        await stage.close()


@settings(max_examples=4)
@given(st.integers(0, 10_000), st.lists(st.sampled_from(OFTEN), min_size=10, max_size=24))
def test_s12_s22_s23_s24_s25_live_state_equals_a_replay_after_every_command(seed: int, commands: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder), seed, commands))
