"""Jobs after a reply, and closing a scene."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from coterie.characters.service import OWNER
from coterie.eventstore.worker import Worker
from coterie.llm.recording import RecordedCall
from coterie.memory.memory import MAX_PINS
from coterie.modes.story.events import MAIN_WORLD, PromptSent
from coterie.modes.story.sent_prompts import PromptQueries
from tests.modes.story.conftest import ScriptedModel, StoryHarness

KINDS = ("memory_added", "edge_update", "clock_moved", "activity_change")


def derived(harness: StoryHarness, reply: str) -> list[str]:
    marks = ", ".join("?" * len(KINDS))
    rows = harness.store.query(
        f"SELECT kind FROM event WHERE turn = ? AND kind IN ({marks}) ORDER BY kind", (reply, *KINDS)
    )
    return [kind for (kind,) in rows]


async def test_s14_a_crash_between_turn_and_jobs_loses_and_repeats_no_job(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    script.shapes["TurnAnalysis"] = {"minutes": 5, "significance": 2}
    room = await harness.start_chat(await harness.create_character())
    begun = await harness.story.send_message(room, "Hello.")
    await harness.story.replies.wait(room)
    assert derived(harness, begun.reply) == []
    # The process ends while every job is leased, and restarts when the leases have expired.
    await harness.store.jobs.lease(list(harness.story.handlers()), holder="dead", limit=10, seconds=30)
    harness.store.close()
    harness.open()
    await harness.run_jobs()
    assert derived(harness, begun.reply) == []
    harness.clock.advance(31)
    await harness.run_jobs()
    once = ["clock_moved", "edge_update", "memory_added", "memory_added"]
    assert derived(harness, begun.reply) == once
    harness.store.close()
    harness.open()
    await harness.run_jobs()
    assert derived(harness, begun.reply) == once


async def test_s14_two_workers_record_one_job_once(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    begun = await harness.story.send_message(room, "Hello.")
    await harness.story.replies.wait(room)
    slow = await harness.store.jobs.lease(["story_memory"], holder="slow", seconds=1)
    outcome = await harness.story.handlers()["story_memory"](slow[0])
    harness.clock.advance(2)
    await harness.run_jobs()
    with pytest.raises(Exception, match="no longer held"):
        await harness.store.jobs.complete(slow[0], outcome.new_events if outcome else ())
    assert derived(harness, begun.reply).count("memory_added") == 2


async def test_s14_relationships_of_silent_witnesses_change_too(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    script.shapes["TurnAnalysis"] = {
        "pairs": [
            {"of": "Theo", "toward": "Ana", "affinity_delta": -4},
            {"of": "Theo", "toward": "Mara", "trust_delta": 3},
            {"of": "Ana", "toward": "Theo", "affinity_delta": 9},
            {"of": "Nobody", "toward": "Ana", "affinity_delta": 9},
        ]
    }
    await harness.say(room, "Mara, I prefer your company.")
    relationships = {(e.of, e.toward): (e.affinity, e.trust) for e in harness.story.relationships.in_world(MAIN_WORLD)}
    assert relationships[theo.id, OWNER] == (46, 50)
    assert relationships[theo.id, mara.id] == (50, 53)
    assert (OWNER, theo.id) not in relationships  # relationships of people are not inferred


async def test_s14_life_changing_memories_are_pinned_up_to_eight_and_manual_pins_stay(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    await harness.say(room, "This I pin by hand.")
    by_hand = next(m.id for m in harness.memory.browse(owner=mara.id) if m.text == "This I pin by hand.")
    harness.memory.pin(by_hand)
    script.shapes["TurnAnalysis"] = {"significance": 3}
    for number in range(MAX_PINS + 3):
        harness.clock.advance(60)
        await harness.say(room, f"Moment {number}.")
        pinned = [m for m in harness.memory.browse(owner=mara.id) if m.pinned]
        assert len(pinned) <= MAX_PINS
        assert by_hand in {m.id for m in pinned}
    automatic = [m.text for m in pinned if m.auto_pinned]
    assert automatic == [f"Reply number {number}." for number in range(6, 13)]
    await harness.say(room, "What do you never forget?")
    assert script.prompt().count("You will never forget:") == MAX_PINS


async def test_s14_trivial_memories_are_not_recalled(harness: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["TurnAnalysis"] = {"significance": 0}
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    await harness.say(room, "The zinnias are red.")
    assert not harness.memory.recall("zinnias", owner=mara.id, room=room, present={OWNER})
    assert "The zinnias are red." in harness.memories_of(mara.id)


@pytest.mark.parametrize(
    ("said", "moved"),
    [("Hello.", timedelta(minutes=7)), ("The next morning, we wake.", timedelta(hours=8))],
)
async def test_s14_the_clock_moves_as_the_text_implies(
    harness: StoryHarness, script: ScriptedModel, said: str, moved: timedelta
) -> None:
    script.shapes["TurnAnalysis"] = {"minutes": 7}
    room = await harness.start_chat(await harness.create_character(), time="2024-01-01T00:00:00Z")
    before = harness.story.chats.chat(room).clock
    await harness.say(room, said)
    assert harness.story.chats.chat(room).clock - before == moved


async def test_s14_clock_jobs_add_up_in_any_order(harness: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["TurnAnalysis"] = {"minutes": 7}
    room = await harness.start_chat(await harness.create_character())
    before = harness.story.chats.chat(room).clock
    for text in ("One.", "Two."):
        await harness.story.send_message(room, text)
        await harness.story.replies.wait(room)
    await harness.run_jobs()
    assert harness.story.chats.chat(room).clock - before == timedelta(minutes=14)


@pytest.mark.parametrize(
    ("said", "check", "closes"),
    [
        ("We're done here.", {}, True),
        ("Several hours later, we meet again.", {}, True),
        ("We walk to the harbour.", {}, True),
        ("Off we go, to the harbour.", {"scene_end": "place", "evidence": "Off we go", "place": "harbour"}, True),
        ("Off we go, to the harbour.", {"scene_end": "place", "evidence": "They left", "place": "harbour"}, False),
        ("Just talking.", {"scene_end": ""}, False),
        ("She stands at the end of the pier.", {}, False),
        ("I told him that the next morning was fine.", {}, False),
    ],
)
async def test_s14_s15_an_unambiguous_phrase_closes_the_scene_and_opens_the_next(
    harness: StoryHarness, script: ScriptedModel, said: str, check: dict[str, object], closes: bool
) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "Hello.")
    first = harness.story.chats.chat(room).scene
    assert first is not None
    script.shapes["TurnAnalysis"] = check
    await harness.say(room, said)
    now = harness.story.chats.chat(room).scene
    assert now is not None
    assert (now != first) == closes
    assert (harness.story.chats.scene(room, first).ends is not None) == closes
    # Another reply supersedes the closing, and may close the scene again.
    await harness.regenerate(room)
    assert (harness.story.chats.chat(room).scene != first) == closes
    assert harness.store.query("SELECT count(*) FROM scene WHERE room = ?", (room,)) == [(1 + closes,)]


async def test_s15_each_witness_gets_its_own_summary_of_what_it_saw(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.say(room, "The key is under the stone.")
    await harness.story.invite(room, theo.id)
    await harness.say(room, "Welcome, everybody.")
    await harness.say(room, "Not a word to Theo.", to=[mara.id])
    script.shapes["SceneSummary"] = {"summary": "A quiet evening.", "significance": 2, "relationship": "Kind."}
    await harness.story.close_scene(room)
    asked = script.questions("SceneSummary")
    assert len(asked) == 2
    for_mara, for_theo = sorted(asked, key=lambda text: "as Theo" in text)
    assert "The key is under the stone." in for_mara
    assert "The key is under the stone." not in for_theo
    assert "Welcome, everybody." in for_theo
    assert not [text for text in asked if "Not a word" in text]
    for character in (mara, theo):
        summary = next(m for m in harness.memory.browse(owner=character.id) if m.text == "A quiet evening.")
        assert (summary.significance, summary.type, summary.pinned) == (2, "event", False)
        assert harness.story.relationships.get(MAIN_WORLD, character.id, OWNER).summary == "Kind."


@pytest.mark.parametrize(("significance", "recalled", "pinned"), [(0, False, False), (1, True, False), (3, True, True)])
async def test_s15_significance_decides_promotion(
    harness: StoryHarness, script: ScriptedModel, significance: int, recalled: bool, pinned: bool
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    await harness.say(room, "Hello.")
    script.shapes["SceneSummary"] = {"summary": "The great gale of that winter.", "significance": significance}
    await harness.story.close_scene(room)
    found = harness.memory.recall("the great gale", owner=mara.id, room=room, present={OWNER})
    assert ("The great gale of that winter." in [one.text for one in found]) == recalled
    record = next(m for m in harness.memory.browse(owner=mara.id) if m.text.startswith("The great gale"))
    assert (record.pinned, record.auto_pinned) == (pinned, pinned)


async def test_s15_a_compactor_that_fails_still_closes_the_scene(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    await harness.say(room, "Hello.")
    script.shapes["SceneSummary"] = RecordedCall(say="I can't do that.")
    await harness.story.close_scene(room)
    summary = harness.story.chats.scene_summaries(room, mara.id)[0]
    assert "Hello." in summary
    assert "Reply number 1." in summary


async def test_s16_the_k_that_was_used_and_why_is_visible_per_turn(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    earlier, room = await harness.start_chat(mara), await harness.start_chat(mara)
    for number in range(20):
        await harness.say(earlier, f"The {number}th ship carried amber and salt.")
    begun = await harness.say(room, "Which ship carried amber?")
    inspected = PromptQueries(harness.store).inspect(room, begun.reply)
    recalled = [part.name.removeprefix("memory ") for part in inspected.parts if part.name.startswith("memory ")]
    assert len(recalled) == harness.settings.retrieval_k == 4
    assert set(recalled) == set(inspected.sent.recalled)
    for parts in inspected.sent.recalled.values():
        assert {"recency", "significance", "pins"} <= set(parts)
    texts = {part.name: part.text for part in inspected.parts}
    assert all(texts[f"memory {memory}"] in script.prompt() for memory in recalled)
    used = [e for e in await harness.store.read(room, kinds=["memory_used"]) if e.turn == begun.reply]
    assert used[0].payload.model_dump()["ids"] == tuple(recalled)
    assert isinstance(inspected.sent, PromptSent)


async def test_s14_jobs_of_one_chat_run_one_after_the_other(harness: StoryHarness) -> None:
    assert isinstance(harness.worker, Worker)
    room = await harness.start_chat(await harness.create_character())
    for text in ("Hello.", "And?"):
        await harness.story.send_message(room, text)
        await harness.story.replies.wait(room)
    await harness.worker._lease_due()
    assert len(harness.worker._running) > 1
    while harness.worker._running:
        await asyncio.wait(harness.worker._running)
        await asyncio.sleep(0)
    await harness.run_jobs()
    states = {state for (state,) in harness.store.query("SELECT state FROM job")}
    assert states == {"done"}


@pytest.mark.parametrize(
    ("answer", "failure"), [("I would rather not.", "not_json"), ('{"pairs": "none"}', "not_the_schema")]
)
async def test_s14_an_exchange_without_an_analysis_is_known_and_analysed_again(
    harness: StoryHarness, script: ScriptedModel, answer: str, failure: str
) -> None:
    room = await harness.start_chat(character := await harness.create_character())
    script.shapes["TurnAnalysis"] = RecordedCall(say=answer)
    failed = await harness.say(room, "My brother died last winter.")
    assert harness.story.chats.failed_analyses(room) == {failed.reply: failure}
    words = [memory.text for memory in harness.memory.browse(owner=character.id)]
    assert words, "the exact words are kept in any case"

    await harness.story.analyse_again(room, failed.reply)
    await harness.run_jobs()
    assert harness.story.chats.failed_analyses(room) == {failed.reply: failure}  # it failed again

    pair = {"of": character.name, "toward": "Ana", "trust_delta": 4, "knowledge_facts": ["Ana's brother died."]}
    fact = {"text": "Ana's brother died last winter."}
    script.shapes["TurnAnalysis"] = {"pairs": [pair], "significance": 3, "memories": [fact]}
    await harness.story.analyse_again(room, failed.reply)
    await harness.run_jobs()
    assert harness.story.chats.failed_analyses(room) == {}
    texts = [memory.text for memory in harness.memory.browse(owner=character.id)]
    assert sorted(texts) == sorted([*words, fact["text"]])  # nothing twice
    edge = harness.story.relationships.get(harness.story.chats.chat(room).world, character.id, OWNER)
    assert (edge.trust, edge.knowledge) == (54, ("Ana's brother died.",))
    harness.verify()


async def test_s14_a_regenerated_or_rewound_reply_takes_its_failed_analysis_along(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room = await harness.start_chat(await harness.create_character())
    first = await harness.say(room, "Hello.")
    script.shapes["TurnAnalysis"] = RecordedCall(say="No.")
    await harness.say(room, "Are you there?")
    assert harness.story.chats.failed_analyses(room)
    await harness.story.rewind(room, first.reply)
    assert harness.story.chats.failed_analyses(room) == {}
    harness.verify()
