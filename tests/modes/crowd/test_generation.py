"""C7: lines written by a model are shortened and checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.llm import Models, ModelsSettings, TextDelta
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.llm.settings import ProviderSettings
from coterie.modes.crowd.generation import (
    LineRules,
    ModelLineWriter,
    WrittenLine,
    length_problem,
    remove_unpaired_marks,
    shorten,
)
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.settings import CrowdConfigs

LONG = "and then the lever went down and the bread was on fire and nobody in the whole kitchen had a bucket of water"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I'm here. sit, there is a plate", "I'm here. sit, there is a plate"),
        ("no. that is the wrong door! " + LONG, "no. that is the wrong door!"),
        ('he said "that is the door." ' + LONG, 'he said "that is the door."'),
        ("the lever, the bread, the fire, all of it, " + LONG, "the lever, the bread, the fire, all of it"),
        (LONG, LONG),
    ],
)
def test_c7_a_long_line_is_cut_at_a_sentence_or_clause(text: str, kept: str) -> None:
    assert shorten(text) == kept


def test_c7_long_and_repetitive_lines_are_rejected() -> None:
    assert "too long" in length_problem(LONG)
    assert "repeats itself" in length_problem("no. no. no wonder. no wonder no. no")
    assert length_problem("LETS GO LETS GO LETS GO") == ""
    assert length_problem("the storm is on the other side and the ferry is not") == ""


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ('(to himself) "are you sure?', "(to himself) are you sure?"),
        ("(laughs, the door is open", "laughs, the door is open"),
        ('he said "left" (twice)', 'he said "left" (twice)'),
        ("it's 5' tall", "it's 5' tall"),
    ],
)
def test_c7_unpaired_marks_are_removed(text: str, cleaned: str) -> None:
    assert remove_unpaired_marks(text) == cleaned


@given(st.text(max_size=400))
def test_c7_shortening_keeps_a_prefix_and_is_idempotent(text: str) -> None:
    once = shorten(text)
    assert text.startswith(once)
    assert shorten(once) == once


async def test_c7_a_slow_model_is_asked_for_fewer_lines_and_the_trace_says_so(configs: CrowdConfigs) -> None:
    def answer(_: object) -> RecordedCall:
        return RecordedCall(chunks=((30_000_000, TextDelta(text="the copper kettle is humming")),))

    settings = ModelsSettings(roles={"crowd": ("embedded/script",)})
    models = Models(settings, providers={"embedded": ReplayProvider("embedded", default=answer, speed=1.0)})
    writer = ModelLineWriter(models, LineRules(180), "den")
    nonna = configs.personas()["nonna_exe"]
    lines: list[WrittenLine] = []
    for tick in range(100):  # on a machine that stalls, the model seems slower still, and is left alone for longer
        lines.append(await writer.write(LineRequest(nonna, tick, "base", tick, stand_in=True), 0.1))
        if "not written within" in lines[-1].fallback and any("busy" in line.fallback for line in lines):
            break
    assert {line.outcome for line in lines} == {"written"}
    assert "not written within" in lines[0].fallback
    assert any("busy" in line.fallback for line in lines)
    assert any("not written within" in line.fallback for line in lines[2:]), "it is tried again later"
    to_person = LineRequest(nonna, 9, "mention", 9, recipient="ana", recipient_is_person=True)
    assert "not written within" in (await writer.write(to_person, 0.1)).fallback  # a person is always worth asking
    await models.close()


@pytest.mark.parametrize(("role", "asks"), [({}, True), ({"crowd": ("hosted/large",)}, False)])
async def test_c7_the_bundled_model_is_asked_for_several_candidates_at_once(
    configs: CrowdConfigs, role: dict[str, tuple[str, ...]], asks: bool
) -> None:
    asked: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> RecordedCall:
        asked.append(request)
        return RecordedCall(say="the copper kettle is humming")

    providers = {name: ReplayProvider(name, default=answer) for name in ("embedded", "hosted")}
    settings = ModelsSettings(roles=role, providers={"hosted": ProviderSettings(base_url="http://127.0.0.1:9/v1")})
    models = Models(settings, providers=providers)
    writer = ModelLineWriter(models, LineRules(180), "den")
    await writer.write(LineRequest(configs.personas()["nonna_exe"], 1, "base", 1), 20)
    assert [request.prompt.script is not None for request in asked] == [asks]
    await models.close()
