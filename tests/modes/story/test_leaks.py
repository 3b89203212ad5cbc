"""M2 on assembled prompts: whatever any model is told, a secret is only told where its owner may know it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from coterie.base.clock import HeldClock
from tests.modes.story.conftest import Stage
from tests.modes.story.honest import Honest
from tests.modes.story.random_play import SMALL, Play


async def played(folder: Path, seed: int, steps: int) -> Play:
    chance = random.Random(seed)
    honest = Honest(chance=random.Random(seed + 1))
    stage = Stage(folder / f"{seed}.db", HeldClock(), honest, SMALL)
    play = Play(stage, honest, chance)
    try:
        await play.prepare()
        await play.run(steps)
        await stage.settle()
        play.look()
        stage.verify()
    finally:
        await stage.close()
    return play


async def test_m2_no_planted_secret_is_in_a_prompt_where_it_must_not_be(tmp_path: Path) -> None:
    play = await played(tmp_path, seed=5, steps=320)
    befell = Counter(what for fates in play.planted.values() for what in fates)
    print(len(play.planted), befell, play.done, play.told)
    assert play.leaks == []
