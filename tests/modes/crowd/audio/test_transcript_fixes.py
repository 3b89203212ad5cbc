"""C9: corrections of transcripts, and the detection of questions to the chat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.crowd.audio.transcriber import fix_sentences, fix_transcript
from coterie.modes.crowd.session.stream_context import asks_chat


@pytest.mark.parametrize(
    ("transcript", "fixed"),
    [
        ("Chet should we climb or swim?", "Chat should we climb or swim?"),
        ("Okay, Chad, what is in the barrel?", "Okay, chat, what is in the barrel?"),
        ("So check do we wake the troll?", "So chat do we wake the troll?"),
        ("Jett, tea or milk.", "Chat, tea or milk."),
        ("Chut north or south.", "Chat north or south."),
        ("Is that the moon, Chet?", "Is that the moon, chat?"),
        ("Can we afford the boat Chad?", "Can we afford the boat chat?"),
        ("Send me a colour, check.", "Send me a colour, chat."),
        ("Thank you, Chad.", "Thank you, chat."),
        ("Well. Chet, did you see it?", "Well. Chat, did you see it?"),
        ("North or south Chet.", "North or south chat."),
        ("Is the goat asleep? Chet.", "Is the goat asleep, chat?"),
        ("Okay chat. Which rope is ours?", "Okay chat, Which rope is ours?"),
    ],
)
def test_c9_an_address_to_the_chat_is_corrected(transcript: str, fixed: str) -> None:
    assert fix_transcript(transcript) == fixed


@pytest.mark.parametrize(
    "transcript",
    [
        "Check the map before we leave.",
        "Check what is behind the barrel.",
        "Check, check, one, two.",
        "Rope, check. Torch, check.",
        "Let me check.",
        "Should I check?",
        "Can you see the chart?",
        "Chad is my neighbour.",
        "I told Chad, and Chad told Mary.",
        "Do you know Chad?",
        "We are late, Chad said.",
        "Jack, what are you doing here?",
        "The jet took off.",
        "What a chap.",
        "Chop chop, here we go.",
        "We had a chat, and then we left.",
        "I like it when any one of them sings.",
        "Some body of water.",
    ],
)
def test_c9_other_names_are_left_alone(transcript: str) -> None:
    assert fix_transcript(transcript) == transcript


def test_c9_old_spellings_are_modernised() -> None:
    assert fix_transcript("Any one here to-night? Every one leaves to-morrow.") == (
        "Anyone here tonight? Everyone leaves tomorrow."
    )
    assert fix_transcript("Ok, that is ok. A book is okay.") == "Okay, that is okay. A book is okay."


@given(st.text(max_size=200))
def test_c9_fixing_is_idempotent_and_keeps_all_sentences(text: str) -> None:
    once = fix_transcript(text)
    assert fix_transcript(once) == once
    assert len(once.split()) <= len(text.split())
    assert " ".join(fix_sentences(text)) == once


@pytest.mark.parametrize(
    "said",
    [
        "Chat should we climb or swim.",
        "Okay chat which rope do we take.",
        "Did anyone see where the goat went.",
        "Anyone know a good name for a goat.",
        "What would you have said to her.",
        "Any ideas for the roof.",
        "How many of you have been to the sea.",
        "I would burn it, what do you think.",
        "Are we lost chat.",
        "Type yes if you want the boat",
        "Who wants to see the cellar.",
        "Chat why is the goat on the roof.",
        "Chat is the rope long enough.",
        "Was that the right rope chat.",
        "Bring mine me, chat which rope is ours.",
        "Is the rope too short for you.",
        "Is my goat in the picture.",
        "Should the goat wear a hat.",
        "Does your goat swim.",
        "Could one of you hold the rope.",
        "Any knots for this rope.",
        "Whose goat is this does anyone know.",
        "Guess the goat's name, chat.",
        "Say yes if you like the goat.",
    ],
)
def test_c9_a_question_needs_no_question_mark(said: str) -> None:
    assert asks_chat(said)


@pytest.mark.parametrize(
    "said",
    [
        "Anyone can climb that.",
        "Anybody who swims here is brave.",
        "What we need is a rope.",
        "How you climb it is up to the goat.",
        "Do not wake the troll.",
        "Have a look at this.",
        "Should be fine.",
        "You know what, I stay.",
        "Who are you?",
        "Can you believe it?",
        "Chat is asleep.",
        "The troll asks, are you lost?",
        "Are you lost, asked the troll.",
        "When you are ready we go.",
        "Chat is the best thing about this goat.",
        "Have fun with the goat, everybody.",
        "Can I just say that this goat is lovely?",
        "Where is my goat?",
        "Do your worst.",
        "Did my goat just wink?",
        "How is my goat this heavy?",
        "Can people here not read?",
        "What is the goat doing.",
        "Hello there, little goat, where are you going?",
        "They say, you will find a rope.",
    ],
)
def test_c9_other_sentences_are_not_questions_to_the_chat(said: str) -> None:
    assert not asks_chat(said)
