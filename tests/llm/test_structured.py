"""Structured output: schema, one stricter retry, refusals, the default, and the recorded failure."""

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
from tests.llm.conftest import MakeModels, settings_for
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
    replay = ReplayProvider("embedded", entries)
    return Models(ModelsSettings(), providers={"embedded": replay}), replay


async def test_a_valid_answer_is_parsed() -> None:
    models, replay = scripted(GOOD)
    found = await classify(models, Feeling, PROMPT)
    assert found.ok
    assert found.value == Feeling(affinity_delta=3, facts=["likes rain"])
    assert replay.requests[0].prompt.output_schema is not None
    assert replay.requests[0].prompt.output_schema.definition == Feeling.model_json_schema()


@pytest.mark.parametrize(
    ("bad", "failure"),
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
    bad: str, failure: str, tmp_path: Path, clock: ManualClock
) -> None:
    store = Store.open(tmp_path / "c.db", projections=[UsageProjection()], clock=clock)
    replay = ReplayProvider("embedded", [RecordedCall(say=bad), RecordedCall(say=bad)])
    models = Models(ModelsSettings(), providers={"embedded": replay}, store=store, clock=clock)
    found = await classify(models, Feeling, PROMPT, caller=Caller(room="room:1", character="mara"))
    assert (found.ok, found.value) == (False, Feeling())
    first, second = replay.requests
    assert len(second.prompt.messages) == len(first.prompt.messages) + 2
    assert "could not be used" in second.prompt.messages[-1].text
    assert second.prompt.temperature == 0
    columns = "schema_name, model, failure, raw, attempts, room, character"
    assert store.query(f"SELECT {columns} FROM classifier_failure") == [
        ("Feeling", "embedded/smollm2", failure, bad, 2, "room:1", "mara")
    ]
    store.close()


async def test_the_stricter_retry_can_succeed() -> None:
    models, replay = scripted(REFUSED, GOOD)
    assert (await classify(models, Feeling, PROMPT)).ok
    assert len(replay.requests) == 2


async def test_a_default_can_be_given() -> None:
    models, _ = scripted(REFUSED, REFUSED)
    assert (await classify(models, Feeling, PROMPT, default=Feeling(affinity_delta=1))).value.affinity_delta == 1


async def test_a_rejected_key_gives_the_default_and_the_error() -> None:
    models, replay = scripted(RecordedError(kind="KeyRejected", what="The key was rejected."))
    found = await classify(models, Feeling, PROMPT)
    assert found.failure is not None
    assert (found.failure.failure, found.failure.attempts) == ("unavailable", 1)
    assert isinstance(found.error, errors.KeyRejected)
    assert len(replay.requests) == 1


async def test_a_classifier_that_times_out_gives_the_default(
    make_models: MakeModels, openai_server: FaultServer
) -> None:
    openai_server.on("slow", never_answers)
    settings = settings_for(openai_server, roles={"classifier": ["here/slow"]}, classifier_timeout_s=0.3)
    models = make_models(settings)
    found = await classify(models, Feeling, PROMPT)
    assert found.failure is not None
    assert found.failure.failure == "unavailable"
    assert isinstance(found.error, errors.TimedOut)


@pytest.mark.parametrize("native", [True, False])
async def test_the_native_schema_mode_is_used_if_available(
    make_models: MakeModels, native: bool, openai_server: FaultServer
) -> None:
    openai_server.on("m", says(GOOD))
    here = {"base_url": openai_server.url, "native_schema": native}
    settings = ModelsSettings.model_validate({"providers": {"here": here}, "roles": {"classifier": "here/m"}})
    models = make_models(settings)
    assert (await classify(models, Feeling, PROMPT)).ok
    (request,) = openai_server.requests["m"]
    if native:
        sent = request["response_format"]["json_schema"]["schema"]
        assert set(sent["properties"]) == set(Feeling.model_fields)
    else:
        assert "response_format" not in request
        assert json.dumps(Feeling.model_json_schema(), ensure_ascii=False) in json.dumps(
            request["messages"][-1]["content"], ensure_ascii=False
        ).replace('\\"', '"')


@pytest.mark.parametrize(
    "text", ["I can't help with that.", "I’m sorry, but no.", "As an AI, I won't.", "*I cannot* do it"]
)
def test_refusals_are_recognised_by_their_beginning(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize("text", ["I canter along.", "She said sorry.", "Icarus", "The AI woke."])
def test_ordinary_beginnings_are_not_refusals(text: str) -> None:
    assert not is_refusal(text)


def test_facts_about_inability_are_not_refusals() -> None:
    assert not contains_refusal({"facts": ["I can't swim", "She won't forgive him", "sorry about the vase"]})
    assert contains_refusal({"facts": [{"deep": ["I'm sorry, but I cannot continue."]}]})


@given(st.integers(-10, 10), st.lists(st.text(max_size=20), max_size=3), st.sampled_from(["", "```json\n", "Here:\n"]))
def test_law_json_is_parsed_whatever_text_surrounds_it(delta: int, facts: list[str], before: str) -> None:
    feeling = Feeling(affinity_delta=delta, facts=facts)
    if not contains_refusal(facts):
        assert parse_answer(Feeling, before + feeling.model_dump_json() + "\n```") == feeling


@given(st.text(max_size=200))
def test_law_any_text_is_parsed_or_rejected_without_a_crash(text: str) -> None:
    try:
        assert isinstance(parse_answer(Feeling, text), Feeling)
    except Exception as error:
        assert type(error).__name__ == "_InvalidAnswer"


async def test_a_role_without_a_chain_uses_that_of_its_fallback_role() -> None:
    models, replay = scripted(GOOD)
    assert (await classify(models, Feeling, PROMPT, role=Role.CORTEX)).ok
    assert len(replay.requests) == 1
