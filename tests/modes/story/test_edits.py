from __future__ import annotations

from typing import Any

import pytest

from coterie.base.errors import CoterieError
from coterie.memory.errors import BadMemory, NoSuchMemory
from coterie.memory.memory import MAX_PINS
from coterie.modes.story.edits import EDITABLE_FIELDS, BadEdit, ChatDetails, FieldEdit
from coterie.modes.story.events import ContainerCreated, ManualEdit
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def drawer(stage: StoryHarness, room: str) -> ChatDetails:
    return stage.story.details(room)


async def edit(stage: StoryHarness, room: str, told: dict[str, Any]) -> bool:
    return await stage.story.edit(room, [FieldEdit(field=field, value=value) for field, value in told.items()])


def edits(stage: StoryHarness, room: str) -> list[ManualEdit]:
    events = stage.store.reader.read(room, kinds=[ManualEdit.kind])
    return [event.payload for event in events if isinstance(event.payload, ManualEdit)]


def values(seen: ChatDetails, bot: str, container: str, memory: str) -> dict[str, Any]:
    """Everything the drawer shows, by the field that corrects it."""
    told: dict[str, Any] = {"title": seen.title, "clock": seen.clock.isoformat()}
    told |= {"weather": seen.weather, "anchor": seen.anchor}
    place = seen.containers[container]
    told |= {f"container.{container}.{name}": getattr(place, name) for name in ("name", "type", "parent")}
    told |= {f"container.{container}.{name}": getattr(place, name) for name in ("moving", "public", "audible")}
    told["scene.container"] = seen.scene.container if seen.scene else None
    names: tuple[str, ...]
    for who in ("you", bot):
        doing = seen.activities[who]
        names = ("container", "slot", "posture", "attention", "holding", "status")
        told |= {f"activity.{who}.{name}": getattr(doing, name) for name in names}
        names = ("verb", "interruptible", "attention", "minutes")
        told |= {f"activity.{who}.action.{name}": getattr(doing.action, name) for name in names}
    for edge in seen.edges:
        names = ("affinity", "trust", "summary", "knowledge")
        told |= {f"edge.{edge.of}.{edge.toward}.{name}": getattr(edge, name) for name in names}
    kept = next((one for one in seen.characters[bot].memories if one.id == memory), None)
    if kept is not None:
        told |= {f"memory.{memory}.text": kept.text, f"memory.{memory}.significance": kept.significance}
    return told


async def test_s21_every_field_the_drawer_shows_is_edited_with_what_stood_there_and_rewound(
    stage: StoryHarness,
) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot, weather="fog", anchor="Day 1 = the storm")
    first = await stage.say(room, "Good evening.")
    await stage.say(room, "The kettle is on.")
    seen = drawer(stage, room)
    assert seen.scene is not None
    place, memory = seen.scene.container, seen.characters[bot.id].memories[-1].id
    from_elsewhere = ContainerCreated(container="cellar", name="the cellar")
    await stage.story.context.decide_and_append(room, lambda: _one(room, from_elsewhere))  # a second place, to move to
    before = values(drawer(stage, room), bot.id, place, memory)
    new: dict[str, Any] = {
        "title": "Night",
        "clock": "1899-12-31T23:00:00+00:00",
        "weather": "snow",
        "anchor": "Day 1 = the thaw",
        "scene.container": "cellar",
        f"container.{place}.name": "the lamp room",
        f"container.{place}.type": "room",
        f"container.{place}.parent": "cellar",
        f"container.{place}.moving": True,
        f"container.{place}.public": True,
        f"container.{place}.audible": "far",
        f"memory.{memory}.text": "She said good evening, at last.",
        f"memory.{memory}.significance": 2,
    }
    for who, toward in (("you", bot.id), (bot.id, "you")):
        new |= {
            f"activity.{who}.container": "cellar",
            f"activity.{who}.slot": "by the door",
            f"activity.{who}.posture": "kneeling",
            f"activity.{who}.attention": "the lock",
            f"activity.{who}.holding": ("a key", "a lamp"),
            f"activity.{who}.status": "cold",
            f"activity.{who}.action.verb": "listening",
            f"activity.{who}.action.interruptible": False,
            f"activity.{who}.action.attention": "high",
            f"activity.{who}.action.minutes": 5.0,
            f"edge.{who}.{toward}.affinity": 71,
            f"edge.{who}.{toward}.trust": 12,
            f"edge.{who}.{toward}.summary": "Old friends.",
            f"edge.{who}.{toward}.knowledge": ("Came by boat.",),
        }
    shapes = {_shape(field) for field in new}
    assert shapes == set(EDITABLE_FIELDS)  # the list is closed, and this test knows all of it
    assert set(before) == set(new)
    for field, value in new.items():
        assert await edit(stage, room, {field: value}), field
        assert values(drawer(stage, room), bot.id, place, memory)[field] == value, field
    assert values(drawer(stage, room), bot.id, place, memory) == new
    told = {one.what: one for one in edits(stage, room)}
    assert len(told) == len(new)
    assert told["weather"].prior == "fog"
    assert told[f"edge.main.you.{bot.id}.affinity"].prior == 50
    assert told[f"memory.{memory}.text"].prior == before[f"memory.{memory}.text"]
    stage.verify()

    await stage.story.rewind(room, first.reply)
    rewound = values(drawer(stage, room), bot.id, place, memory)
    once = {field: value for field, value in before.items() if field != "clock"}
    assert {field: rewound[field] for field in once} == once
    stage.verify()
    await stage.story.undo_rewind(room)
    assert values(drawer(stage, room), bot.id, place, memory) == new


