from __future__ import annotations

from typing import Any

import pytest

from coterie.base.errors import CoterieError
from coterie.memory.errors import BadMemory, NoSuchMemory
from coterie.memory.memory import MAX_PINS
from coterie.modes.story.edits import EDITABLE_FIELDS, BadEdit, ChatDetails, FieldEdit
from coterie.modes.story.events import ContainerCreated, ManualEdit
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def details(harness: StoryHarness, room: str) -> ChatDetails:
    return harness.story.details(room)


async def edit(harness: StoryHarness, room: str, fields: dict[str, Any]) -> bool:
    return await harness.story.edit(room, [FieldEdit(field=field, value=value) for field, value in fields.items()])


def edits(harness: StoryHarness, room: str) -> list[ManualEdit]:
    events = harness.store.reader.read(room, kinds=[ManualEdit.kind])
    return [event.payload for event in events if isinstance(event.payload, ManualEdit)]


def values(seen: ChatDetails, character: str, container: str, memory: str) -> dict[str, Any]:
    """All details, by the field that edits them."""
    fields: dict[str, Any] = {"title": seen.title, "clock": seen.clock.isoformat()}
    fields |= {"weather": seen.weather, "anchor": seen.anchor}
    fields |= {"reply_order": seen.reply_order, "muted": seen.muted}
    place = seen.containers[container]
    fields |= {f"container.{container}.{name}": getattr(place, name) for name in ("name", "type", "parent")}
    fields |= {
        f"container.{container}.{name}": getattr(place, name) for name in ("moving", "public", "audible", "background")
    }
    fields["scene.container"] = seen.scene.container if seen.scene else None
    names: tuple[str, ...]
    for who in ("you", character):
        doing = seen.activities[who]
        names = ("container", "slot", "posture", "attention", "holding", "status")
        fields |= {f"activity.{who}.{name}": getattr(doing, name) for name in names}
        names = ("verb", "interruptible", "attention", "minutes")
        fields |= {f"activity.{who}.action.{name}": getattr(doing.action, name) for name in names}
    for one in seen.edges:
        names = ("affinity", "trust", "summary", "knowledge")
        fields |= {f"edge.{one.of}.{one.toward}.{name}": getattr(one, name) for name in names}
    kept = next((one for one in seen.characters[character].memories if one.id == memory), None)
    if kept is not None:
        fields |= {f"memory.{memory}.text": kept.text, f"memory.{memory}.significance": kept.significance}
    return fields


async def test_s21_every_field_is_editable_records_the_prior_value_and_is_rewound(
    harness: StoryHarness,
) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character, weather="fog", anchor="Day 1 = the storm")
    first = await harness.say(room, "Good evening.")
    await harness.say(room, "The kettle is on.")
    seen = details(harness, room)
    assert seen.scene is not None
    place, memory = seen.scene.container, seen.characters[character.id].memories[-1].id
    cellar = ContainerCreated(container="cellar", name="the cellar")
    await harness.story.context.decide_and_append(room, lambda: _one(room, cellar))  # a second place, to move to
    before = values(details(harness, room), character.id, place, memory)
    new: dict[str, Any] = {
        "title": "Night",
        "clock": "1899-12-31T23:00:00+00:00",
        "weather": "snow",
        "anchor": "Day 1 = the thaw",
        "reply_order": "in turn",
        "muted": [character.id],
        "scene.container": "cellar",
        f"container.{place}.name": "the lamp room",
        f"container.{place}.type": "room",
        f"container.{place}.parent": "cellar",
        f"container.{place}.moving": True,
        f"container.{place}.public": True,
        f"container.{place}.audible": "far",
        f"container.{place}.background": harness.pictures.save(b"\x89PNG\r\n\x1a\n"),
        f"memory.{memory}.text": "She said good evening, at last.",
        f"memory.{memory}.significance": 2,
    }
    for who, toward in (("you", character.id), (character.id, "you")):
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
    # This test covers every editable field; scene.place, which adds a place, has its own.
    assert shapes | {"scene.place"} == set(EDITABLE_FIELDS)
    assert set(before) == set(new)
    for field, value in new.items():
        assert await edit(harness, room, {field: value}), field
        assert values(details(harness, room), character.id, place, memory)[field] == value, field
    assert values(details(harness, room), character.id, place, memory) == new
    recorded = {one.what: one for one in edits(harness, room)}
    assert len(recorded) == len(new)
    assert recorded["weather"].prior == "fog"
    assert recorded[f"edge.main.you.{character.id}.affinity"].prior == 50
    assert recorded[f"memory.{memory}.text"].prior == before[f"memory.{memory}.text"]
    harness.verify()

    await harness.story.rewind(room, first.reply)
    rewound = values(details(harness, room), character.id, place, memory)
    once = {field: value for field, value in before.items() if field != "clock"}
    assert {field: rewound[field] for field in once} == once
    harness.verify()
    await harness.story.undo_rewind(room)
    assert values(details(harness, room), character.id, place, memory) == new


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
async def test_s21_a_bad_value_is_explained_and_changes_nothing(
    harness: StoryHarness, field: str, value: object
) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    await harness.say(room, "Good evening.")
    seen = details(harness, room)
    assert seen.scene is not None
    real = {"PLACE": seen.scene.container, "BOT": character.id, "MEMORY": seen.characters[character.id].memories[0].id}
    for mark, found in real.items():
        field = field.replace(mark, found)
        value = value.replace(mark, found) if isinstance(value, str) else value
    with pytest.raises((BadEdit, NoSuchMemory)) as refused:
        await edit(harness, room, {"weather": "hail", field: value} if field != "weather" else {field: value})
    assert refused.value.fix
    assert details(harness, room) == seen


