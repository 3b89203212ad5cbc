"""Who there is and what they feel: S1–S6."""

from __future__ import annotations

import pytest

from coterie.characters.errors import NoSuchCharacter
from coterie.characters.service import OWNER, OwnerProfile
from coterie.conversation.errors import Busy
from coterie.eventstore import NewEvent
from coterie.modes.story.events import MAIN_WORLD, Action, Activity, ActivityChange, ManualEdit, RelationshipUpdated
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s1_every_version_stays_readable_and_a_scene_keeps_the_one_it_began_with(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    changed = mara.identity.model_copy(update={"persona": "Mara left the lighthouse and sails."})
    await stage.roster.save(changed)
    assert [bot.identity.persona for bot in stage.roster.versions(mara.id)] == [
        "Mara keeps a lighthouse.",
        "Mara left the lighthouse and sails.",
    ]
    await stage.say(room, "Hello.")
    assert "keeps a lighthouse" in script.prompt()
    assert "sails" not in script.prompt()
    await stage.story.close_scene(room)
    await stage.say(room, "And now?")
    assert "sails" in script.prompt()
    assert "keeps a lighthouse" not in script.prompt()
    events = await stage.store.read(f"cast:{mara.id}")
    assert [event.kind for event in events] == ["bot_authored", "bot_authored"]


async def test_s2_you_are_one_row_that_is_told_to_characters(stage: StoryHarness, script: ScriptedModel) -> None:
    room = await stage.start_chat(await stage.create_character())
    await stage.roster.save_owner(OwnerProfile(name="Ben", pronouns="he/him", persona="A diver."))
    await stage.say(room, "Hello.")
    assert stage.store.query("SELECT count(*) FROM you") == [(1,)]
    assert "Ben (he/him) is the person you are with.\nA diver." in script.prompt()
    assert "Ana" not in script.prompt()


async def test_s3_edges_clamp_and_hold_no_fact_twice(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    fresh = stage.story.relationships.get(MAIN_WORLD, mara.id, OWNER)
    assert (fresh.affinity, fresh.trust) == (50, 50)
    update = {"of": "mara", "toward": "Ana", "affinity_delta": 99, "trust_delta": -99}
    script.shapes["StateUpdate"] = {"pairs": [{**update, "knowledge_facts": ["Ana draws", "ana  draws", "Ana swims"]}]}
    for _ in range(7):
        await stage.say(room, "Hello.")
    edge = stage.story.relationships.get(MAIN_WORLD, mara.id, OWNER)
    assert (edge.affinity, edge.trust) == (100, 0)
    assert edge.knowledge == ("Ana draws", "Ana swims")
    assert (edge.chat, edge.when is not None) == (room, True)
    directed = stage.story.relationships.get(MAIN_WORLD, OWNER, mara.id)
    assert (directed.affinity, directed.trust) == (50, 50)


async def test_s3_a_summary_is_rewritten_only_at_scene_close(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character(initial_relationship="A stranger.")
    room = await stage.start_chat(mara)
    script.shapes["SceneSummary"] = {"summary": "They talked.", "significance": 1, "relationship": "A friend by now."}
    await stage.say(room, "Hello.")
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, OWNER).summary == "A stranger."
    await stage.story.close_scene(room)
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, OWNER).summary == "A friend by now."
    assert "A stranger." in script.questions("SceneSummary")[0]


async def test_s3_a_correction_by_hand_reaches_an_edge_that_nobody_had_written_and_a_fork(stage: StoryHarness) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    begun = await stage.say(room, "Hello.")
    edit = ManualEdit(what=f"edge.{MAIN_WORLD}.you.{mara.id}.affinity", value=120, prior=50)
    await stage.store.append([NewEvent(room, edit, OWNER, turn=begun.reply)])
    assert stage.story.relationships.get(MAIN_WORLD, OWNER, mara.id).affinity == 100
    fork = await stage.story.fork(room, begun.reply)
    assert stage.story.relationships.get(fork.world, OWNER, mara.id).affinity == 100


async def test_s4_a_memory_names_its_witnesses_and_nobody_else_has_it(stage: StoryHarness) -> None:
    mara, theo = await stage.create_character(), await stage.create_character("Theo")
    room = await stage.start_chat(mara)
    await stage.story.invite(room, theo.id)
    await stage.say(room, "Everybody hears the bell.")
    await stage.say(room, "Only Mara hears the whisper.", to=[mara.id])
    heard = {m.text: m for m in stage.memory.browse(owner=mara.id)}
    bell, whisper = heard["Everybody hears the bell."], heard["Only Mara hears the whisper."]
    assert set(bell.witnesses) == {OWNER, mara.id, theo.id}
    assert (set(whisper.witnesses), whisper.private, bell.private) == ({OWNER, mara.id}, True, False)
    assert (bell.told_by, bell.room, bell.happened is not None) == (None, room, True)
    assert "Only Mara hears the whisper." not in stage.memories_of(theo.id)


async def test_s4_a_late_job_remembers_for_those_who_were_there_then(stage: StoryHarness) -> None:
    mara, theo, ida = (
        await stage.create_character(),
        await stage.create_character("Theo"),
        await stage.create_character("Ida"),
    )
    room = await stage.start_chat(mara)
    await stage.story.invite(room, theo.id)
    await stage.story.say(room, "The tide turns at nine.")
    await stage.story.replies.wait(room)
    await stage.story.remove_guest(room, theo.id)
    await stage.story.invite(room, ida.id)
    await stage.run_jobs()
    assert "The tide turns at nine." in stage.memories_of(theo.id)
    assert stage.memories_of(ida.id) == []
    assert stage.story.relationships.get(MAIN_WORLD, theo.id, OWNER).chat == room
    assert stage.story.relationships.get(MAIN_WORLD, ida.id, OWNER).chat == ""


async def test_s5_a_chat_has_a_world(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(
        mara,
        time="1890-05-04T18:30:00+02:00",
        weather="fog",
        anchor="Day 1 = the wreck",
        you=Activity(posture="standing", holding=("a map",)),
        character=Activity(action=Action(verb="trimming the wick", attention="high", minutes=5)),
    )
    chat = stage.story.chats.chat(room)
    assert (chat.clock.isoformat(), chat.weather, chat.anchor) == (
        "1890-05-04T16:30:00+00:00",
        "fog",
        "Day 1 = the wreck",
    )
    assert chat.scene is not None
    scene = stage.story.chats.scene(room, chat.scene)
    assert (scene.participants, scene.ends) == ((OWNER, mara.id), None)
    assert stage.story.chats.container_name(room, scene.container) == "the lighthouse"
    await stage.say(room, "Hello.")
    for told in ("at the lighthouse", "Day 1 = the wreck", "holding a map", "trimming the wick", "fog"):
        assert told in script.prompt()


async def test_s6_guests_come_and_go_with_memories_and_feelings_of_their_own(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await stage.create_character(), await stage.create_character("Theo")
    room = await stage.start_chat(mara)
    await stage.say(room, "Before Theo came, I hid the key.")
    await stage.story.invite(room, theo.id)
    with pytest.raises(Busy):
        await stage.story.invite(room, theo.id)
    begun = await stage.say(room, "Theo, are you there?")
    assert begun.speaker == theo.id
    assert "hid the key" not in script.prompt()
    assert "Also here: Mara." in script.prompt()
    assert stage.story.timeline.turn(room, begun.reply).speaker == theo.id
    await stage.story.remove_guest(room, theo.id)
    with pytest.raises(NoSuchCharacter):
        await stage.say(room, "Theo?", speaker=theo.id)
    assert (await stage.say(room, "Theo?")).speaker == mara.id
    assert "Theo, are you there?" in stage.memories_of(theo.id)
    await stage.story.invite(room, theo.id)
    await stage.say(room, "Welcome back.", speaker=theo.id)
    assert "Theo, are you there?" in script.prompt()
    assert "Theo?" not in script.prompt().replace("Theo, are you there?", "")


async def test_s6_who_speaks_is_addressed_or_attentive_or_talkative_or_picked(stage: StoryHarness) -> None:
    mara, theo = (
        await stage.create_character(traits=["patient"]),
        await stage.create_character("Theo", traits=["talkative"]),
    )
    room = await stage.start_chat(mara)
    await stage.story.invite(room, theo.id)
    assert (await stage.say(room, "Mara, what now?")).speaker == mara.id
    assert (await stage.say(room, "Anybody?")).speaker == theo.id
    assert (await stage.say(room, "Anybody?", speaker="mara")).speaker == mara.id
    busy = Activity(action=Action(verb="repairing the lamp", attention="high"))
    await stage.store.append([NewEvent(room, ActivityChange(entity=theo.id, activity=busy), OWNER)])
    assert (await stage.say(room, "Anybody?")).speaker == mara.id
    assert (await stage.say(room, "A word for you alone.", to=["theo"])).speaker == theo.id
    with pytest.raises(NoSuchCharacter, match="cannot hear"):
        await stage.say(room, "A word for Theo.", to=["theo"], speaker="mara")


def test_s3_an_update_never_leaves_the_scale() -> None:
    with pytest.raises(ValueError, match="less than or equal to 100"):
        RelationshipUpdated(world=MAIN_WORLD, of="a", toward="b", affinity_delta=101)