async def _one(room: str, payload: ContainerCreated) -> Any:
    from coterie.eventstore import NewEvent

    return [NewEvent(room, payload)], ()


def _shape(field: str) -> str:
    match field.split("."):
        case ["container" | "memory" as what, _, *rest]:
            return ".".join([what, "ID", *rest])
        case ["activity", _, *rest]:
            return ".".join(["activity", "WHO", *rest])
        case ["edge", _, _, *rest]:
            return ".".join(["edge", "WHO", "TOWARD", *rest])
    return field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("colour", "red"),
        ("", "x"),
        ("title", "   "),
        ("title", "x" * 201),
        ("clock", "tomorrow"),
        ("clock", "9999-12-31T23:59:59"),
        ("clock", "0001-01-01T00:00:00+14:00"),
        ("clock", None),
        ("weather", ["rain"]),
        ("scene.container", "nowhere"),
        ("scene.id", "other"),
        ("container.nowhere.name", "x"),
        ("container.PLACE.audible", "miles"),
        ("container.PLACE.parent", "PLACE"),
        ("container.PLACE.parent", "nowhere"),
        ("container.PLACE.id", "x"),
        ("activity.nobody.posture", "sitting"),
        ("activity.you.mood", "good"),
        ("activity.you.container", "nowhere"),
        ("activity.you.action.attention", "extreme"),
        ("activity.you.action.minutes", -1),
        ("activity.you.holding", "a rope"),
        ("edge.you.BOT.affinity", 101),
        ("edge.you.BOT.affinity", -1),
        ("edge.you.BOT.affinity", "much"),
        ("edge.you.you.trust", 3),
        ("edge.BOT.stranger.trust", 3),
        ("edge.BOT.you.knowledge", [""]),
        ("memory.none.text", "x"),
        ("memory.MEMORY.text", "  "),
        ("memory.MEMORY.significance", 4),
        ("memory.MEMORY.owner", "somebody"),
    ],
)
async def test_s21_a_bad_value_says_what_to_do_and_changes_nothing(
    stage: StoryHarness, field: str, value: object
) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot)
    await stage.say(room, "Good evening.")
    seen = drawer(stage, room)
    assert seen.scene is not None
    real = {"PLACE": seen.scene.container, "BOT": bot.id, "MEMORY": seen.characters[bot.id].memories[0].id}
    for mark, found in real.items():
        field = field.replace(mark, found)
        value = value.replace(mark, found) if isinstance(value, str) else value
    with pytest.raises((BadEdit, NoSuchMemory)) as refused:
        await edit(stage, room, {"weather": "hail", field: value} if field != "weather" else {field: value})
    assert refused.value.fix
    assert drawer(stage, room) == seen


