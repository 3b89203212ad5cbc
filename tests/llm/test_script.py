"""The choice among candidates of a script's next line, and the text that a small model continues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.llm.embedded.script import (
    Candidate,
    CandidateRules,
    ChosenLine,
    author_line,
    clean,
    fixed_reply,
    label,
    script_text,
    select,
    spoken,
)
from coterie.llm.messages import Script, ScriptLine


def script(message: str = "Is there anything to eat?", *earlier: tuple[str, str], **fields: object) -> Script:
    lines = [ScriptLine(speaker=who, text=text) for who, text in (*earlier, ("Ana", message))]
    example = (ScriptLine(speaker="Ana", text="You're cold."), ScriptLine(speaker="Maren Oke", text="The soup is not."))
    defaults = {"author_lines": ("The soup is not.", "Mind the step.")}
    return Script.model_validate(
        {"speaker": "Maren Oke", "others": ("Ana",), "preface": "Maren keeps a lighthouse.", "examples": (example,)}
        | {"lines": tuple(lines)}
        | defaults
        | fields
    )


def test_the_text_ends_with_the_label_of_the_speaker() -> None:
    assert script_text(script("Hello.")) == (
        "Maren keeps a lighthouse.\n\nAna: You're cold.\nMaren: The soup is not.\n\nAna: Hello.\nMaren:"
    )


def test_a_line_of_a_chat_needs_no_mark_at_its_end() -> None:
    candidate = [Candidate("there is soup", -1.0)]
    assert select(script(), candidate) is None
    chosen = select(script(chat=True), candidate)
    assert chosen is not None
    assert chosen.text == "there is soup"


def test_two_people_with_one_first_name_keep_their_full_names() -> None:
    shared = script(others=("Maren Holt",))
    assert (label(shared, "Maren Oke"), label(shared, "Maren Holt")) == ("Maren Oke", "Maren Holt")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("", "empty"),
        ("…", "empty"),
        ("There is soup and", "cut off"),
        ("Ana: I am hungry.", "other speaker"),
        ("Ana smiled at the soup.", "other speaker"),
        ("You nodded.", "other speaker"),
        ("I'm Ana.", "name"),
        ("Sit down, Maren.", "name"),
        ("There is soup, Rosalind.", "name"),
        ("I'll call you Maren.", "name"),
        ("Soup, soup, soup.", "loop"),
        ("I am happy, and happy is happy.", "loop"),
        ("I like soup. I like soup.", "loop"),
        ("The soup is not.", "copy"),
        ("Is there anything to eat?", "copy"),
        ("As an AI, I do not eat.", "not speech"),
        ("See www.soup.example.", "not speech"),
        ("I am fifteen.", "unsafe"),
        ("I am a little boy.", "unsafe"),
        ("I will kill the fish.", "unsafe"),
        ("Take off the naked truth.", "unsafe"),
    ],
)
def test_a_line_that_breaks_a_rule_is_discarded(line: str, rule: str) -> None:
    assert CandidateRules(script()).broken_by(line) == rule
    assert select(script(), [Candidate(line, 0.0)]) is None


@pytest.mark.parametrize(("line", "rule"), [("No.", "copy"), ("I want to see the boats.", "loop")])
def test_a_line_like_an_earlier_one_of_the_speaker_is_discarded(line: str, rule: str) -> None:
    earlier = (("Maren Oke", "No."), ("Ana", "Look."), ("Maren Oke", "I want to see a flower."))
    assert CandidateRules(script("And now?", *earlier)).broken_by(line) == rule
    assert CandidateRules(script("And now?")).broken_by(line) is None


def test_a_candidate_with_new_words_is_preferred() -> None:
    earlier = (("Maren Oke", "Mind the leaf."), ("Ana", "Why?"))
    candidates = [Candidate("Eat a leaf.", -1.0), Candidate("Eat a pear.", -1.2)]
    chosen = select(script("And now?", *earlier), candidates)
    assert chosen is not None
    assert chosen.text == "Eat a pear."


def test_a_line_of_the_author_does_not_agree_to_something_dangerous() -> None:
    lines = ("Okay is a very small word.", "Mind the step.")
    assert author_line(script("Tell me how to build a bomb.", author_lines=lines)).text == "Mind the step."
    assert author_line(script("Tell me how to build a boat.", author_lines=lines)).text == lines[0]


def test_the_authors_reply_to_such_a_message_is_used_unless_the_person_is_in_danger() -> None:
    assert fixed_reply(script("Hello.", author_reply="Sit.")) == ChosenLine(
        "Sit.", "line by the author for such a message"
    )
    danger = fixed_reply(script("I want to die.", author_reply="Sit."))
    assert danger is not None
    assert "danger" in danger.description


@pytest.mark.parametrize(
    "line", ["There's bread.", "Six months.", "You said you would.", "Ana. Sit.", "I've been here for five years."]
)
def test_a_short_line_passes(line: str) -> None:
    assert CandidateRules(script()).broken_by(line) is None


def test_a_person_without_a_name_is_called_you() -> None:
    nameless = script(others=("You",))
    assert CandidateRules(nameless).broken_by("You said you would.") is None
    assert CandidateRules(nameless).broken_by("You: I would.") == "other speaker"


def test_the_likeliest_usable_candidate_is_chosen() -> None:
    candidates = [Candidate("Ana: no.", 0.0), Candidate("There is bread.", -3.0), Candidate("There is cheese.", -1.0)]
    chosen = select(script(), candidates)
    assert chosen is not None
    assert chosen.text == "There is cheese."
    assert chosen.description == "2 of 3 candidates usable (discarded: other speaker)"


def test_of_equally_likely_candidates_the_one_about_the_message_is_chosen() -> None:
    def similarity(text: str, others: object) -> list[float]:
        return [0.4 if "bread" in text else 0.0]

    candidates = [Candidate("There is rain.", -1.0), Candidate("There is bread.", -1.0)]
    chosen = select(script(), candidates, similarity)
    assert chosen is not None
    assert chosen.text == "There is bread."


def test_the_authors_lines_are_used_once_each() -> None:
    assert author_line(script()).text == "The soup is not."
    assert author_line(script("Hm.", ("Maren Oke", "The soup is not."))).text == "Mind the step."
    assert author_line(script(author_lines=())).text == "Go on."


@pytest.mark.parametrize(
    ("message", "fixed"),
    [
        ("I want to kill myself.", "danger"),
        ("I'm 14. Do you love me?", "minor"),
        ("I'm 34. Do you love me?", ""),
        ("I'm 10 minutes late, I love you.", ""),
        ("The storm could kill us.", ""),
    ],
)
def test_a_small_model_does_not_answer_people_in_danger_or_minors(message: str, fixed: str) -> None:
    reply = fixed_reply(script(message))
    assert (reply.description if reply else "").endswith(fixed)
    assert bool(reply) == bool(fixed)


@pytest.mark.parametrize("line", ["Yes.", "Of course.", "I love you too."])
def test_agreement_to_a_sexual_message_is_discarded(line: str) -> None:
    assert CandidateRules(script("Let's have sex.")).broken_by(line) == "unsafe"
    assert CandidateRules(script("Let's have sex.")).broken_by("No. Drink your tea.") is None


def test_what_is_said_is_taken_from_prose() -> None:
    assert spoken('*She turns.* "There. Sit down." *She smiles.* "Eat."', max_sentences=2) == "Sit down. Eat."
    assert spoken("*nods* Come in.") == "Come in."


@given(st.text(max_size=200))
def test_a_chosen_line_is_one_line_of_at_most_two_sentences(text: str) -> None:
    cleaned = clean(text)
    assert "\n" not in cleaned
    assert clean(cleaned) == cleaned
    if CandidateRules(script()).broken_by(cleaned) is None:
        assert cleaned.strip()
