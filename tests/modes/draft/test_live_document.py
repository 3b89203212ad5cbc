"""Typing together: every keystroke once, whoever is behind catches up, and what Git has is what was typed. F9"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.draft import LiveDocumentGone, Update
from coterie.modes.draft.diff import TextEdit, edits_between, merge_keeping_both, word_diff
from coterie.modes.draft.errors import BadKeystrokes
from coterie.modes.draft.git import CommitMessage
from coterie.modes.draft.live_document import (
    ChangeSection,
    LiveDocument,
    apply_changes,
    changes_from_edits,
)
from tests.modes.draft.conftest import ANN, BO, LAMP, DraftHarness, change

TEXTS = st.text(st.sampled_from("ab \n.é語🦀\r"), max_size=30)


def put(text: str, at: int, words: str) -> list[ChangeSection]:
    return changes_from_edits(text, [TextEdit(at, at, words)])


@given(TEXTS, TEXTS)
def test_edits_become_keystrokes_that_do_the_same(old: str, new: str) -> None:
    assert apply_changes(old, changes_from_edits(old, edits_between(old, new))) == new


@given(TEXTS, TEXTS, TEXTS)
def test_what_both_wrote_is_kept(base: str, ours: str, theirs: str) -> None:
    together = merge_keeping_both(base, ours, theirs)
    assert merge_keeping_both(base, ours, base) == ours
    assert merge_keeping_both(base, base, theirs) == theirs
    for edit in [*edits_between(base, ours), *edits_between(base, theirs)]:
        assert edit.text in together


@given(TEXTS, TEXTS)
def test_f14_wording_holds_both_texts(original: str, proposed: str) -> None:
    pieces = word_diff(original, proposed)
    assert "".join(text for mark, text in pieces if mark != "+") == original
    assert "".join(text for mark, text in pieces if mark != "-") == proposed


@pytest.mark.parametrize("changes", [[3], [100], [-1], [[-1], 5], [5, ["x"]], [5, [0, "more"], 1]])
def test_keystrokes_about_another_text_are_refused(changes: list[ChangeSection]) -> None:
    with pytest.raises(BadKeystrokes):
        apply_changes("five!", changes)


def test_half_a_character_becomes_one_that_can_be_written() -> None:
    sheet = LiveDocument("a.md", "main", "x", "blob", "x")
    sheet.add_updates([Update("one", put("x", 1, "\ud83e"))], ANN, None)
    assert sheet.text == "x\ufffd"
    assert [apply_changes("x\ud83e", update.changes) for update in sheet.updates_since(1) or []] == ["x\ufffd"]


async def test_f9_whoever_is_behind_is_told_and_loses_nothing(stage: DraftHarness) -> None:
    await stage.begin()
    draft = stage.draft
    sheet = await draft.documents.live_document(stage.workspace, "lamp.md")
    end = len(LAMP)
    assert await draft.documents.add_updates(stage.workspace, sheet, 0, [Update("ann", put(LAMP, end, "Ann."))], ANN)
    assert not await draft.documents.add_updates(stage.workspace, sheet, 0, [Update("bo", put(LAMP, end, "Bo."))], BO)
    (missed,) = sheet.updates_since(0) or []
    caught_up = apply_changes(LAMP, missed.changes)
    assert await draft.documents.add_updates(stage.workspace, sheet, 1, [Update("bo", put(caught_up, 0, "Bo."))], BO)
    await draft.documents.commit_typing(stage.workspace, "lamp.md", "main")
    assert stage.text() == "Bo." + LAMP + "Ann."
    assert not sheet.unsaved
    (newest, *_) = draft.workspaces.repository(stage.workspace).history("main")
    assert (newest.author, newest.trailers["Co-authored-by"]) == ("Ann", "Bo <bo@coterie.invalid>")


async def test_f9_what_was_typed_is_committed_before_anything_is_decided(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (proposed,) = await stage.proposals(thread, change("Nobody asks.", "Nobody dares."))
    sheet = await stage.draft.documents.live_document(stage.workspace, "lamp.md")
    typed = Update("ann", put(LAMP, 0, "Typed.\n"))
    await stage.draft.documents.add_updates(stage.workspace, sheet, 0, [typed], ANN, thread.room)
    await stage.draft.proposals.accept(proposed.id, BO)
    assert stage.text() == "Typed.\n" + LAMP.replace("Nobody asks.", "Nobody dares.")
    assert sheet.text == stage.text()
    assert sheet.saved_version == sheet.version
    seen = LAMP
    for update in sheet.updates_since(0) or []:
        seen = apply_changes(seen, update.changes)
    assert seen == stage.text()
    assert [note.text for note in stage.draft.thread_queries.notes(thread.room)] == ["Ann edited the document."]
    await stage.draft.proposals.undo(proposed.id, BO)
    assert sheet.text == stage.text() == "Typed.\n" + LAMP


async def test_f9_what_plain_git_wrote_meanwhile_is_merged_in(stage: DraftHarness) -> None:
    await stage.begin()
    sheet = await stage.draft.documents.live_document(stage.workspace, "lamp.md")
    await stage.draft.documents.add_updates(
        stage.workspace, sheet, 0, [Update("ann", put(LAMP, len(LAMP), "Ann."))], ANN
    )
    # Behind the sheet's back, in the same place and in another.
    behind = LAMP.replace("# The lamp", "# The lamp at sea") + "Git."
    committer = stage.draft.workspaces.committer(stage.workspace)

    committer.write("lamp.md", "main", lambda _: behind, BO.author, CommitMessage("By hand"), stage.clock.now())
    await stage.draft.documents.commit_typing(stage.workspace, "lamp.md", "main")
    assert stage.text() == sheet.text == LAMP.replace("# The lamp", "# The lamp at sea") + "Ann.Git."


async def test_f9_numbers_of_an_earlier_run_mean_nothing(stage: DraftHarness) -> None:
    await stage.begin()
    sheet = await stage.draft.documents.live_document(stage.workspace, "lamp.md")
    await stage.draft.documents.add_updates(stage.workspace, sheet, 0, [Update("ann", put(LAMP, 0, "Kept. "))], ANN)
    await stage.draft.close()
    assert stage.text() == "Kept. " + LAMP
    with pytest.raises(LiveDocumentGone):
        stage.draft.documents.live.of_epoch(stage.workspace, "lamp.md", "main", sheet.epoch)