async def test_s21_what_is_so_already_is_no_event_and_no_field_is_told_twice(stage: StoryHarness) -> None:
    room = await stage.start_chat(await stage.create_character(), weather="fog")
    assert not await edit(stage, room, {"weather": "fog"})
    with pytest.raises(BadEdit):
        await stage.story.edit(room, [FieldEdit(field="weather", value=value) for value in ("sun", "rain")])
    assert edits(stage, room) == []


async def test_s21_an_edited_memory_is_what_is_recalled_and_the_other_line_keeps_its_own(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot)
    said = await stage.say(room, "My brother sails a green cutter.")
    fork = await stage.story.fork(room, said.reply)
    memory = next(one for one in drawer(stage, fork.room).characters[bot.id].memories if "cutter" in one.text)
    await edit(stage, fork.room, {f"memory.{memory.id}.text": "Her brother sails a violet cutter."})
    for number in range(8):
        for line in (room, fork.room):
            await stage.say(line, f"Number {number} of many other things.")
    await stage.say(fork.room, "What does my brother sail? The cutter!")
    assert "violet cutter" in script.prompt()
    await stage.say(room, "What does my brother sail? The cutter!")
    assert "green cutter" in script.prompt()
    assert "violet" not in script.prompt()


async def test_s14_s21_pins_by_hand_hold_to_eight_and_only_automatic_ones_make_room(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot)
    for number in range(6):
        await stage.say(room, f"Thing number {number}.")
    ids = [memory.id for memory in stage.memory.browse(owner=bot.id)]
    assert len(ids) > MAX_PINS + 1
    for memory in ids[: MAX_PINS - 1]:
        assert await stage.story.pin(room, memory, True)
    script.shapes["Significance"] = {"significance": 3}
    await stage.say(room, "I am your sister.")
    seen = drawer(stage, room).characters[bot.id]
    auto = [memory.id for memory in stage.memory.browse(owner=bot.id) if memory.auto_pinned]
    assert (seen.pins, seen.most_pins, len(auto)) == (MAX_PINS, MAX_PINS, 1)
    assert not await stage.story.pin(room, ids[0], True)  # it is already

    assert await stage.story.pin(room, ids[MAX_PINS], True)  # the automatic one makes room
    pinned = {memory.id for memory in stage.memory.browse(owner=bot.id) if memory.pinned}
    assert pinned == {*ids[: MAX_PINS - 1], ids[MAX_PINS]}
    with pytest.raises(BadMemory) as full:
        await stage.story.pin(room, ids[MAX_PINS + 1], True)
    assert "Unpin" in full.value.fix
    script.shapes["Significance"] = {"significance": 3}
    await stage.say(room, "And your brother too.")  # nothing that a person pinned is evicted
    assert {memory.id for memory in stage.memory.browse(owner=bot.id) if memory.pinned} == pinned

    assert await stage.story.pin(room, ids[0], False)
    assert drawer(stage, room).characters[bot.id].pins == MAX_PINS - 1


async def test_s21_pinning_an_automatic_pin_makes_it_yours(stage: StoryHarness, script: ScriptedModel) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot)
    script.shapes["Significance"] = {"significance": 3}
    await stage.say(room, "I am your sister.")
    (auto,) = (memory for memory in stage.memory.browse(owner=bot.id) if memory.pinned)
    assert auto.auto_pinned
    assert await stage.story.pin(room, auto.id, True)
    (kept,) = (memory for memory in stage.memory.browse(owner=bot.id) if memory.pinned)
    assert (kept.id, kept.auto_pinned) == (auto.id, False)


async def test_s21_a_forgotten_memory_stays_forgotten_through_a_rewind(stage: StoryHarness) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot)
    first = await stage.say(room, "I steal spoons.")
    memory = next(one for one in stage.memory.browse(owner=bot.id) if "spoons" in one.text)
    await stage.say(room, "Never mind.")
    await stage.story.forget(room, memory.id)
    await stage.story.rewind(room, first.reply)
    assert not any("spoons" in text for text in stage.memories_of(bot.id))
    with pytest.raises(CoterieError):
        await stage.story.forget(room, memory.id)
