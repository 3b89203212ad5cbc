"""Characters, people, relationships, memories and guests of a chat."""

from __future__ import annotations

import pytest

from coterie.characters.errors import NoSuchCharacter
from coterie.characters.service import OWNER, OwnerProfile
from coterie.conversation.errors import Busy
from coterie.eventstore import NewEvent
from coterie.modes.story.events import MAIN_WORLD, Action, Activity, ActivityChange, ManualEdit, RelationshipUpdated
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s1_every_version_stays_readable_and_a_scene_keeps_its_own(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    changed = mara.identity.model_copy(update={"persona": "Mara left the lighthouse and sails."})
    await harness.characters.save(changed)
    assert [character.identity.persona for character in harness.characters.versions(mara.id)] == [
        "Mara keeps a lighthouse.",
        "Mara left the lighthouse and sails.",
    ]
    await harness.say(room, "Hello.")
    assert "keeps a lighthouse" in script.prompt()
    assert "sails" not in script.prompt()
    await harness.story.close_scene(room)
    await harness.say(room, "And now?")
    assert "sails" in script.prompt()
    assert "keeps a lighthouse" not in script.prompt()
    events = await harness.store.read(f"cast:{mara.id}")
    assert [event.kind for event in events] == ["bot_authored", "bot_authored"]


async def test_s2_characters_get_the_owners_profile(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.characters.save_owner(OwnerProfile(name="Ben", pronouns="he/him", persona="A diver."))
    await harness.say(room, "Hello.")
    assert harness.store.query("SELECT count(*) FROM owner") == [(1,)]
    assert "Ben (he/him) is the person you are with.\nA diver." in script.prompt()
    assert "Ana" not in script.prompt()


async def test_s3_relationship_levels_are_clamped_and_facts_are_unique(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    fresh = harness.story.relationships.get(MAIN_WORLD, mara.id, OWNER)
    assert (fresh.affinity, fresh.trust) == (50, 50)
    update = {"of": "mara", "toward": "Ana", "affinity_delta": 99, "trust_delta": -99}
    script.shapes["TurnAnalysis"] = {"pairs": [{**update, "knowledge_facts": ["Ana draws", "ana  draws", "Ana swims"]}]}
    for _ in range(7):
        await harness.say(room, "Hello.")
    relationship = harness.story.relationships.get(MAIN_WORLD, mara.id, OWNER)
    assert (relationship.affinity, relationship.trust) == (100, 0)
    assert relationship.knowledge == ("Ana draws", "Ana swims")
    assert (relationship.chat, relationship.when is not None) == (room, True)
    directed = harness.story.relationships.get(MAIN_WORLD, OWNER, mara.id)
    assert (directed.affinity, directed.trust) == (50, 50)


async def test_s3_a_relationship_summary_is_rewritten_only_when_a_scene_closes(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character(initial_relationship="A stranger.")
    room = await harness.start_chat(mara)
    script.shapes["SceneSummary"] = {"summary": "They talked.", "significance": 1, "relationship": "A friend by now."}
    await harness.say(room, "Hello.")
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, OWNER).summary == "A stranger."
    await harness.story.close_scene(room)
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, OWNER).summary == "A friend by now."
    assert "A stranger." in script.questions("SceneSummary")[0]


async def test_s3_a_manual_edit_creates_a_missing_relationship_also_in_a_fork(harness: StoryHarness) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    begun = await harness.say(room, "Hello.")
    edit = ManualEdit(what=f"edge.{MAIN_WORLD}.you.{mara.id}.affinity", value=120, prior=50)
    await harness.store.append([NewEvent(room, edit, OWNER, turn=begun.reply)])
    assert harness.story.relationships.get(MAIN_WORLD, OWNER, mara.id).affinity == 100
    fork = await harness.story.fork(room, begun.reply)
    assert harness.story.relationships.get(fork.world, OWNER, mara.id).affinity == 100


async def test_s4_a_memory_lists_its_witnesses_and_only_they_have_it(harness: StoryHarness) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    await harness.say(room, "Everybody hears the bell.")
    await harness.say(room, "Only Mara hears the whisper.", to=[mara.id])
    memories = {m.text: m for m in harness.memory.browse(owner=mara.id)}
    bell, whisper = memories["Everybody hears the bell."], memories["Only Mara hears the whisper."]
    assert set(bell.witnesses) == {OWNER, mara.id, theo.id}
    assert (set(whisper.witnesses), whisper.private, bell.private) == ({OWNER, mara.id}, True, False)
    assert (bell.told_by, bell.room, bell.happened is not None) == (None, room, True)
    assert "Only Mara hears the whisper." not in harness.memories_of(theo.id)


async def test_s4_a_late_job_creates_memories_for_those_present_at_the_time(harness: StoryHarness) -> None:
    mara, theo, ida = (
        await harness.create_character(),
        await harness.create_character("Theo"),
        await harness.create_character("Ida"),
    )
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    await harness.story.send_message(room, "The tide turns at nine.")
    await harness.story.replies.wait(room)
    await harness.story.remove_guest(room, theo.id)
    await harness.story.invite(room, ida.id)
    await harness.run_jobs()
    assert "The tide turns at nine." in harness.memories_of(theo.id)
    assert harness.memories_of(ida.id) == []
    assert harness.story.relationships.get(MAIN_WORLD, theo.id, OWNER).chat == room
    assert harness.story.relationships.get(MAIN_WORLD, ida.id, OWNER).chat == ""


async def test_s5_a_chat_has_a_world(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(
        mara,
        time="1890-05-04T18:30:00+02:00",
        weather="fog",
        anchor="Day 1 = the wreck",
        you=Activity(posture="standing", holding=("a map",)),
        character=Activity(action=Action(verb="trimming the wick", attention="high", minutes=5)),
    )
    chat = harness.story.chats.chat(room)
    assert (chat.clock.isoformat(), chat.weather, chat.anchor) == (
        "1890-05-04T16:30:00+00:00",
        "fog",
        "Day 1 = the wreck",
    )
    assert chat.scene is not None
    scene = harness.story.chats.scene(room, chat.scene)
    assert (scene.participants, scene.ends) == ((OWNER, mara.id), None)
    assert harness.story.chats.container_name(room, scene.container) == "the lighthouse"
    await harness.say(room, "Hello.")
    for text in ("at the lighthouse", "Day 1 = the wreck", "holding a map", "trimming the wick", "fog"):
        assert text in script.prompt()


async def test_s6_guests_join_and_leave_with_their_own_memories_and_relationships(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.say(room, "Before Theo came, I hid the key.")
    await harness.story.invite(room, theo.id)
    with pytest.raises(Busy):
        await harness.story.invite(room, theo.id)
    begun = await harness.say(room, "Theo, are you there?")
    assert begun.speaker == theo.id
    assert "hid the key" not in script.prompt()
    assert "Also here: Mara." in script.prompt()
    assert harness.story.timeline.turn(room, begun.reply).speaker == theo.id
    await harness.story.remove_guest(room, theo.id)
    with pytest.raises(NoSuchCharacter):
        await harness.say(room, "Theo?", speaker=theo.id)
    assert (await harness.say(room, "Theo?")).speaker == mara.id
    assert "Theo, are you there?" in harness.memories_of(theo.id)
    await harness.story.invite(room, theo.id)
    await harness.say(room, "Welcome back.", speaker=theo.id)
    assert "Theo, are you there?" in script.prompt()
    assert "Theo?" not in script.prompt().replace("Theo, are you there?", "")


async def test_s6_the_speaker_is_addressed_attentive_talkative_or_chosen(harness: StoryHarness) -> None:
    mara, theo = (
        await harness.create_character(traits=["patient"]),
        await harness.create_character("Theo", traits=["talkative"]),
    )
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    assert (await harness.say(room, "Mara, what now?")).speaker == mara.id
    assert (await harness.say(room, "Anybody?")).speaker == theo.id
    assert (await harness.say(room, "Anybody?", speaker="mara")).speaker == mara.id
    busy = Activity(action=Action(verb="repairing the lamp", attention="high"))
    await harness.store.append([NewEvent(room, ActivityChange(entity=theo.id, activity=busy), OWNER)])
    assert (await harness.say(room, "Anybody?")).speaker == mara.id
    assert (await harness.say(room, "A word for you alone.", to=["theo"])).speaker == theo.id
    with pytest.raises(NoSuchCharacter, match="not addressed to Mara"):
        await harness.say(room, "A word for Theo.", to=["theo"], speaker="mara")


def test_s3_an_update_keeps_levels_within_the_scale() -> None:
    with pytest.raises(ValueError, match="less than or equal to 100"):
        RelationshipUpdated(world=MAIN_WORLD, of="a", toward="b", affinity_delta=101)
