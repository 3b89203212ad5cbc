"""The parts of prompts are stored once, and every prompt is read back exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.eventstore import NewEvent, Store, verify
from coterie.eventstore.sqlite.compression import compress
from coterie.modes.story.events import PromptSent, SentPromptPart
from coterie.modes.story.projections import story_projections
from coterie.modes.story.sent_prompts import PromptQueries
from tests.modes.story.conftest import ScriptedModel, StoryHarness

PARTS = st.lists(
    st.builds(
        SentPromptPart,
        name=st.sampled_from("abc"),
        tier=st.sampled_from(["must", "should", "nice"]),
        role=st.sampled_from(["system", "user"]),
        tokens=st.integers(0, 2),
        text=st.sampled_from(["", "x", "y", "„Grüße“\n\u2028" + "z" * 200]),
    ),
    max_size=12,
)


@given(st.lists(PARTS, max_size=5))
def test_s13_shared_parts_give_back_every_prompt(prompts: list[list[SentPromptPart]]) -> None:
    numbers: dict[str, int] = {}
    for parts in prompts:
        sent = PromptSent(reply="r", model="m", tokens=0, soft=0, hard=0, parts=tuple(parts))
        stored = sent.share_texts(lambda text: numbers.setdefault(text, 7 * len(numbers) + 1))
        assert stored.parts == ()
        assert stored.stored_parts({number: text for text, number in numbers.items()}) == parts
    assert len(numbers) == len({(p.name, p.role, p.tokens, p.text) for parts in prompts for p in parts})


async def test_s13_a_prompt_is_compressed_only_without_its_texts(
    harness: StoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed: list[str] = []

    def noted(text: str) -> str | bytes:
        compressed.append(text)
        return compress(text)

    for module in ("events", "sqlite.recorder"):
        monkeypatch.setattr(f"coterie.eventstore.{module}.compress", noted)
    part = SentPromptPart(name="identity", tier="must", role="system", tokens=9, text="Mara keeps a lighthouse. " * 20)
    sent = PromptSent(reply="r", model="m", tokens=9, soft=0, hard=0, parts=(part,))
    await harness.store.append([NewEvent("room:a", sent)])
    assert not any(part.text in text for text in compressed)
    assert PromptQueries(harness.store).inspect("room:a", "r").parts == [part]


async def test_s13_a_part_is_stored_once_for_all_chats(harness: StoryHarness, script: ScriptedModel) -> None:
    character = await harness.create_character()
    rooms = [await harness.start_chat(character) for _ in range(2)]
    for room in rooms:
        for number in range(5):
            await harness.say(room, f"Message {number} of {room}.")
    texts = harness.store.reader.shared_texts(range(1, 1_000)).values()
    assert sum("Message 1 of" in text and "user" in text for text in texts) == 2
    assert sum(text.startswith('["identity"') for text in texts) == 1


async def test_s13_purging_a_chat_removes_the_texts_of_its_prompts_only(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character = await harness.create_character()
    kept, gone = [await harness.start_chat(character) for _ in range(2)]
    await harness.say(gone, "The password is xylophone.")
    begun = await harness.say(kept, "Good morning.")
    before = PromptQueries(harness.store).inspect(kept, begun.reply)
    await harness.store.purge(gone)
    assert PromptQueries(harness.store).inspect(kept, begun.reply) == before
    remaining = set(harness.store.reader.shared_texts(range(1, 1_000)).values())
    used = harness.store.reader.shared_texts(before.sent.shared_numbers())
    assert set(used.values()) <= remaining
    prompts = [event.payload for event in await harness.store.read() if isinstance(event.payload, PromptSent)]
    assert len(remaining) == len({number for prompt in prompts for number in prompt.shared_numbers()})


async def test_s13_a_missing_shared_text_is_found_by_verify(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    begun = await harness.say(room, "Good morning.")
    harness.store.transact(lambda rows: rows.run("DELETE FROM shared_text WHERE id = 2"))
    report = verify(harness.store.reader, harness.store.projections)
    assert "shared texts that are missing: [2]" in " ".join(report.problems)
    assert PromptQueries(harness.store).inspect(room, begun.reply).parts


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
        bare = PromptSent(reply=payload["reply"], model="m", tokens=0, soft=0, hard=0)
        await store.append([NewEvent("room:a", bare)])
    await store.fork("room:a", 6, "room:b")
    text = {"identity": "I am Mara.", "turn 1": "Line 2.", "now": "In the fork."}
    await store.append([NewEvent("room:b", PromptSent(reply="r6", model="m", tokens=0, soft=0, hard=0))])
    store_payloads(store, 1, version_1([*prompts, ("r6", text)]))
    store.close()
    check_rewritten(path, [*(("room:a", *prompt) for prompt in prompts), ("room:b", "r6", text)])


async def test_s13_prompts_of_version_2_are_rewritten_without_change(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    store = Store.open(path, projections=story_projections())
    for number in range(3):
        await store.append([NewEvent("room:a", PromptSent(reply=f"r{number}", model="m", tokens=0, soft=0, hard=0))])
    for fork, parent in (("room:b", "room:a"), ("room:c", "room:b")):
        await store.fork(parent, await store.head(parent), fork)
        await store.append([NewEvent(fork, PromptSent(reply=fork, model="m", tokens=0, soft=0, hard=0))])
    store_payloads(
        store,
        2,
        [
            version_2("r0", 0, [part("identity", "I am Mara."), part("now", "Now 0.")]),
            version_2("r1", 1, [[0, 1], part("now", "Now 1.")]),
            version_2("r2", 2, [[0, 2], part("more", "And more.")]),
            version_2("room:b", 3, [[0, 1], [2, 1], part("fork", "Only here.")]),
            version_2("room:c", 5, [[1, 2]]),
        ],
    )
    store.close()
    identity, more, only_here = {"identity": "I am Mara."}, {"more": "And more."}, {"fork": "Only here."}
    check_rewritten(
        path,
        [
            ("room:a", "r0", {**identity, "now": "Now 0."}),
            ("room:a", "r1", {**identity, "now": "Now 1."}),
            ("room:a", "r2", {**identity, "now": "Now 1.", **more}),
            ("room:b", "room:b", {**identity, **more, **only_here}),
            ("room:b", "r1", {**identity, "now": "Now 1."}),
            ("room:c", "room:c", {**more, **only_here}),
        ],
    )


def part(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "tier": "must", "role": "system", "tokens": 1, "text": text}


def version_2(reply: str, base: int, parts: list[Any]) -> dict[str, Any]:
    depth = 1 if base else 0
    fields = {"reply": reply, "model": "m", "tokens": 2, "soft": 5, "hard": 9, "base": base, "depth": depth}
    return {**fields, "parts": parts}


def store_payloads(store: Store, version: int, payloads: list[dict[str, Any]]) -> None:
    """Replace the payloads of the prompts by those of an earlier version, found by their replies."""
    sql = "UPDATE log SET payload = ? WHERE id = (SELECT id FROM event WHERE payload ->> 'reply' = ?)"
    store.transact(lambda rows: rows.many(sql, [(json.dumps(payload), payload["reply"]) for payload in payloads]))
    kind = "UPDATE event_kind SET version = ? WHERE kind = 'prompt_sent'"
    store.transact(lambda rows: rows.run(kind, (version,)))


def check_rewritten(path: Path, expected: list[tuple[str, str, dict[str, str]]]) -> None:
    store = Store.open(path, projections=story_projections())
    try:
        queries = PromptQueries(store)
        for room, reply, texts in expected:
            inspected = queries.inspect(room, reply)
            assert {part.name: part.text for part in inspected.parts} == texts
            assert (inspected.sent.tokens, inspected.sent.hard) == (2, 9)
        assert [kind for kind in store.reader.event_kinds() if kind[0] == "prompt_sent"] == [("prompt_sent", 3)]
        report = verify(store.reader, story_projections())
        assert report.clean, report.problems
    finally:
        store.close()
