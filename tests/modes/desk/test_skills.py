"""D22: prompts list skills, tools read them, and a switch disables them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.modes.desk.errors import NoSuchSkill
from tests.modes.desk.conftest import DeskHarness, Script, calls

TEXT = '---\nname: invoices\ndescription: "How invoices are written here."\n---\n# Invoices\nUse the template.\n'


def add_skill(harness: DeskHarness, name: str = "invoices", text: str = TEXT) -> Path:
    folder = harness.workspaces.folder(harness.character) / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return folder


async def test_d22_prompts_contain_names_and_descriptions_until_a_skill_is_read(
    harness: DeskHarness, script: Script
) -> None:
    room = await harness.begin()
    folder = add_skill(harness)
    (folder / "template.txt").write_text("Invoice no. {n}")
    config = harness.workspaces.folder(harness.character) / "config"
    config.mkdir()
    (config / "invoices.json").write_text('{"currency": "EUR"}')
    script.lines["channel"] = [
        calls(("read_skill", {"name": "invoices"})),
        calls(("read_skill", {"name": "invoices", "file": "template.txt"})),
        calls(("read_skill", {"name": "invoices", "file": "../../SOUL.md"})),
        "I know how.",
    ]
    await harness.say(room, "Write an invoice")
    first, second, third, fourth = script.prompts("channel")
    assert "invoices: How invoices are written here." in first and "Use the template." not in first
    assert "Use the template." in second and '{"currency": "EUR"}' in second and "template.txt" in second
    assert "Invoice no. {n}" in third
    assert "has no file" in fourth


async def test_d22_workers_see_skills_and_copy_them(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    folder = add_skill(harness)
    (folder / "make.sh").write_text("echo made")
    script.lines["channel"] = [calls(("spawn_worker", {"task": "invoice"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("take_skill", {"name": "invoices"})), "Done."]
    await harness.say(room, "Go")
    assert "How invoices are written here." in script.prompts("worker")[0]
    assert (harness.desk.workspace(room).folder / "skills/invoices/make.sh").read_text() == "echo made"


async def test_d22_edits_and_switches_take_effect_in_the_next_prompt(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    folder = add_skill(harness)
    await harness.say(room, "Hello")
    (folder / "SKILL.md").write_text(TEXT.replace("How invoices are", "Where invoices get"))
    await harness.say(room, "Hello again")
    assert "Where invoices get written here." in script.prompts("channel")[-1]
    await harness.desk.skills.switch(harness.character, "invoices", on=False)
    harness.restart()
    await harness.say(room, "And again")
    assert "invoices" not in script.prompts("channel")[-1]
    with pytest.raises(NoSuchSkill):
        harness.desk.skills.read(harness.character, "invoices")
    await harness.desk.skills.switch(harness.character, "invoices", on=True)
    assert harness.desk.skills.read(harness.character, "invoices").startswith("# Invoices")
    with pytest.raises(NoSuchSkill):
        await harness.desk.skills.switch(harness.character, "cooking", on=True)


async def test_d22_symbolic_links_are_ignored(harness: DeskHarness, script: Script, tmp_path: Path) -> None:
    await harness.begin()
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    folder = add_skill(harness)
    (folder / "more.txt").symlink_to(secret)
    linked = add_skill(harness, "linked").parent / "whole"
    linked.symlink_to(tmp_path)
    assert [skill.name for skill in harness.desk.skills.all(harness.character)] == ["invoices", "linked"]
    with pytest.raises(NoSuchSkill):
        harness.desk.skills.read(harness.character, "invoices", "more.txt")
