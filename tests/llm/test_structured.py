"""The classifier wrapper: schema, one stricter retry, refusals, default, a record of each failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from coterie.base.clock import ManualClock
from coterie.eventstore import Store
from coterie.llm import errors
from coterie.llm.messages import Prompt
from coterie.llm.recording import RecordedCall, RecordedError, ReplayProvider
from coterie.llm.router import Caller, Models
from coterie.llm.settings import ModelsSettings, Role
from coterie.llm.structured import classify, contains_refusal, is_refusal, parse_answer
from coterie.llm.usage import UsageProjection
from tests.llm.conftest import Opened, settings_for
from tests.llm.fault_server import FaultServer, never_answers, says

PROMPT = Prompt.of("She smiled at him.")


class Feeling(BaseModel):
    affinity_delta: int = Field(default=0, ge=-10, le=10)
    facts: list[str] = []


GOOD = '{"affinity_delta": 3, "facts": ["likes rain"]}'
REFUSED = "I'm sorry, but I can't help with that."


def scripted(*answers: str | RecordedError) -> tuple[Models, ReplayProvider]:
    entries = [
        RecordedCall(say=answer) if isinstance(answer, str) else RecordedCall(error=answer) for answer in answers
    ]
    player = ReplayProvider("embedded", entries)
    return Models(ModelsSettings(), providers={"embedded": player}), player


async def test_a_fitting_answer_is_read() -> None:
    models, player = scripted(GOOD)
    found = await classify(models, Feeling, PROMPT)
    assert found.ok
    assert found.value == Feeling(affinity_delta=3, facts=["likes rain"])
    assert player.requests[0].prompt.output_schema is not None
    assert player.requests[0].prompt.output_schema.definition == Feeling.model_json_schema()


@pytest.mark.parametrize(
    ("bad", "wrong"),
    [
        (REFUSED, "refused"),
        ("As an AI language model I cannot do so. {}", "refused"),
        ('{"facts": ["As an AI language model I have no feelings."]}', "refused"),
        ("She likes him a lot.", "not_json"),
        ('{"affinity_delta": 3', "not_json"),
        ('{"affinity_delta": 99}', "not_the_schema"),
    ],
)
async def test_one_stricter_retry_then_the_default_and_a_record(
    bad: str, wrong: str, tmp_path: Path, clock: ManualClock
) -> None:
    store = Store.open(tmp_path / "c.db", projections=[UsageProjection()], clock=clock)
    player = ReplayProvider("embedded", [RecordedCall(say=bad), RecordedCall(say=bad)])
    models = Models(ModelsSettings(), providers={"embedded": player}, store=store, clock=clock)
    found = await classify(models, Feeling, PROMPT, caller=Caller(room="room:1", character="mara"))
    assert (found.ok, found.value) == (False, Feeling())
    first, second = player.requests
    assert len(second.prompt.messages) == len(first.prompt.messages) + 2
    assert "could not be used" in second.prompt.messages[-1].text
    assert second.prompt.temperature == 0
    columns = "schema_name, model, failure, raw, attempts, room, character"
    assert store.query(f"SELECT {columns} FROM classifier_failure") == [
        ("Feeling", "embedded/smollm2", wrong, bad, 2, "room:1", "mara")
    ]
    store.close()


async def test_the_stricter_retry_can_save_it() -> None:
    models, player = scripted(REFUSED, GOOD)
    assert (await classify(models, Feeling, PROMPT)).ok
    assert len(player.requests) == 2


async def test_a_default_can_be_given() -> None:
    models, _ = scripted(REFUSED, REFUSED)
    assert (await classify(models, Feeling, PROMPT, default=Feeling(affinity_delta=1))).value.affinity_delta == 1


async def test_a_provider_that_refuses_the_key_leaves_the_default_and_the_reason() -> None:
    models, player = scripted(RecordedError(kind="KeyRejected", what="The key was rejected."))
    found = await classify(models, Feeling, PROMPT)
    assert found.failure is not None
    assert (found.failure.failure, found.failure.attempts) == ("unavailable", 1)
    assert isinstance(found.error, errors.KeyRejected)
    assert len(player.requests) == 1


async def test_a_classifier_that_takes_too_long_leaves_the_default(opened: Opened, openai_server: FaultServer) -> None:
    openai_server.on("slow", never_answers)
    settings = settings_for(openai_server, roles={"classifier": ["here/slow"]}, classifier_timeout_s=0.3)
    models = opened(settings)
    found = await classify(models, Feeling, PROMPT)
    assert found.failure is not None
    assert found.failure.failure == "unavailable"
    assert isinstance(found.error, errors.TimedOut)


@pytest.mark.parametrize("native", [True, False])
async def test_the_providers_own_schema_mode_is_used_where_there_is_one(
    opened: Opened, native: bool, openai_server: FaultServer
) -> None:
    openai_server.on("m", says(GOOD))
    here = {"base_url": openai_server.url, "native_schema": native}
    settings = ModelsSettings.model_validate({"providers": {"here": here}, "roles": {"classifier": "here/m"}})
    models = opened(settings)
    assert (await classify(models, Feeling, PROMPT)).ok
    (asked,) = openai_server.requests["m"]
    if native:
        sent = asked["response_format"]["json_schema"]["schema"]
        assert set(sent["properties"]) == set(Feeling.model_fields)
    else:
        assert "response_format" not in asked
        assert json.dumps(Feeling.model_json_schema(), ensure_ascii=False) in json.dumps(
            asked["messages"][-1]["content"], ensure_ascii=False
        ).replace('\\"', '"')


@pytest.mark.parametrize(
    "text", ["I can't help with that.", "I’m sorry, but no.", "As an AI, I won't.", "*I cannot* do it"]
)
def test_refusals_are_recognised_by_how_they_begin(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize("text", ["I canter along.", "She said sorry.", "Icarus", "The AI woke."])
def test_ordinary_beginnings_are_not_refusals(text: str) -> None:
    assert not is_refusal(text)


def test_what_a_character_cannot_do_is_a_fact_not_a_refusal() -> None:
    assert not contains_refusal({"facts": ["I can't swim", "She won't forgive him", "sorry about the vase"]})
    assert contains_refusal({"facts": [{"deep": ["I'm sorry, but I cannot continue."]}]})


@given(st.integers(-10, 10), st.lists(st.text(max_size=20), max_size=3), st.sampled_from(["", "```json\n", "Here:\n"]))
def test_law_what_was_said_as_json_is_read_back_whatever_surrounds_it(
    delta: int, facts: list[str], before: str
) -> None:
    feeling = Feeling(affinity_delta=delta, facts=facts)
    if not contains_refusal(facts):
        assert parse_answer(Feeling, before + feeling.model_dump_json() + "\n```") == feeling


@given(st.text(max_size=200))
def test_law_any_text_is_read_or_turned_down_never_a_crash(text: str) -> None:
    try:
        assert isinstance(parse_answer(Feeling, text), Feeling)
    except Exception as error:
        assert type(error).__name__ == "_InvalidAnswer"


async def test_roles_share_the_chain_of_the_one_that_stands_in() -> None:
    models, player = scripted(GOOD)
    assert (await classify(models, Feeling, PROMPT, role=Role.CORTEX)).ok
    assert len(player.requests) == 1
