"""Everything that is stored passes redaction: events, jobs, schedules and errors."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.errors import SecretInName
from coterie.base.redaction import redact
from coterie.eventstore import NewEvent, NewJob, Payload, Schedule, Store, verify

SECRET = 'k3y "of" the/store+7f3a91c2 €'
FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "hex": SECRET.encode().hex(),
    "url": quote(SECRET, safe=""),
    "json": json.dumps(SECRET)[1:-1],
}
SHAPED = "sk-proj-abcdefghij0123456789"


class Inner(BaseModel):
    text: str


class Nested(Payload, kind="sample_nested"):
    texts: tuple[str, ...] = ()
    by_name: dict[str, Inner] = Field(default_factory=dict)
    anything: object = None


@pytest.fixture(autouse=True)
def registered() -> None:
    redact.register(SECRET)


def file_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file())


def assert_nowhere(folder: Path) -> None:
    stored = file_bytes(folder)
    for form in (*FORMS.values(), SHAPED):
        assert form.encode() not in stored
        assert json.dumps(form)[1:-1].encode() not in stored


@pytest.mark.parametrize("form", [*FORMS, "shaped"])
async def test_a_secret_in_an_event_is_never_stored(store: Store, tmp_path: Path, form: str) -> None:
    text = f"it is {FORMS.get(form, SHAPED)}, you know"
    nested = Nested(texts=("fine", text), by_name={"a": Inner(text=text)}, anything={text: [text, 1, None, True]})
    turn = SampleTurn(turn="t1", speaker="mara", text=text)
    stored = await store.append([NewEvent("room:a", turn), NewEvent("room:a", nested)])
    blocking = store.append_blocking([NewEvent("room:a", turn)])
    assert "it is [secret]" in stored[0].payload.model_dump_json()
    assert_nowhere(tmp_path)
    # Subscribers, projections and readers of the log get the same event.
    assert await store.read("room:a") == [*stored, *blocking]
    assert verify(store.reader, store.projections).clean


async def test_the_projections_after_a_redaction_are_those_of_a_replay(store: Store) -> None:
    for number, form in enumerate(FORMS.values()):
        await store.append([NewEvent("room:a", SampleTurn(turn=f"t{number}", speaker="mara", text=f"x {form} y"))])
    before = store.hashes()
    store.rebuild()
    assert store.hashes() == before


async def test_a_secret_in_a_job_or_a_schedule_is_never_stored(store: Store, tmp_path: Path) -> None:
    payload = {"prompt": f"use {SECRET}", "nested": [FORMS["base64"]]}
    event = NewEvent("room:a", SampleTurn(turn="t", speaker="mara", text="hello"))
    await store.append([event], jobs=[NewJob("work", key="w1", payload=payload, max_attempts=1)])
    await store.jobs.enqueue([NewJob("work", key="w2", payload=payload)])
    await store.schedules.put(Schedule("s", "work", every_s=60, payload=payload))
    first, second = await store.jobs.lease(["work"], holder="h", limit=2)
    assert first.payload["prompt"] == "use [secret]"
    await store.jobs.fail(first, f"could not use {SECRET}")
    await store.jobs.fail(second, f"could not use {SECRET}")
    assert_nowhere(tmp_path)


@pytest.mark.parametrize("field", ["stream", "actor", "key", "turn"])
async def test_a_name_with_a_secret_is_refused_and_nothing_is_stored(store: Store, tmp_path: Path, field: str) -> None:
    named = {"stream": "room:a", field: f"x:{SECRET}"}
    with pytest.raises(SecretInName):
        await store.append([NewEvent(payload=SampleTurn(turn="t", speaker="m", text="hello"), **named)])  # type: ignore[arg-type]
    assert await store.read() == []
    assert_nowhere(tmp_path)


async def test_a_job_key_with_a_secret_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(SecretInName):
        await store.jobs.enqueue([NewJob("work", key=f"w:{SECRET}")])
    assert_nowhere(tmp_path)


async def test_a_weak_password_that_is_a_word_of_ours_breaks_no_name(store: Store) -> None:
    redact.register("sample_turn")
    (event,) = await store.append([NewEvent("room:sample_turn", SampleTurn(turn="t", speaker="mara", text="x"))])
    assert await store.read("room:sample_turn") == [event]


@settings(max_examples=40)
@given(st.text(max_size=60), st.sampled_from(list(FORMS.values())), st.text(max_size=60))
def test_no_text_around_a_secret_keeps_it(
    tmp_path_factory: pytest.TempPathFactory, before: str, form: str, after: str
) -> None:
    folder = tmp_path_factory.mktemp("log")
    store = Store.open(folder / "coterie.db", projections=sample_projections())
    store.append_blocking([NewEvent("room:a", SampleTurn(turn="t", speaker="mara", text=before + form + after))])
    (event,) = store.reader.read("room:a")
    store.close()
    assert form not in event.payload.model_dump_json()
    assert_nowhere(folder)
