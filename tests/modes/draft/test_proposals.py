"""Proposals: accept, decline, withdraw, undo, propose again; saving and merging documents."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from coterie.modes.draft import EditConflict, NotPending, PositionUnknown, StaleProposal
from coterie.modes.draft.committer import Committer
from coterie.modes.draft.git import (
    CHANGE_TRAILER,
    PROPOSED_BY_TRAILER,
    THREAD_TRAILER,
    UNDOES_TRAILER,
    CommitMessage,
)
from tests.modes.draft.conftest import ANN, BO, LAMP, DraftHarness, change

NIGHTS = "The lamp burns every night, and every night it burns."


async def test_f8_accept_makes_one_commit_that_refers_to_its_thread(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change(NIGHTS, "The lamp burns every night.", "It says it twice."))
    accepted = await harness.draft.proposals.accept(one.id, BO)
    assert accepted.state == "accepted"
    assert harness.text() == LAMP.replace(NIGHTS, "The lamp burns every night.")
    last, *_ = harness.draft.workspaces.repository(harness.workspace).history("main")
    assert (last.id, last.author, last.subject) == (accepted.accepted_commit, "Bo", "It says it twice.")
    assert last.trailers == {CHANGE_TRAILER: one.id, THREAD_TRAILER: thread.id, PROPOSED_BY_TRAILER: "Mara"}
    again = await harness.draft.proposals.accept(one.id, BO)  # accepted twice
    assert again.accepted_commit == accepted.accepted_commit
    assert len(harness.draft.workspaces.repository(harness.workspace).history("main")) == 2
    with pytest.raises(NotPending):
        await harness.draft.proposals.decline(one.id, ANN)


async def test_f8_edit_and_accept(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change("Nobody asks.", "Who asks?"))
    accepted = await harness.draft.proposals.accept(one.id, ANN, text="Why ask?")
    assert (accepted.state, accepted.text) == ("edited-and-accepted", "Why ask?")
    assert "Why ask?" in harness.text()


async def test_f8_accepting_unchanged_text_makes_no_commit(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change("Nobody asks.", "Who asks?"))
    with pytest.raises(NotPending):
        await harness.draft.proposals.accept(one.id, ANN, text="Nobody asks.")
    assert len(harness.draft.workspaces.repository(harness.workspace).history("main")) == 1


async def test_f8_accept_all_in_document_order_one_commit_each(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    await harness.propose(
        thread,
        change("The boats", "Boats"),
        change("it. Nobody asks.", "it."),
        change("who lights it. Nobody asks", "why. Nobody asks"),
    )
    accepted = await harness.draft.proposals.accept_all(thread.room, ANN)
    # Of two overlapping proposals, the first in the document is accepted; the other is stale and still pending.
    assert [one.proposed for one in accepted] == ["why. Nobody asks", "Boats"]
    assert len(harness.draft.workspaces.repository(harness.workspace).history("main")) == 3
    left = [one for one in harness.draft.proposal_queries.of_thread(thread.room) if one.state == "pending"]
    assert [(one.proposed, one.fresh) for one in left] == [("it.", False)]


async def test_f8_accept_all_ends_with_a_proposal_that_changes_nothing(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    await harness.propose(thread, change("Nobody  asks.", "Nobody asks."), change("The boats", "Boats"))
    async with asyncio.timeout(10):
        accepted = await harness.draft.proposals.accept_all(thread.room, ANN)
    assert [one.proposed for one in accepted] == ["Boats"]
    assert [one.state for one in harness.draft.proposal_queries.of_thread(thread.room)] == ["pending", "accepted"]


async def test_f8_overlapping_proposals_are_checked_after_each_accept(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    whole, part = await harness.propose(
        thread,
        change("Nobody knows who lights it. Nobody asks.", "It is a riddle."),
        change("Nobody asks.", "Who asks?"),
    )
    await harness.draft.proposals.accept(part.id, ANN)
    stale = harness.draft.proposal_queries.proposal(whole.id)
    assert stale.state == "pending"
    assert stale.stale_since is not None
    with pytest.raises(StaleProposal):
        await harness.draft.proposals.accept(whole.id, ANN)
    await harness.draft.proposals.undo(part.id, ANN)  # restores the text, so the other is fresh again
    assert harness.draft.proposal_queries.proposal(whole.id).fresh
    await harness.draft.proposals.accept(whole.id, ANN)
    assert "It is a riddle." in harness.text()


async def test_f8_undo_is_a_commit_and_keeps_later_changes(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    one, other = await harness.propose(thread, change("Nobody asks.", "Who asks?"), change("The boats", "Boats"))
    await harness.draft.proposals.accept(one.id, ANN)
    await harness.draft.proposals.accept(other.id, ANN)
    undone = await harness.draft.proposals.undo(one.id, BO)
    assert (undone.state, undone.fresh, undone.exact) == ("pending", True, "Nobody asks.")
    assert harness.text() == LAMP.replace("The boats", "Boats")
    last, *_ = harness.draft.workspaces.repository(harness.workspace).history("main")
    assert last.trailers[UNDOES_TRAILER] == one.id
    again = await harness.draft.proposals.accept(one.id, ANN)
    assert again.state == "accepted"
    assert harness.text() == LAMP.replace("The boats", "Boats").replace("Nobody asks.", "Who asks?")
    await harness.replace_text("Who asks?", "Who would ask?")
    with pytest.raises(EditConflict):
        await harness.draft.proposals.undo(one.id, ANN)


async def test_f7_a_proposal_becomes_stale_and_fresh_again(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change("Nobody asks.", "Who asks?"))
    await harness.replace_text("# The lamp", "# The old lamp")
    assert harness.draft.proposal_queries.proposal(one.id).fresh
    assert harness.draft.proposal_queries.proposal(one.id).start == one.start + 4
    harness.clock.advance(60)
    await harness.replace_text("Nobody asks.", "Some ask.")
    stale = harness.draft.proposal_queries.proposal(one.id)
    assert (stale.state, stale.stale_since) == ("pending", harness.clock.now())
    await harness.replace_text("Some ask.", "Nobody asks.")
    assert harness.draft.proposal_queries.proposal(one.id).fresh


async def test_f7_a_stale_proposal_is_proposed_again(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change(NIGHTS, "The lamp burns every night."))
    await harness.replace_text("and every night it burns", "and each night it burns")
    again = await harness.draft.proposals.repropose(one.id, ANN)
    assert (again.replaces, again.how, again.exact) == (
        one.id,
        "fuzzy",
        NIGHTS.replace("every night it", "each night it"),
    )
    assert harness.draft.proposal_queries.proposal(one.id).state == "withdrawn"
    await harness.draft.proposals.accept(again.id, ANN)
    assert "The lamp burns every night.\n" in harness.text()
    (gone,) = await harness.propose(thread, change("The boats come late in winter.", "x"))
    await harness.replace_text("The boats come late in winter.", "Entirely different words stand here.")
    with pytest.raises(PositionUnknown):
        await harness.draft.proposals.repropose(gone.id, ANN)


async def test_f10_a_decline_is_noted_with_its_comment(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    one, other = await harness.propose(thread, change("Nobody asks.", ""), change("The boats", "Boats"))
    declined = await harness.draft.proposals.decline(one.id, BO, "It matters.")
    assert (declined.state, declined.comment) == ("declined", "It matters.")
    assert [note.text for note in harness.draft.thread_queries.notes(thread.room)] == [
        "Bo declined a proposal: It matters."
    ]
    withdrawn = await harness.draft.proposals.withdraw(other.id, harness.characters[0].id)
    assert withdrawn.state == "withdrawn"


async def test_f8_a_commit_without_an_event_is_recovered(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    one, other = await harness.propose(thread, change("Nobody asks.", "Who asks?"), change("The boats", "Boats"))
    committer = Committer(harness.draft.workspaces.repository(harness.workspace))
    message = CommitMessage("Shorter.", trailers={CHANGE_TRAILER: one.id})
    written = committer.write(
        "lamp.md", "main", lambda _: LAMP.replace("Nobody asks.", "Who asks?"), ANN.author, message, harness.clock.now()
    )
    assert written is not None
    accepted = await harness.draft.proposals.accept(one.id, ANN)
    assert (accepted.state, accepted.accepted_commit, accepted.text) == (
        "accepted",
        written.version.commit,
        "Who asks?",
    )
    assert len(harness.draft.workspaces.repository(harness.workspace).history("main")) == 2
    assert harness.draft.proposal_queries.proposal(other.id).fresh


async def test_f1_commits_of_plain_git_are_detected(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change("Nobody asks.", "Who asks?"))
    clone = harness.folder / "clone"
    subprocess.run(["git", "clone", "-q", str(harness.folder / "text"), str(clone)], check=True, capture_output=True)
    (clone / "lamp.md").write_text("A line before.\n\n" + LAMP)
    git = ["git", "-C", str(clone), "-c", "user.name=Cy", "-c", "user.email=cy@example.org"]
    subprocess.run([*git, "commit", "-q", "-a", "-m", "Before"], check=True, capture_output=True)
    subprocess.run([*git, "push", "-q"], check=True, capture_output=True)
    accepted = await harness.draft.proposals.accept(one.id, ANN)
    assert accepted.state == "accepted"
    assert harness.text() == "A line before.\n\n" + LAMP.replace("Nobody asks.", "Who asks?")


async def test_f9_two_people_save_from_the_same_base(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    base = await harness.draft.documents.read(harness.workspace, "lamp.md")
    save = harness.draft.documents.save
    await save(harness.workspace, "lamp.md", "main", LAMP.replace("The boats", "Boats"), base.blob, ANN, thread.room)
    after = await save(harness.workspace, "lamp.md", "main", LAMP.replace("# The", "# A"), base.blob, BO)
    assert after.text == LAMP.replace("The boats", "Boats").replace("# The", "# A")
    assert [note.text for note in harness.draft.thread_queries.notes(thread.room)] == ["Ann edited the document."]
    with pytest.raises(EditConflict) as error:
        await save(harness.workspace, "lamp.md", "main", LAMP.replace("The boats", "Ships"), base.blob, BO)
    assert "+Ships come late in winter.\n" in error.value.difference


async def test_f8_concurrent_accepts(harness: DraftHarness) -> None:
    text = "# Lines\n\n" + "".join(f"Line {n} stands here.\n\n" for n in range(12))
    thread = await harness.open_thread(text=text)
    blocks = [change(f"Line {n} stands here.", f"Line {n} is done.") for n in range(12)]
    proposed = await harness.propose(thread, *blocks)
    people = [ANN, BO]
    await asyncio.gather(
        *(harness.draft.proposals.accept(one.id, people[n % 2]) for n, one in enumerate(reversed(proposed)))
    )
    assert harness.text() == text.replace("stands here.", "is done.")
    assert len(harness.draft.workspaces.repository(harness.workspace).history("main")) == 13


async def test_f11_a_branch_is_reviewed_and_merged(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change("Nobody asks.", "Who asks?"))
    await harness.draft.workspaces.create_branch(harness.workspace, "try", "main")
    base = await harness.draft.documents.read(harness.workspace, "lamp.md", "try")
    await harness.draft.documents.save(harness.workspace, "lamp.md", "try", LAMP.replace("# The", "# A"), base.blob, BO)
    await harness.draft.documents.merge(harness.workspace, "try", "main", ANN)
    assert harness.text().startswith("# A lamp")
    assert harness.draft.proposal_queries.proposal(one.id).start == one.start - 2


async def test_an_accepted_proposal_survives_a_restart(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    (one,) = await harness.propose(thread, change("Nobody asks.", "Who asks?"))
    await harness.draft.proposals.accept(one.id, ANN)
    workspace = harness.workspace
    harness.store.close()
    harness.open()
    harness.workspace = workspace
    assert harness.draft.proposal_queries.proposal(one.id).state == "accepted"
