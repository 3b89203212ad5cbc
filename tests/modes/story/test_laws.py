"""Properties that hold after any commands: live state equals a replay, and no turn is lost or repeated."""

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


def check(harness: StoryHarness, commands: RandomCommands) -> None:
    harness.verify()
    commands.check_shown()
    assert commands.leaks == []
    for expected in commands.chats.values():
        turns = harness.story.timeline.latest(expected.room, 1_000)
        ids = {turn.id for turn in turns}
        assert len(ids) == len(turns)
        assert [turn.seq for turn in turns] == sorted(turn.seq for turn in turns)
        assert not [turn for turn in turns if turn.state == "open"]
        for turn, following in pairwise(turns):
            # A reply follows its message, or another reply to it, unless those were deleted.
            gone = {one.id for one in harness.story.timeline.deleted(expected.room)}
            before = {turn.id, turn.answers}
            assert following.by_person or following.answers in before | gone or following.answers in ids
        chat = harness.story.chats.chat(expected.room)
        scenes = harness.store.query("SELECT id FROM scene WHERE room = ? AND ends IS NULL", (expected.room,))
        assert scenes == [(chat.scene,)]
    assert harness.store.query("SELECT count(*) FROM relationship WHERE affinity NOT BETWEEN 0 AND 100") == [(0,)]
    assert harness.store.query("SELECT count(*) FROM job WHERE state = 'dead' OR attempts > 1") == [(0,)]


async def run_commands(folder: Path, seed: int, commands: list[str]) -> None:
    model = EchoModel(chance=random.Random(seed))
    harness = StoryHarness(folder / "coterie.db", ManualClock(), model, SMALL)
    runner = RandomCommands(harness, model, random.Random(seed))
    try:
        await runner.prepare()
        for command in commands:
            await runner.step(command)
            check(harness, runner)
        await harness.run_jobs()
        check(harness, runner)
        runner.check_memories()
        assert harness.memory.verify() == []
        for character in runner.characters.values():
            for room in runner.chats:
                pinned = harness.store.query(
                    "SELECT count(*) FROM memory WHERE owner = ? AND pin AND stream = ?", (character, room)
                )
                assert pinned[0][0] <= MAX_PINS
    finally:
        await harness.close()


@settings(max_examples=4)
@given(st.integers(0, 10_000), st.lists(st.sampled_from(OFTEN), min_size=10, max_size=24))
def test_s12_s22_s23_s24_s25_live_state_equals_a_replay_after_every_command(seed: int, commands: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_commands(Path(folder), seed, commands))
