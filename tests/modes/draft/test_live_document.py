"""Live editing: updates, missed updates, and commits of typed text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.draft import LiveDocumentGone, Update
from coterie.modes.draft.committer import Committer
from coterie.modes.draft.diff import TextEdit, edits_between, merge_keeping_both, word_diff
from coterie.modes.draft.errors import InvalidUpdate
from coterie.modes.draft.git import CommitMessage
from coterie.modes.draft.live_document import (
    ChangeSection,
    LiveDocument,
    apply_changes,
    changes_from_edits,
)
from tests.modes.draft.conftest import ANN, BO, LAMP, DraftHarness, change

TEXTS = st.text(st.sampled_from("ab \n.é語🦀\r"), max_size=30)


def insert(text: str, at: int, inserted: str) -> list[ChangeSection]:
    return changes_from_edits(text, [TextEdit(at, at, inserted)])


@given(TEXTS, TEXTS)
def test_edits_become_equivalent_changes(old: str, new: str) -> None:
    assert apply_changes(old, changes_from_edits(old, edits_between(old, new))) == new


@given(TEXTS, TEXTS, TEXTS)
def test_merge_keeping_both_has_the_text_of_both_sides(base: str, ours: str, theirs: str) -> None:
    merged = merge_keeping_both(base, ours, theirs)
    assert merge_keeping_both(base, ours, base) == ours
    assert merge_keeping_both(base, base, theirs) == theirs
    for edit in [*edits_between(base, ours), *edits_between(base, theirs)]:
        assert edit.text in merged


@given(TEXTS, TEXTS)
def test_f14_a_word_diff_contains_both_texts(original: str, proposed: str) -> None:
    parts = word_diff(original, proposed)
    assert "".join(text for mark, text in parts if mark != "+") == original
    assert "".join(text for mark, text in parts if mark != "-") == proposed


@pytest.mark.parametrize("changes", [[3], [100], [-1], [[-1], 5], [5, ["x"]], [5, []], [5, [0, "more"], 1]])
def test_changes_that_do_not_fit_the_text_are_refused(changes: list[ChangeSection]) -> None:
    with pytest.raises(InvalidUpdate):
        apply_changes("five!", changes)


def test_a_lone_surrogate_is_replaced() -> None:
    live = LiveDocument("a.md", "main", "x", "blob", "x")
    live.add_updates([Update("one", insert("x", 1, "\ud83e"))], ANN, None)
    assert live.text == "x\ufffd"
    assert [apply_changes("x\ud83e", update.changes) for update in live.updates_since(1) or []] == ["x\ufffd"]


async def test_f9_a_client_that_is_behind_gets_the_missed_updates(harness: DraftHarness) -> None:
    await harness.open_thread()
    draft = harness.draft
    live = await draft.documents.live_document(harness.workspace, "lamp.md")
    end = len(LAMP)
    assert await draft.documents.add_updates(
        harness.workspace, live, 0, [Update("ann", insert(LAMP, end, "Ann."))], ANN
    )
    assert not await draft.documents.add_updates(
        harness.workspace, live, 0, [Update("bo", insert(LAMP, end, "Bo."))], BO
    )
    (missed,) = live.updates_since(0) or []
    caught_up = apply_changes(LAMP, missed.changes)
    assert await draft.documents.add_updates(
        harness.workspace, live, 1, [Update("bo", insert(caught_up, 0, "Bo."))], BO
    )
    await draft.documents.commit_typing(harness.workspace, "lamp.md", "main")
    assert harness.text() == "Bo." + LAMP + "Ann."
    assert not live.unsaved
    (newest, *_) = draft.workspaces.repository(harness.workspace).history("main")
    assert (newest.author, newest.trailers["Co-authored-by"]) == ("Ann", "Bo <bo@coterie.invalid>")


async def test_f9_typed_text_is_committed_before_an_accept(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (proposed,) = await harness.propose(thread, change("Nobody asks.", "Nobody dares."))
    live = await harness.draft.documents.live_document(harness.workspace, "lamp.md")
    typed = Update("ann", insert(LAMP, 0, "Typed.\n"))
    await harness.draft.documents.add_updates(harness.workspace, live, 0, [typed], ANN, thread.room)
    await harness.draft.proposals.accept(proposed.id, BO)
    assert harness.text() == "Typed.\n" + LAMP.replace("Nobody asks.", "Nobody dares.")
    assert live.text == harness.text()
    assert live.saved_version == live.version
    seen = LAMP
    for update in live.updates_since(0) or []:
        seen = apply_changes(seen, update.changes)
    assert seen == harness.text()
    assert [note.text for note in harness.draft.thread_queries.notes(thread.room)] == ["Ann edited the document."]
    await harness.draft.proposals.undo(proposed.id, BO)
    assert live.text == harness.text() == "Typed.\n" + LAMP


async def test_f9_a_commit_of_plain_git_is_merged_with_typed_text(harness: DraftHarness) -> None:
    await harness.open_thread()
    live = await harness.draft.documents.live_document(harness.workspace, "lamp.md")
    await harness.draft.documents.add_updates(
        harness.workspace, live, 0, [Update("ann", insert(LAMP, len(LAMP), "Ann."))], ANN
    )
    # A commit of plain git, at the same position and at another one.
    committed = LAMP.replace("# The lamp", "# The lamp at sea") + "Git."
    committer = Committer(harness.draft.workspaces.repository(harness.workspace))
    committer.write("lamp.md", "main", lambda _: committed, BO.author, CommitMessage("By hand"), harness.clock.now())
    await harness.draft.documents.commit_typing(harness.workspace, "lamp.md", "main")
    assert harness.text() == live.text == LAMP.replace("# The lamp", "# The lamp at sea") + "Ann.Git."


async def test_f9_update_numbers_of_an_earlier_run_are_refused(harness: DraftHarness) -> None:
    await harness.open_thread()
    live = await harness.draft.documents.live_document(harness.workspace, "lamp.md")
    await harness.draft.documents.add_updates(
        harness.workspace, live, 0, [Update("ann", insert(LAMP, 0, "Kept. "))], ANN
    )
    await harness.draft.close()
    assert harness.text() == "Kept. " + LAMP
    with pytest.raises(LiveDocumentGone):
        harness.draft.documents.live.of_epoch(harness.workspace, "lamp.md", "main", live.epoch)


async def test_typed_text_whose_commit_fails_is_committed_later(
    harness: DraftHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.modes.draft.live_document.COMMIT_PAUSE_S", 0.01)
    await harness.open_thread()
    documents = harness.draft.documents
    commit, faults = documents.live._commit, iter([RuntimeError("fault")])

    async def failing_once(*arguments: Any) -> Any:
        if (fault := next(faults, None)) is not None:
            raise fault
        return await commit(*arguments)

    monkeypatch.setattr(documents.live, "_commit", failing_once)
    live = await documents.live_document(harness.workspace, "lamp.md")
    await documents.add_updates(harness.workspace, live, 0, [Update("ann", insert(LAMP, 0, "Kept. "))], ANN)
    async with asyncio.timeout(20):
        while harness.text() == LAMP:
            await asyncio.sleep(0.01)
    assert harness.text() == "Kept. " + LAMP
    assert list(faults) == []
