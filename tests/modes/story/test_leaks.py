"""No prompt contains a secret that its speaker or audience may not know.

Every message and reply of a random sequence of commands contains a code word. Some are whispered, said in somebody's
absence or in another chat, rewound, replaced, said in one fork or before a reset. Each prompt (replies, relationships,
scenes, summaries) is checked against a model that shares no code with the access rules.
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
from coterie.modes.story.prompts import StoryPromptBuilder
from coterie.modes.story.queries import Participants
from tests.modes.story.conftest import StoryHarness
from tests.modes.story.echo_model import EchoModel
from tests.modes.story.random_commands import SMALL, RandomCommands

KINDS = {"whispered", "absent", "rewound", "swiped", "forked", "reset"}


async def run_commands(folder: Path, seed: int, steps: int, *, until_leak: bool = False) -> RandomCommands:
    model = EchoModel(chance=random.Random(seed + 1))
    harness = StoryHarness(folder / f"{seed}.db", ManualClock(), model, SMALL)
    runner = RandomCommands(harness, model, random.Random(seed))
    try:
        await runner.prepare()
        for _ in range(steps):
            await runner.step()
            if until_leak and runner.leaks:
                return runner
        await harness.run_jobs()
        runner.check_prompts()
        runner.check_shown()
        harness.verify()
    finally:
        await harness.close()
    return runner


async def test_m2_none_of_200_secrets_is_in_a_prompt_where_it_must_not_be(tmp_path: Path) -> None:
    runner = await run_commands(tmp_path, seed=6, steps=200)
    assert runner.leaks == []
    secrets = [code for code, marks in runner.planted.items() if marks & KINDS]
    counts = Counter(mark for code in secrets for mark in runner.planted[code])
    assert len(secrets) >= 200, counts
    assert all(counts[kind] >= 10 for kind in KINDS), counts
    # The check is not empty: prompts contained many code words that they may contain.
    assert runner.allowed > 1_500
    assert {"regenerate", "edit", "choose", "rewind", "undo", "fork", "invite", "send_away", "reset"} <= set(
        runner.done
    )


@pytest.mark.parametrize("seed", [4, 107])
async def test_m2_no_secret_leaks_with_other_seeds(tmp_path: Path, seed: int) -> None:
    assert (await run_commands(tmp_path, seed, steps=60)).leaks == []


def _seen_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Participants, "turns_seen_by", lambda *_: lambda _turn: True)


def _recalled_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "allowed_mask", lambda index, *_: np.ones(len(index), bool))


def _forks_know_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamForks, "is_other_branch", lambda *_: False)


def _whispers_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    assemble = StoryPromptBuilder.assemble
    monkeypatch.setattr(
        StoryPromptBuilder,
        "assemble",
        lambda self, chat, who, reply, to=(), **rest: assemble(self, chat, who, reply, (who,), **rest),
    )


def _notes_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coterie.modes.story.turn_parser.visible_text", lambda segments: " ".join(one.text for one in segments)
    )


def _forks_keep_knowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.modes.story.history.fork._without_knowledge", lambda event: event)


@pytest.mark.parametrize(
    "disable_rule",
    [
        _seen_by_all,
        _recalled_by_all,
        _forks_know_each_other,
        _whispers_aloud,
        _notes_are_visible,
        _forks_keep_knowledge,
    ],
)
async def test_m2_the_check_detects_a_disabled_access_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disable_rule: Callable[[pytest.MonkeyPatch], None]
) -> None:
    disable_rule(monkeypatch)
    for seed in (9, 10):
        if (await run_commands(tmp_path, seed, steps=110, until_leak=True)).leaks:
            return
    pytest.fail("The check found no leak without this rule.")
