"""The registry of agents: its format, and that an invalid file changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.characters.identity import Identity
from coterie.characters.people import Person
from coterie.characters.service import OWNER, Character
from coterie.messaging.agents import AgentRegistry

MARA = Character(Identity(id="mara", name="Mara", persona="."), 1, None)
GOOD = """
people: {owner: Mara, Bo: Io, "*": Teodor}
characters:
  mara: {backend: remote, base_url: "ws://localhost:1/x", token: "secret:mara", workspace: by the sea}
"""


def test_p12_people_and_characters_are_found_by_name_or_id(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    registry = AgentRegistry(file, lambda value: value.replace("secret:", "the secret of "))
    assert registry.entry(MARA) is None and registry.mode_of(MARA) == "" and registry.problem is None
    file.write_text(GOOD)
    entry = registry.entry(MARA)
    assert entry is not None and entry.token is not None
    assert entry.token.get_secret_value() == "the secret of mara" and "the secret" not in repr(entry)
    assert (registry.mode_of(MARA), registry.workspace_of(MARA)) == ("remote", "by the sea")
    characters = [
        registry.character_for(person) for person in (Person(OWNER, "Ana"), Person("p1", "bo"), Person("p2", "Cy"))
    ]
    assert characters == ["Mara", "Io", "Teodor"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("characters: [", "cannot be read"),
        ("- a list", "is wrong at"),
        ("characters: {Mara: {backend: remote}}", "base_url"),
        ("characters: {Mara: {base_url: 'ws://h/'}}", "base_url"),
        ("characters: {Mara: {backend: remote, base_url: 'http://h/'}}", "ws://"),
        ("characters: {Mara: {backend: remote, base_url: 'ws://[/'}}", "not a valid address"),
        ("characters: {Mara: {backend: remote, base_url: 'ws://example.org/', token: one-9f3b-token}}", "wss://"),
        ("characters: {Mara: {workspace: ../../etc}}", "workspace"),
        ("characters: {Mara: {workspace: /etc}}", "workspace"),
        ("characters: {Mara: {colour: red}}", "colour"),
        ("x: !!python/object/apply:os.system ['true']", "cannot be read"),
        ("a: &a [*a]", "is wrong at"),
        ("#" * 1_000_001, "too large"),
    ],
)
def test_p12_an_invalid_registry_changes_nothing_and_is_reported(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(GOOD)
    registry = AgentRegistry(file)
    assert registry.mode_of(MARA) == "remote"
    file.write_text(text)
    assert registry.mode_of(MARA) == "remote", "the previous content"
    assert registry.problem is not None and why in str(registry.problem)
    file.write_text("characters: {}")
    assert registry.mode_of(MARA) == "" and registry.problem is None


@pytest.mark.parametrize("text", ["a: 2024-13-45", "a: " + "9" * 5_000, "{" * 3_000])
def test_a_file_that_the_parser_of_yaml_fails_on_is_a_problem_of_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(text)
    problem = AgentRegistry(file).problem
    assert problem is not None and "cannot be read" in problem.what
