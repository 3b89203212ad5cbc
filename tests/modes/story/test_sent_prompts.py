"""Prompts are stored as differences, and read back exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.eventstore import NewEvent, Ranges, Store, verify
from coterie.modes.story import sent_prompts
from coterie.modes.story.events import PromptSent, SentPromptPart
from coterie.modes.story.projections import story_projections
from coterie.modes.story.sent_prompts import PromptQueries, expand_parts, shorten_parts
from tests.modes.story.conftest import ScriptedModel, StoryHarness

PARTS = st.lists(
    st.builds(
        SentPromptPart,
        name=st.sampled_from("abc"),
        tier=st.sampled_from(["must", "nice"]),
        role=st.just("system"),
        tokens=st.integers(0, 2),
        text=st.sampled_from(["", "x", "y"]),
    ),
    max_size=12,
)


@given(PARTS, PARTS)
def test_s13_a_difference_gives_back_all_parts(base: list[SentPromptPart], parts: list[SentPromptPart]) -> None:
    stored = shorten_parts(base, parts)
    assert list(expand_parts(base, stored)) == parts
    assert not [part for part in stored if isinstance(part, SentPromptPart) and part in base]


def test_s13_unchanged_parts_are_one_range() -> None:
    parts = [SentPromptPart(name=str(n), tier="must", role="system", tokens=1, text="x") for n in range(9)]
    assert shorten_parts(parts, parts[2:]) == ((2, 7),)


async def test_s13_prompts_are_whole_again_after_a_bounded_number(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_prompts, "MAX_DEPTH", 3)
    room = await harness.start_chat(await harness.create_character())
    for number in range(9):
        await harness.say(room, f"Message {number}.")
    sent = [event.payload for event in await harness.store.read(room) if isinstance(event.payload, PromptSent)]
    assert [prompt.depth for prompt in sent] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert [prompt.base == 0 for prompt in sent] == [prompt.depth == 0 for prompt in sent]
    whole, difference = sent[4], sent[5]
    assert len(difference.model_dump_json()) < len(whole.model_dump_json()) / 2
    # A second reader, without what was kept in memory, finds the same base.
    kept, read = harness.story.prompts.sent_prompts.latest(room), PromptQueries(harness.store).latest(room)
    assert kept == read


async def test_s13_a_prompt_whose_base_was_purged_shows_what_is_left(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "First.")
    begun = await harness.say(room, "Second.")
    (first, second) = [event for event in await harness.store.read(room) if isinstance(event.payload, PromptSent)]
    assert second.payload.model_dump()["base"] == first.seq
    await harness.store.purge(room, first=first.seq, last=first.seq)
    parts = PromptQueries(harness.store).inspect(room, begun.reply).parts
    assert "Second." in "".join(part.text for part in parts)


def version_1(prompts: list[tuple[str, dict[str, str]]]) -> list[dict[str, Any]]:
    """Payloads as version 1 stored them: the hash of each part, and texts that were new in the chat."""
    known: set[str] = set()
    payloads = []
    for reply, texts in prompts:
        parts = [
            {"name": name, "tier": "must", "role": "system", "tokens": 1, "sha": f"sha-{text}"}
            for name, text in texts.items()
        ]
        new = {f"sha-{text}": text for text in texts.values() if text not in known}
        known |= set(texts.values())
        payloads.append({"reply": reply, "model": "m", "tokens": 2, "soft": 5, "hard": 9, "parts": parts, "texts": new})
    return payloads


async def test_s13_prompts_of_version_1_are_rewritten_without_change(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    prompts = [(f"r{n}", {"identity": "I am Mara.", "turn 1": f"Line {n // 2}.", "now": f"Now {n}."}) for n in range(6)]
    store = Store.open(path, projections=story_projections())
    for payload in version_1(prompts):
        bare = PromptSent(reply=payload["reply"], model="m", tokens=0, soft=0, hard=0, parts=())
        await store.append([NewEvent("room:a", bare)])
    await store.fork("room:a", 6, "room:b")
    text = {"identity": "I am Mara.", "turn 1": "Line 2.", "now": "In the fork."}
    await store.append([NewEvent("room:b", PromptSent(reply="r6", model="m", tokens=0, soft=0, hard=0, parts=()))])
    written = version_1([*prompts, ("r6", text)])
    store.transact(
        lambda rows: rows.many(
            "UPDATE event SET version = 1, payload = ? WHERE kind = 'prompt_sent' AND payload ->> 'reply' = ?",
            [(json.dumps(payload), payload["reply"]) for payload in written],
        )
    )
    store.transact(lambda rows: rows.run("UPDATE event_kind SET version = 1 WHERE kind = 'prompt_sent'"))
    store.close()

    store = Store.open(path, projections=story_projections())
    try:
        queries = PromptQueries(store)
        for room, reply, texts in [*(("room:a", *prompt) for prompt in prompts), ("room:b", "r6", text)]:
            inspected = queries.inspect(room, reply)
            assert {part.name: part.text for part in inspected.parts} == texts
            assert (inspected.sent.tokens, inspected.sent.hard) == (2, 9)
        assert [kind for kind in store.reader.event_kinds() if kind[0] == "prompt_sent"] == [("prompt_sent", 2)]
        (fourth,) = store.reader.events_at("room:a", Ranges([(4, 4)]))
        assert isinstance(fourth.payload, PromptSent)
        assert fourth.payload.parts[:1] == ((0, 2),)
        assert verify(store.reader, story_projections()).clean
    finally:
        store.close()
