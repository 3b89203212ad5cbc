"""M2 on assembled prompts: whatever any model is told, a secret is only told where its owner may know it.

Every message and every reply of a random play holds a code word. Some are whispered, said in somebody's absence or in
another chat, rewound, swiped away, said on one line of a fork or before a reset. Each prompt that any model was sent,
for replies, feelings, scenes and summaries alike, is held against books that share no code with the gates.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coterie.base.clock import ManualClock
from coterie.memory import recall
from coterie.memory.records import StreamForks
from coterie.modes.story.prompts import PromptBuilder
from coterie.modes.story.queries import Participants
from tests.modes.story.conftest import StoryHarness
from tests.modes.story.echo_model import EchoModel
from tests.modes.story.random_commands import SMALL, RandomCommands

KINDS = {"whispered", "absent", "rewound", "swiped", "forked", "reset"}


async def played(folder: Path, seed: int, steps: int, *, until_leak: bool = False) -> RandomCommands:
    honest = EchoModel(chance=random.Random(seed + 1))
    stage = StoryHarness(folder / f"{seed}.db", ManualClock(), honest, SMALL)
    play = RandomCommands(stage, honest, random.Random(seed))
    try:
        await play.prepare()
        for _ in range(steps):
            await play.step()
            if until_leak and play.leaks:
                return play
        await stage.run_jobs()
        play.look()
        play.shown()
        stage.verify()
    finally:
        await stage.close()
    return play


async def test_m2_none_of_200_planted_secrets_is_in_a_prompt_where_it_must_not_be(tmp_path: Path) -> None:
    play = await played(tmp_path, seed=6, steps=190)
    assert play.leaks == []
    secrets = [code for code, fates in play.planted.items() if fates & KINDS]
    befell = Counter(what for code in secrets for what in play.planted[code])
    assert len(secrets) >= 200, befell
    assert all(befell[kind] >= 10 for kind in KINDS), befell
    # It was no law about nothing: models were told thousands of things that they might be told.
    assert play.told > 1_500
    assert {"regenerate", "edit", "choose", "rewind", "undo", "fork", "invite", "send_away", "reset"} <= set(play.done)


@pytest.mark.parametrize("seed", [4, 107])
async def test_m2_no_secret_leaks_in_other_plays(tmp_path: Path, seed: int) -> None:
    assert (await played(tmp_path, seed, steps=60)).leaks == []


def _seen_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Participants, "turns_seen_by", lambda *_: lambda _turn: True)


def _recalled_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "allowed_mask", lambda shelf, *_: np.ones(len(shelf), bool))


def _lines_know_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamForks, "is_other_branch", lambda *_: False)


def _whispers_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    assemble = PromptBuilder.assemble
    monkeypatch.setattr(
        PromptBuilder, "assemble", lambda self, chat, who, reply, to=(): assemble(self, chat, who, reply, (who,))
    )


def _notes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coterie.modes.story.turn_parser.visible_text", lambda segments: " ".join(one.text for one in segments)
    )


def _forks_keep_feelings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.modes.story.fork._without_knowledge", lambda event: event)


@pytest.mark.parametrize(
    "open_gate",
    [_seen_by_all, _recalled_by_all, _lines_know_each_other, _whispers_aloud, _notes_are_told, _forks_keep_feelings],
)
async def test_m2_the_law_notices_a_gate_that_stands_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_gate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    open_gate(monkeypatch)
    assert (await played(tmp_path, seed=9, steps=110, until_leak=True)).leaks
