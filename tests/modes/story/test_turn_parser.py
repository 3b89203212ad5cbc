"""Speech, action and out-of-character notes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import parse_segments, unmarked_segment, visible_text
from tests.modes.story.conftest import ScriptedModel, StoryHarness

MARKS = st.sampled_from(["((", "))", "*", "**", '"', "“", "”", "//", "[[", "]]", " ", "\n", ".", "(", ")"])
PROSE = st.lists(MARKS | st.text(alphabet="abc dé", max_size=6), max_size=20).map("".join)


def kinds(text: str, marker: str = "((") -> list[tuple[str, str]]:
    return [(segment.kind, segment.text) for segment in parse_segments(text, marker)]


def test_s11_three_segments() -> None:
    assert kinds('*walks over* "Hey." ((player note))') == [
        ("action", "walks over"),
        ("dialogue", '"Hey."'),
        ("ooc", "player note"),
    ]


@pytest.mark.parametrize(("marker", "text"), [("//", "Hi // note"), ("[[", "Hi [[note]]"), ("OOC:", "Hi OOC: note")])
def test_s11_the_marker_is_configurable(marker: str, text: str) -> None:
    assert kinds(text, marker) == [("dialogue", "Hi"), ("ooc", "note")]
    assert visible_text(parse_segments(text, marker)) == "Hi"


def test_s11_an_unclosed_note_is_still_a_note() -> None:
    assert kinds("Hello ((do not tell") == [("dialogue", "Hello"), ("ooc", "do not tell")]


@given(PROSE)
def test_s11_every_character_is_in_exactly_one_segment(text: str) -> None:
    def letters(text: str) -> str:
        return "".join(letter for letter in text if letter.isalnum())

    assert "".join(letters(segment.text) for segment in parse_segments(text)) == letters(text)
    assert all(segment.text.strip() == segment.text and segment.text for segment in parse_segments(text))


@given(PROSE, st.text(alphabet="xyz", min_size=8, max_size=8), PROSE)
def test_s11_text_inside_note_marks_is_never_visible(before: str, secret: str, after: str) -> None:
    # A quotation that opens before the note may contain its mark; then it is no note.
    before = before.translate(dict.fromkeys(map(ord, '(*"“”«»„‹›')))
    assert secret not in visible_text(parse_segments(f"{before}(({secret})){after}"))


async def test_s11_notes_reach_no_prompt_and_no_memory(harness: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["SceneSummary"] = {"summary": "A visit."}
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    for _ in range(3):
        await harness.say(room, "Hello. ((the xylophone is a clue))")
    await harness.regenerate(room, text="Hi. ((xylophone again))")
    await harness.story.close_scene(room)
    prompts = [message.text for request in [*script.asked, *script.classified] for message in request.prompt.messages]
    assert prompts
    assert not [prompt for prompt in prompts if "xylophone" in prompt]
    assert not [memory for memory in harness.memories_of(mara.id) if "xylophone" in memory]
    assert "xylophone" in harness.texts(room)[0]


LONG = "I walk to the window and look at the sea for a while and then I say that the storm will be here soon enough"


async def test_s11_the_classifier_is_called_only_without_marks(harness: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["ClassifiedSegments"] = {
        "segments": [
            {"kind": "action", "text": LONG[:58]},
            {"kind": "dialogue", "text": LONG[58:]},
        ]
    }
    harness.story.turns.settings = StorySettings(reader_from_words=15)
    room = await harness.start_chat(await harness.create_character())
    for text in ("Short.", f"*{LONG}*", f'"{LONG}"', f"*{LONG}* and so on"):
        await harness.say(room, text)
        assert script.questions("ClassifiedSegments") == []
    begun = await harness.say(room, f"{LONG} ((a note))")
    turn = harness.story.timeline.turn(room, begun.turn)
    assert [segment.kind for segment in turn.segments] == ["action", "dialogue", "ooc"]
    assert turn.text == f"{LONG} ((a note))"
    assert "a note" not in script.questions("ClassifiedSegments")[0]
    assert f"*{LONG[:58].strip()}*" in script.prompt()


async def test_s11_a_classification_with_invented_text_is_ignored(harness: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["ClassifiedSegments"] = {"segments": [{"kind": "action", "text": "I set the house on fire"}]}
    harness.story.turns.settings = StorySettings(reader_from_words=15)
    room = await harness.start_chat(await harness.create_character())
    begun = await harness.say(room, LONG)
    assert script.questions("ClassifiedSegments")
    assert [(s.kind, s.text) for s in harness.story.timeline.turn(room, begun.turn).segments] == [("dialogue", LONG)]


def test_s11_short_messages_are_not_classified() -> None:
    assert unmarked_segment(parse_segments("Just a word or two."), StorySettings().reader_from_words) is None
    assert unmarked_segment(parse_segments(" ".join(["word"] * 50)), StorySettings().reader_from_words) is not None
    assert unmarked_segment(parse_segments(" ".join(["word"] * 50)), 0) is None


def _parse_slowly(text: str, marker: str) -> list[tuple[str, str]]:
    """The marked and unmarked texts by a search of the whole rest at every character."""
    closers = {"((": "))", "//": "\n", "[[": "]]"}
    quotes = {'"': '"', "“": "”", "«": "»", "„": "“", "‹": "›"}
    parts: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        rest = text[position:]
        stars = next((run for run in ("***", "**", "*") if rest.startswith(run)), "")
        kind, content, length = "", rest[0], 1
        if rest.startswith(marker):
            content, closer, _ = rest[len(marker) :].partition(closers[marker])
            kind, length = "ooc", len(marker) + len(content) + len(closer)
        elif stars and stars in rest[len(stars) :]:
            inside = rest[len(stars) :].partition(stars)[0]
            if inside and not inside[0].isspace():
                kind, content, length = "action", inside, 2 * len(stars) + len(inside)
        elif rest[0] in quotes and quotes[rest[0]] in rest[1:]:
            content = rest[: rest.index(quotes[rest[0]], 1) + 1]
            kind, length = "dialogue", len(content)
        if not kind and parts and not parts[-1][0]:
            parts[-1] = ("", parts[-1][1] + content)
        else:
            parts.append((kind, content))
        position += length
    return [(kind, content.strip()) for kind, content in parts if content.strip()]


@given(PROSE, st.sampled_from(["((", "//", "[["]))
def test_s11_law_segments_are_those_of_a_search_at_every_character(text: str, marker: str) -> None:
    segments = parse_segments(text, marker)
    expected = _parse_slowly(text, marker)
    notes = [content for kind, content in expected if kind == "ooc"]
    assert [segment.text for segment in segments if segment.kind == "ooc"] == notes
    marked = [content for kind, content in expected if kind == "action"]
    actions = iter(segment.text for segment in segments if segment.kind == "action")
    assert all(content in actions for content in marked), "in order, perhaps with narration between them"
    assert "".join(segment.text for segment in segments).replace(" ", "") == "".join(
        content for _, content in expected
    ).replace(" ", "")