async def test_s21_an_unchanged_value_is_no_event_and_no_field_is_edited_twice_at_once(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character(), weather="fog")
    assert not await edit(harness, room, {"weather": "fog"})
    with pytest.raises(BadEdit):
        await harness.story.edit(room, [FieldEdit(field="weather", value=value) for value in ("sun", "rain")])
    assert edits(harness, room) == []


async def test_s21_an_edited_memory_is_recalled_and_a_fork_keeps_its_own(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    said = await harness.say(room, "My brother sails a green cutter.")
    fork = await harness.story.fork(room, said.reply)
    memory = next(one for one in details(harness, fork.room).characters[character.id].memories if "cutter" in one.text)
    await edit(harness, fork.room, {f"memory.{memory.id}.text": "Her brother sails a violet cutter."})
    for number in range(8):
        for each in (room, fork.room):
            await harness.say(each, f"Number {number} of many other things.")
    await harness.say(fork.room, "What does my brother sail? The cutter!")
    assert "violet cutter" in script.prompt()
    await harness.say(room, "What does my brother sail? The cutter!")
    assert "green cutter" in script.prompt()
    assert "violet" not in script.prompt()


async def test_s14_s21_at_most_eight_pins_and_only_automatic_ones_are_replaced(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    for number in range(6):
        await harness.say(room, f"Thing number {number}.")
    ids = [memory.id for memory in harness.memory.browse(owner=character.id)]
    assert len(ids) > MAX_PINS + 1
    for memory in ids[: MAX_PINS - 1]:
        assert await harness.story.pin(room, memory, True)
    script.shapes["TurnAnalysis"] = {"significance": 3}
    await harness.say(room, "I am your sister.")
    seen = details(harness, room).characters[character.id]
    auto = [memory.id for memory in harness.memory.browse(owner=character.id) if memory.auto_pinned]
    assert (seen.pins, seen.most_pins, len(auto)) == (MAX_PINS, MAX_PINS, 1)
    assert not await harness.story.pin(room, ids[0], True)  # it is pinned already

    assert await harness.story.pin(room, ids[MAX_PINS], True)  # replaces the automatic one
    pinned = {memory.id for memory in harness.memory.browse(owner=character.id) if memory.pinned}
    assert pinned == {*ids[: MAX_PINS - 1], ids[MAX_PINS]}
    with pytest.raises(BadMemory) as full:
        await harness.story.pin(room, ids[MAX_PINS + 1], True)
    assert "Unpin" in full.value.fix
    script.shapes["TurnAnalysis"] = {"significance": 3}
    await harness.say(room, "And your brother too.")  # a manual pin is not replaced
    assert {memory.id for memory in harness.memory.browse(owner=character.id) if memory.pinned} == pinned

    assert await harness.story.pin(room, ids[0], False)
    assert details(harness, room).characters[character.id].pins == MAX_PINS - 1


async def test_s21_pinning_an_automatic_pin_makes_it_manual(harness: StoryHarness, script: ScriptedModel) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    script.shapes["TurnAnalysis"] = {"significance": 3}
    await harness.say(room, "I am your sister.")
    (auto,) = (memory for memory in harness.memory.browse(owner=character.id) if memory.pinned)
    assert auto.auto_pinned
    assert await harness.story.pin(room, auto.id, True)
    (kept,) = (memory for memory in harness.memory.browse(owner=character.id) if memory.pinned)
    assert (kept.id, kept.auto_pinned) == (auto.id, False)


async def test_s21_a_forgotten_memory_stays_forgotten_through_a_rewind(harness: StoryHarness) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    first = await harness.say(room, "I steal spoons.")
    memory = next(one for one in harness.memory.browse(owner=character.id) if "spoons" in one.text)
    await harness.say(room, "Never mind.")
    await harness.story.forget(room, memory.id)
    await harness.story.rewind(room, first.reply)
    assert not any("spoons" in text for text in harness.memories_of(character.id))
    with pytest.raises(CoterieError):
        await harness.story.forget(room, memory.id)
