"""C5: fifty personas and three rooms ship, each file is valid, the owner's files take precedence, edits apply live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.characters.identity import Identity
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.generation import LineRules, _is_near_copy, _word_pairs
from coterie.modes.crowd.personas import Persona, character_from_persona, memory_owner, persona_from_character
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs, persona_problems

CONFIGS = CrowdConfigs()
PERSONAS = CONFIGS.personas()
PERSONA = "name = 'odd'\nbio = 'Somebody who is only here for the tests.'\nvoice = 'few words and plain'\n"
SITUATIONS = {"hype", "fail", "question", "topic", "mention", "reply", "idle"}


def test_c5_fifty_personas_and_three_rooms_ship() -> None:
    assert len(PERSONAS) == 50
    assert set(CONFIGS.rooms()) == {"late-shift", "speedrun-lab", "kitchen-radio"}
    assert len(CONFIGS.personas_in(CONFIGS.room("late-shift"))) == 50


@pytest.mark.parametrize("name", PERSONAS)
def test_c5_shipped_lines_pass_moderation_and_line_rules(name: str) -> None:
    persona = PERSONAS[name]
    assert set(persona.lines) == SITUATIONS
    assert len(persona.interests) >= 4
    moderator = CONFIGS.moderator(CONFIGS.room("kitchen-radio"))
    for line in (line for lines in persona.lines.values() for line in lines):
        text = line.format(topic="soup", name="ana", emote=persona.emotes[0])
        assert moderator.check(text, strict=True).findings == (), text
        assert LineRules(180).refusal_reason(LineRules(180).clean(text, name)) == "", text
        assert len(text) <= 140


def test_c5_personas_have_different_lines() -> None:
    lines = [
        (name, _word_pairs(line))
        for name, persona in PERSONAS.items()
        for lines_of_situation in persona.lines.values()
        for line in lines_of_situation
    ]
    copies = [
        (one, other)
        for at, (one, mine) in enumerate(lines)
        for other, theirs in lines[at + 1 :]
        if _is_near_copy(mine, theirs) and one != other
    ]
    assert copies == []
    assert len({persona.colour for persona in PERSONAS.values()}) >= 45
    assert len({persona.bio for persona in PERSONAS.values()}) == 50


def test_c5_traits_span_the_range() -> None:
    for trait in ("talkativeness", "meme_level", "helpfulness", "contrarian", "warmth"):
        values = [getattr(persona.traits, trait) for persona in PERSONAS.values()]
        assert max(values) - min(values) >= 0.4, trait


def test_c5_own_files_take_precedence_and_edits_apply(tmp_path: Path) -> None:
    (tmp_path / "personas").mkdir()
    file = tmp_path / "personas" / "tuba_dad.toml"
    text = (SHIPPED_CONFIGS / "personas" / "tuba_dad.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("meme_level = 0.6", "meme_level = 0.9"), encoding="utf-8")
    configs = CrowdConfigs([tmp_path])
    assert configs.personas()["tuba_dad"].traits.meme_level == 0.9
    assert configs.personas()["tuba_dad"] is configs.personas()["tuba_dad"]
    file.write_text(text.replace("meme_level = 0.6", "meme_level = 0.1"), encoding="utf-8")
    os.utime(file, ns=(1, 1))
    assert configs.personas()["tuba_dad"].traits.meme_level == 0.1
    assert len(configs.personas()) == 50


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = 'other'\nbio = 'x'", "bio"),
        ("nmae = 'x'", "name"),
        ("= 3", "TOML"),
        (PERSONA + "sleep = '25-99'", r"personas/odd.toml: sleep .*00 to 24.*25-99"),
        (PERSONA + "[lines]\nidle = ['hi {nobody}']", r"lines.idle.0 .*\{topic\}, \{name\} and \{emote\}"),
        (PERSONA + "[lines]\nidle = ['hi {name.__class__}']", "placeholders"),
        (PERSONA + "[lines]\nidle = ['hi {']", "brace"),
    ],
)
def test_c5_an_invalid_file_raises_a_clear_error(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "odd.toml").write_text(text)
    with pytest.raises(BadCrowdConfig, match=problem):
        CrowdConfigs([tmp_path]).persona("odd")
    assert len(CrowdConfigs([tmp_path]).personas()) == 50, "a bad file does not hide the others"
    assert len(CrowdConfigs([tmp_path]).problems()) == 1


@pytest.mark.parametrize(
    "bad",
    [
        "tempo.tick_s = 0.0",
        "tempo.tick_s = 1e-9",
        "tempo.rest_s = inf",
        "tempo.typing_per_s = nan",
        "tuning.events.hype = -3",
        "limits.slow_mode_s = 1e300",
        "limits.per_minute = nan",
        "tempo.tikc_s = 1",
    ],
)
def test_c5_a_room_with_a_value_out_of_range_is_refused_with_its_field(tmp_path: Path, bad: str) -> None:
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms" / "odd.toml").write_text(f"name = 'odd'\ntitle = 'Odd'\n{bad}\n")
    configs = CrowdConfigs([tmp_path])
    with pytest.raises(BadCrowdConfig, match=r"rooms/odd.toml: .*" + bad.partition(" ")[0]):
        configs.room("odd")
    assert "late-shift" in configs.rooms()


def test_c5_an_invalid_edit_keeps_the_last_valid_version_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rooms").mkdir()
    file = tmp_path / "rooms" / "odd.toml"
    file.write_text("name = 'odd'\ntitle = 'Odd'\n")
    configs = CrowdConfigs([tmp_path])
    valid = configs.room("odd")
    file.write_text("name = 'odd'\ntitle = 'Odd'\ntempo.tick_s = 0\n")
    assert configs.room("odd") == valid
    assert "tick_s" in configs.problems()["rooms/odd"].what
    with pytest.raises(BadCrowdConfig, match="tick_s"):
        configs.write_room("odd", {"tempo": {"rest_s": 3}})
    file.write_text("name = 'odd'\ntitle = 'Even'\n")
    assert configs.room("odd").title == "Even"
    assert configs.problems() == {}


def test_c5_a_room_with_an_unknown_persona(tmp_path: Path) -> None:
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms" / "odd.toml").write_text("name = 'odd'\ntitle = 'Odd'\nroster = ['nobody_here']")
    configs = CrowdConfigs([tmp_path])
    with pytest.raises(BadCrowdConfig, match="nobody_here"):
        configs.personas_in(configs.room("odd"))
    with pytest.raises(BadCrowdConfig, match="late-shift"):
        configs.room("nowhere")


def test_c5_sleep_hours_may_span_midnight() -> None:
    owl = PERSONAS["moss_granny"]
    assert owl.sleep == "21-05"
    assert [hour for hour in range(24) if owl.is_asleep(hour * 3_600_000)] == [0, 1, 2, 3, 4, 21, 22, 23]


@given(st.text(max_size=80), st.text(max_size=80), st.lists(st.text(max_size=40), max_size=3))
@settings(max_examples=80)
def test_c5_every_character_can_be_a_persona(name: str, description: str, samples: list[str]) -> None:
    character = Identity(id="c1", name=name or "x", persona=description, voice_samples=samples)
    persona = persona_from_character(character)
    assert Persona.model_validate(persona.model_dump()) == persona
    assert list(persona_problems(persona)) == []


def test_c5_all_personas_can_be_characters(tmp_path: Path) -> None:
    personas = CrowdConfigs().personas()
    characters = {name: character_from_persona(persona) for name, persona in personas.items()}
    assert len(characters) == 50
    assert all(one.id == memory_owner(name) and one.voice_samples and one.persona for name, one in characters.items())
    assert len({one.persona for one in characters.values()}) == 50
    assert "contrary" in characters["salt_lamp"].traits
    for one in characters.values():
        assert Identity.from_card(one.to_card(), id=one.id) == one
