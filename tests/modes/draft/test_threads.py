"""Threads: messages, replies with proposals, quotes, members, notifications."""

from __future__ import annotations

import pytest

from coterie.base.errors import BadPoint
from coterie.characters.errors import NoSuchCharacter
from coterie.conversation.errors import Busy, NoSuchRoom
from coterie.conversation.events import AssistantTokens, AssistantTurnStarted
from coterie.eventstore import NewEvent
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.draft import DocumentVersion, Member, PositionUnknown, Span
from coterie.modes.draft.threads import OWN_THREAD, WATCHED_DOCUMENT
from tests.modes.draft.conftest import ANN, BO, LAMP, DraftHarness, Script, change

NIGHTS = "The lamp burns every night, and every night it burns."


async def test_f4_a_reply_is_streamed_and_its_proposals_are_recorded(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    script.replies.append(f"It says it twice. {change(NIGHTS, 'The lamp burns every night.')} Better?")
    started = await harness.send_message(thread, "Anything to cut?")
    turn = harness.draft.timeline.turn(thread.room, started.reply)
    assert (turn.state, turn.model) == ("done", "embedded/script")
    (proposed,) = harness.draft.proposal_queries.of_reply(thread.room, started.reply)
    assert proposed.id == f"{started.reply}-1"
    assert (proposed.state, proposed.how, proposed.reason) == ("pending", "exact", "Shorter.")
    assert LAMP[proposed.start : proposed.end] == proposed.exact == NIGHTS
    assert harness.text() == LAMP  # a reply does not change the document


async def test_f4_the_prompt_has_the_document_the_thread_and_the_selection(
    harness: DraftHarness, script: Script
) -> None:
    thread = await harness.open_thread()
    await harness.draft.proposals.decline(
        (await harness.propose(thread, change("Nobody asks.", "")))[0].id, ANN, "It matters."
    )
    at = LAMP.index("The boats")
    await harness.send_message(thread, "And this?", selection=Span(at, at + 9))
    prompt = script.prompt()
    assert LAMP in prompt
    assert "<selection>The boats</selection>" in prompt
    assert "What would you change?" in prompt
    assert "declined a proposal" not in prompt  # notes are left out
    assert "do not propose them again" in prompt
    assert "It matters." in prompt


async def test_f5_a_proposal_is_recorded_while_the_reply_is_streamed(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    seen: list[int] = []
    script.replies.append(change("Nobody asks.", "Who asks?") + " " + change("The boats", "Boats") + " tail")
    async with harness.draft.feed.follow(thread.room) as updates:
        started = await harness.draft.threads.send_message(thread.room, "Go on.", ANN)
        async for update in updates:
            kind = getattr(update, "kind", "text")
            if kind == "change_proposed":
                seen.append(len(harness.draft.proposal_queries.of_reply(thread.room, started.reply)))
            if kind == "assistant_turn":
                break
    assert len(seen) == 2


async def test_f5_a_broken_block_is_text_with_a_note(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    script.replies.append("So: <change><original>Nobody asks.</original></change>")
    started = await harness.send_message(thread, "Go on.")
    assert harness.draft.proposal_queries.of_thread(thread.room) == []
    assert [note.about for note in harness.draft.thread_queries.notes(thread.room)] == [started.reply]


async def test_f5_an_empty_original_inserts_after_the_selection(harness: DraftHarness, script: Script) -> None:
    await harness.open_thread()
    at = LAMP.index("Nobody knows")
    span = Span(at, at + len("Nobody knows who lights it. Nobody asks."))
    thread = await harness.draft.threads.open_thread(
        harness.workspace, "lamp.md", [Member(bot=harness.characters[0].id)], ANN, selection=span
    )
    assert thread.kind == "anchored"
    (proposed,) = await harness.propose(thread, change("", "Somebody should."))
    await harness.draft.proposals.accept(proposed.id, ANN)
    assert "Nobody asks.\n\nSomebody should.\n\nThe boats" in harness.text()


async def test_f4_a_failed_reply_keeps_its_proposals_and_has_a_note(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    text = f"First {change('Nobody asks.', 'Who asks?')} then <change><orig"
    script.replies.append(RecordedCall(say=text, error=RecordedError(kind="BadRequest", what="It broke.", status=400)))
    started = await harness.send_message(thread, "Go on.")
    turn = harness.draft.timeline.turn(thread.room, started.reply)
    assert turn.state == "truncated"
    assert "It broke." in turn.why
    assert turn.text == text
    assert len(harness.draft.proposal_queries.of_reply(thread.room, started.reply)) == 1
    assert len(harness.draft.thread_queries.notes(thread.room)) == 1


async def test_f4_a_reply_left_open_by_a_crash_is_closed_with_its_proposals(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    character = harness.characters[0].id
    text = change("Nobody asks.", "Who asks?")
    await harness.store.append(
        [
            NewEvent(thread.room, AssistantTurnStarted(reply="r1", speaker=character), character, turn="r1"),
            NewEvent(thread.room, AssistantTokens(reply="r1", text=text), character, turn="r1"),
        ]
    )
    assert await harness.draft.recover() == 1
    await harness.run_jobs()
    assert harness.draft.timeline.turn(thread.room, "r1").why == "restart"
    assert [one.id for one in harness.draft.proposal_queries.of_thread(thread.room)] == ["r1-1"]


async def test_f6_the_model_is_asked_once_for_a_better_quote(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    script.replies += [
        change("Mountains are high in summer and green.", "Boats are late.") + change("Goats and cows", "x"),
        "<original>The boats come late in winter.</original>",
        "I do not know.",
    ]
    await harness.send_message(thread, "Go on.")
    first, second = harness.draft.proposal_queries.of_thread(thread.room)
    assert (first.placed, first.exact, first.repaired) == (True, "The boats come late in winter.", True)
    assert (second.placed, second.missing, second.repaired) == (False, "absent", True)
    assert len(script.requests) == 3
    with pytest.raises(PositionUnknown):
        await harness.draft.proposals.accept(second.id, ANN)


async def test_f6_entities_are_decoded_only_if_the_raw_text_is_not_found(harness: DraftHarness) -> None:
    thread = await harness.open_thread(text="# Ops\n\nUse a && b here.\n\nWrite &lt; as such.\n")
    first, second = await harness.propose(
        thread, change("Use a &amp;&amp; b here.", "Use a &lt; b here."), change("Write &lt; as", "Put &lt; as")
    )
    assert (first.exact, first.proposed) == ("Use a && b here.", "Use a < b here.")
    assert (second.exact, second.proposed) == ("Write &lt; as", "Put &lt; as")


async def test_f13_two_characters_with_their_own_briefs_and_models(harness: DraftHarness, script: Script) -> None:
    await harness.open_thread("Mara", "Teo")
    mara, teo = harness.characters
    members = [
        Member(bot=mara.id, brief="Cut every spare word."),
        Member(bot=teo.id, brief="Doubt everything.", model="sceptic", format="search_replace"),
    ]
    thread = await harness.draft.threads.open_thread(harness.workspace, "lamp.md", members, ANN)
    script.replies.append("<<<<<<< SEARCH\nNobody asks.\n=======\nDoes nobody ask?\n>>>>>>> REPLACE a doubt\n")
    started = await harness.send_message(thread, "Teo, what do you think?")
    assert started.speaker == teo.id
    assert "Doubt everything." in script.prompt()
    assert "<<<<<<< SEARCH" in script.prompt()
    assert harness.draft.timeline.turn(thread.room, started.reply).model == "embedded/other"
    assert harness.draft.proposal_queries.of_thread(thread.room)[0].reason == "a doubt"
    started = await harness.send_message(thread, "And you?", to="mara")
    assert started.speaker == mara.id
    assert "Teo: <<<<<<< SEARCH" in script.prompt()
    with pytest.raises(NoSuchCharacter):
        await harness.send_message(thread, "And you?", to="Nobody")


async def test_f12_each_message_notifies_once_and_never_its_author(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    await harness.draft.notifications.watch(harness.workspace, "lamp.md", BO)
    await harness.draft.notifications.watch(harness.workspace, "lamp.md", ANN)
    first = await harness.send_message(thread, "Hello?", ANN)
    second = await harness.send_message(thread, "Here too?", BO)

    def notified(person: str) -> list[tuple[str, str]]:
        return [(one.message, one.kind) for one in reversed(harness.draft.notifications.of_person(person))]

    assert notified("bo") == [
        (first.turn, WATCHED_DOCUMENT),
        (first.reply, WATCHED_DOCUMENT),
        (second.reply, OWN_THREAD),
    ]
    assert notified("ann") == [(first.reply, OWN_THREAD), (second.turn, OWN_THREAD), (second.reply, OWN_THREAD)]
    (describe,) = harness.draft.notices.values()
    given = harness.store.reader.read(kinds=list(harness.draft.notices))
    described = [notice for event in given if (notice := describe(event)) is not None]
    to_bo = [notice for notice in described if notice.person == "bo"]
    assert [notice.can_wait for notice in to_bo] == [True, True, False]
    assert "lamp.md" in to_bo[0].text and "which you watch" in to_bo[0].text
    assert "Mara answered in" in to_bo[2].text and "(lamp.md)" in to_bo[2].text
    await harness.draft.notifications.mark_read(BO)
    assert harness.draft.notifications.of_person("bo", unread=True) == []
    await harness.draft.notifications.watch(harness.workspace, "lamp.md", BO, watching=False)
    assert harness.draft.notifications.watchers(harness.workspace, "lamp.md") == {"ann"}


async def test_f4_a_repeated_key_sends_the_message_once(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    first = await harness.send_message(thread, "Hello?", key="k1")
    assert await harness.send_message(thread, "Hello?", key="k1") == first
    assert len(script.requests) == 1


async def test_f3_a_thread_keeps_its_position_or_is_orphaned(harness: DraftHarness) -> None:
    await harness.open_thread()
    at = LAMP.index("The boats")
    selection = Span(at, len(LAMP) - 1)
    thread = await harness.draft.threads.open_thread(
        harness.workspace, "lamp.md", [Member(bot=harness.characters[0].id)], ANN, selection=selection
    )

    async def current_text() -> str | None:
        version: DocumentVersion = await harness.draft.documents.read(harness.workspace, "lamp.md")
        anchor = harness.draft.threads.current_anchor(thread, version)
        return anchor.exact if anchor else None

    await harness.replace_text("# The lamp", "# The old lamp")
    assert await current_text() == "The boats come late in winter."
    await harness.replace_text("come late in winter", "come late in the winter")
    assert await current_text() == "The boats come late in the winter."
    await harness.replace_text("The boats come late in the winter.", "Gone.")
    assert await current_text() is None


async def test_f2_invalid_messages_and_threads_are_refused(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    with pytest.raises(BadPoint):
        await harness.draft.threads.send_message(thread.room, "  ", ANN)
    with pytest.raises(NoSuchRoom):
        await harness.draft.threads.send_message("room:none", "x", ANN)
    with pytest.raises(NoSuchCharacter):
        await harness.draft.threads.open_thread(harness.workspace, "lamp.md", [], ANN)
    with pytest.raises(PositionUnknown):
        await harness.draft.threads.send_message(thread.room, "x", ANN, selection=Span(5, 100_000))
    await harness.draft.threads.send_message(thread.room, "x", ANN)
    with pytest.raises(Busy):
        await harness.draft.threads.send_message(thread.room, "y", ANN)
    await harness.draft.replies.wait(thread.room)
    await harness.run_jobs()
