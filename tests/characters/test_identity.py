"""S1: "Identity: id, name, persona, voice samples (several, split on a line `---` in the form), traits (comma
separated), backstory, initial relationship to you, kickoff prose."
"""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.characters.cards import Card, CardFormat, export_card, import_card
from coterie.characters.cards.parsing import Document, same_document
from coterie.characters.identity import Identity
from tests.characters.cards.samples import FILES, V1, V2, V3, documents, tiny_png

words = st.text(st.characters(codec="utf-8"), max_size=20)
identities = st.builds(
    Identity,
    id=st.just("ada"),
    name=words.filter(str.strip),
    persona=words,
    voice_samples=st.lists(words, max_size=3),
    traits=st.lists(words, max_size=3),
    backstory=words,
    initial_relationship=words,
    kickoff=words,
)


def test_s1_the_form_splits_samples_on_dashes_and_traits_on_commas() -> None:
    identity = Identity.from_form(
        name="Ada", voice_samples="One.\nStill one.\n---\nTwo.\n ---  \n\n---\nThree -- 3", traits="dry, , kind "
    )
    assert identity.voice_samples == ["One.\nStill one.", "Two.", "Three -- 3"]
    assert identity.traits == ["dry", "kind"]
    assert identity.id


@given(documents)
@settings(max_examples=150)
def test_s9_an_unchanged_card_is_exported_as_imported(document: Document) -> None:
    card = Card.read(document, FILES, tiny_png())
    assert Identity.from_card(card, "ada").to_card(card) is card


@given(identities, documents | st.none())
@settings(max_examples=150)
def test_s9_an_identity_is_restored_exactly_from_its_card(identity: Identity, document: Document | None) -> None:
    card = identity.to_card(Card.read(document) if document else None)
    assert Identity.from_card(card, "ada") == identity
    for kind in get_args(CardFormat):
        assert Identity.from_card(import_card(export_card(card, kind).data, "x").card, "ada") == identity


def test_s9_only_what_changed_is_written() -> None:
    original = Card.read(V3, FILES)
    identity = Identity.from_card(original, "ada").model_copy(update={"kickoff": "A new night."})
    card = identity.to_card(original)
    changed = {name for name in card.fields if card.fields[name] != original.fields.get(name)}
    assert changed == {"scenario", "first_mes", "extensions"}
    assert card.files == FILES
    assert same_document({k: v for k, v in card.extensions.items() if k != "coterie"}, original.extensions)


def test_s9_edits_made_elsewhere_take_precedence() -> None:
    ours = Identity(id="ada", name="Ada", persona="Keeps the light.", backstory="Born at sea.").to_card()
    edited = ours.with_fields(description="Keeps a shop.")
    assert Identity.from_card(edited, "ada").persona == "Keeps a shop."


def test_a_new_card_has_everything_in_common_fields() -> None:
    card = Identity(
        name="Ada",
        persona="Keeps the light.",
        voice_samples=["Mind the stairs.", "Tea?"],
        traits=["dry", "kind"],
        backstory="Born at sea.",
        initial_relationship="Old friends.",
        kickoff="A storm.",
    ).to_card()
    data = card.data
    assert data.description == "Keeps the light.\n\nBorn at sea."
    assert data.personality == "dry, kind"
    assert data.mes_example == "<START>\nMind the stairs.\n<START>\nTea?"
    assert (data.scenario, data.first_mes) == ("Old friends.", "A storm.")


@pytest.mark.parametrize("document", [V1, V2, V3])
def test_a_foreign_card_gives_an_identity(document: Document) -> None:
    identity = Identity.from_card(Card.read(document))
    assert identity.name == "Ada"
    assert "lighthouse" in identity.persona
    assert identity.traits[0] == "patient"
    assert "storm" in identity.kickoff.lower()


def test_personality_in_prose_is_persona() -> None:
    prose = "She is patient, most days. She never sleeps."
    identity = Identity.from_card(Card.read({**V1, "personality": prose}))
    assert identity.traits == []
    assert prose in identity.persona
