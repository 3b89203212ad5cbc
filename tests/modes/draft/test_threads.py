"""Threads, messages and replies that propose. F2, F4–F6, F12, F13"""

from __future__ import annotations

import pytest

from coterie.base.errors import BadPoint
from coterie.characters.errors import NoSuchCharacter
from coterie.conversation.errors import Busy, NoSuchRoom
from coterie.conversation.events import AssistantTokens, AssistantTurnStarted
from coterie.eventstore import NewEvent
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.draft import DocumentVersion, Member, Span, Unplaced
from coterie.modes.draft.threads import OWN_THREAD, WATCHED_DOCUMENT
from tests.modes.draft.conftest import ANN, BO, LAMP, DraftHarness, Script, change

NIGHTS = "The lamp burns every night, and every night it burns."


async def test_f4_a_reply_is_streamed_and_its_proposals_become_rows(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    script.replies.append(f"It says it twice. {change(NIGHTS, 'The lamp burns every night.')} Better?")
    asked = await stage.send_message(thread, "Anything to cut?")
    turn = stage.draft.timeline.turn(thread.room, asked.reply)
    assert (turn.state, turn.model) == ("done", "embedded/script")
    (proposed,) = stage.draft.proposal_queries.of_reply(thread.room, asked.reply)
    assert proposed.id == f"{asked.reply}-1"
    assert (proposed.state, proposed.how, proposed.reason) == ("pending", "exact", "Shorter.")
    assert LAMP[proposed.start : proposed.end] == proposed.exact == NIGHTS
    assert stage.text() == LAMP  # talk never writes Git


async def test_f4_the_model_is_told_the_document_the_talk_and_the_selection(
    stage: DraftHarness, script: Script
) -> None:
    thread = await stage.begin()
    await stage.draft.proposals.decline(
        (await stage.proposals(thread, change("Nobody asks.", "")))[0].id, ANN, "It matters."
    )
    at = LAMP.index("The boats")
    await stage.send_message(thread, "And this?", selection=Span(at, at + 9))
    told = script.prompt()
    assert LAMP in told
    assert "<selection>The boats</selection>" in told
    assert "What would you change?" in told
    assert "declined a proposal" not in told  # system notes are left out …
    assert "do not propose them again" in told  # … but what was declined is told (F10)
    assert "It matters." in told


async def test_f5_a_card_is_there_while_the_rest_still_streams(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    seen: list[int] = []
    script.replies.append(change("Nobody asks.", "Who asks?") + " " + change("The boats", "Boats") + " tail")
    async with stage.draft.feed.follow(thread.room) as following:
        asked = await stage.draft.threads.send_message(thread.room, "Go on.", ANN)
        async for news in following:
            kind = getattr(news, "kind", "words")
            if kind == "change_proposed":
                seen.append(len(stage.draft.proposal_queries.of_reply(thread.room, asked.reply)))
            if kind == "assistant_turn":
                break
    assert len(seen) == 2


async def test_f5_a_block_that_cannot_be_read_is_text_with_a_note(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    script.replies.append("So: <change><original>Nobody asks.</original></change>")
    asked = await stage.send_message(thread, "Go on.")
    assert stage.draft.proposal_queries.of_thread(thread.room) == []
    assert [note.about for note in stage.draft.thread_queries.notes(thread.room)] == [asked.reply]


async def test_f5_an_empty_original_inserts_after_the_place(stage: DraftHarness, script: Script) -> None:
    await stage.begin()
    at = LAMP.index("Nobody knows")
    span = Span(at, at + len("Nobody knows who lights it. Nobody asks."))
    thread = await stage.draft.threads.open_thread(
        stage.workspace, "lamp.md", [Member(bot=stage.characters[0].id)], ANN, selection=span
    )
    assert thread.kind == "anchored"
    (proposed,) = await stage.proposals(thread, change("", "Somebody should."))
    await stage.draft.proposals.accept(proposed.id, ANN)
    assert "Nobody asks.\n\nSomebody should.\n\nThe boats" in stage.text()


async def test_f4_a_provider_that_fails_leaves_a_notice_and_what_it_proposed(
    stage: DraftHarness, script: Script
) -> None:
    thread = await stage.begin()
    said = f"First {change('Nobody asks.', 'Who asks?')} then <change><orig"
    script.replies.append(RecordedCall(say=said, error=RecordedError(kind="BadRequest", what="It broke.", status=400)))
    asked = await stage.send_message(thread, "Go on.")
    turn = stage.draft.timeline.turn(thread.room, asked.reply)
    assert turn.state == "truncated"
    assert "It broke." in turn.why
    assert turn.text == said
    assert len(stage.draft.proposal_queries.of_reply(thread.room, asked.reply)) == 1
    assert len(stage.draft.thread_queries.notes(thread.room)) == 1


async def test_f4_what_a_crash_left_open_is_closed_and_its_blocks_become_rows(stage: DraftHarness) -> None:
    thread = await stage.begin()
    bot = stage.characters[0].id
    said = change("Nobody asks.", "Who asks?")
    await stage.store.append(
        [
            NewEvent(thread.room, AssistantTurnStarted(reply="r1", speaker=bot), bot, turn="r1"),
            NewEvent(thread.room, AssistantTokens(reply="r1", text=said), bot, turn="r1"),
        ]
    )
    assert await stage.draft.recover() == 1
    await stage.run_jobs()
    assert stage.draft.timeline.turn(thread.room, "r1").why == "restart"
    assert [one.id for one in stage.draft.proposal_queries.of_thread(thread.room)] == ["r1-1"]


async def test_f6_a_quote_that_is_nowhere_is_asked_for_once(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    script.replies += [
        change("Mountains are high in summer and green.", "Boats are late.") + change("Goats and cows", "x"),
        "<original>The boats come late in winter.</original>",
        "I do not know.",
    ]
    await stage.send_message(thread, "Go on.")
    first, second = stage.draft.proposal_queries.of_thread(thread.room)
    assert (first.placed, first.exact, first.repaired) == (True, "The boats come late in winter.", True)
    assert (second.placed, second.missing, second.repaired) == (False, "absent", True)
    assert len(script.asked) == 3
    with pytest.raises(Unplaced):
        await stage.draft.proposals.accept(second.id, ANN)


async def test_f6_entities_are_decoded_only_where_the_raw_text_is_nowhere(stage: DraftHarness) -> None:
    thread = await stage.begin(text="# Ops\n\nUse a && b here.\n\nWrite &lt; as such.\n")
    first, second = await stage.proposals(
        thread, change("Use a &amp;&amp; b here.", "Use a &lt; b here."), change("Write &lt; as", "Put &lt; as")
    )
    assert (first.exact, first.proposed) == ("Use a && b here.", "Use a < b here.")
    assert (second.exact, second.proposed) == ("Write &lt; as", "Put &lt; as")


async def test_f13_two_characters_with_their_own_briefs_and_models(stage: DraftHarness, script: Script) -> None:
    await stage.begin("Mara", "Teo")
    mara, teo = stage.characters
    members = [
        Member(bot=mara.id, brief="Cut every spare word."),
        Member(bot=teo.id, brief="Doubt everything.", model="sceptic", format="search_replace"),
    ]
    thread = await stage.draft.threads.open_thread(stage.workspace, "lamp.md", members, ANN)
    script.replies.append("<<<<<<< SEARCH\nNobody asks.\n=======\nDoes nobody ask?\n>>>>>>> REPLACE a doubt\n")
    asked = await stage.send_message(thread, "Teo, what do you think?")
    assert asked.speaker == teo.id
    assert "Doubt everything." in script.prompt()
    assert "<<<<<<< SEARCH" in script.prompt()
    assert stage.draft.timeline.turn(thread.room, asked.reply).model == "embedded/other"
    assert stage.draft.proposal_queries.of_thread(thread.room)[0].reason == "a doubt"
    asked = await stage.send_message(thread, "And you?", to="mara")
    assert asked.speaker == mara.id
    assert "Teo: <<<<<<< SEARCH" in script.prompt()
    with pytest.raises(NoSuchCharacter):
        await stage.send_message(thread, "And you?", to="Nobody")


async def test_f12_notices_exactly_once_and_none_of_ones_own(stage: DraftHarness) -> None:
    thread = await stage.begin()
    await stage.draft.notifications.watch(stage.workspace, "lamp.md", BO)
    await stage.draft.notifications.watch(stage.workspace, "lamp.md", ANN)
    first = await stage.send_message(thread, "Hello?", ANN)
    second = await stage.send_message(thread, "Here too.", BO)

    def told(person: str) -> list[tuple[str, str]]:
        return [(notice.message, notice.kind) for notice in reversed(stage.draft.notifications.of_person(person))]

    assert told("bo") == [(first.turn, WATCHED_DOCUMENT), (first.reply, WATCHED_DOCUMENT), (second.reply, OWN_THREAD)]
    assert told("ann") == [(first.reply, OWN_THREAD), (second.turn, OWN_THREAD), (second.reply, OWN_THREAD)]
    await stage.draft.notifications.mark_read(BO)
    assert stage.draft.notifications.of_person("bo", unread=True) == []
    await stage.draft.notifications.watch(stage.workspace, "lamp.md", BO, watching=False)
    assert stage.draft.notifications.watchers(stage.workspace, "lamp.md") == {"ann"}


async def test_f4_the_same_message_again_is_the_same_message(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    once = await stage.send_message(thread, "Hello?", key="k1")
    assert await stage.send_message(thread, "Hello?", key="k1") == once
    assert len(script.asked) == 1


async def test_f3_a_thread_keeps_its_place_or_is_orphaned(stage: DraftHarness) -> None:
    await stage.begin()
    at = LAMP.index("The boats")
    selection = Span(at, len(LAMP) - 1)
    thread = await stage.draft.threads.open_thread(
        stage.workspace, "lamp.md", [Member(bot=stage.characters[0].id)], ANN, selection=selection
    )

    async def place() -> str | None:
        version: DocumentVersion = await stage.draft.documents.read(stage.workspace, "lamp.md")
        anchor = stage.draft.threads.current_anchor(thread, version)
        return anchor.exact if anchor else None

    await stage.rewrite("# The lamp", "# The old lamp")
    assert await place() == "The boats come late in winter."
    await stage.rewrite("come late in winter", "come late in the winter")
    assert await place() == "The boats come late in the winter."
    await stage.rewrite("The boats come late in the winter.", "Gone.")
    assert await place() is None


async def test_f2_what_cannot_be(stage: DraftHarness) -> None:
    thread = await stage.begin()
    with pytest.raises(BadPoint):
        await stage.draft.threads.send_message(thread.room, "  ", ANN)
    with pytest.raises(NoSuchRoom):
        await stage.draft.threads.send_message("room:none", "x", ANN)
    with pytest.raises(NoSuchCharacter):
        await stage.draft.threads.open_thread(stage.workspace, "lamp.md", [], ANN)
    with pytest.raises(Unplaced):
        await stage.draft.threads.send_message(thread.room, "x", ANN, selection=Span(5, 100_000))
    await stage.draft.threads.send_message(thread.room, "x", ANN)
    with pytest.raises(Busy):
        await stage.draft.threads.send_message(thread.room, "y", ANN)
    await stage.draft.replies.wait(thread.room)
    await stage.run_jobs()
