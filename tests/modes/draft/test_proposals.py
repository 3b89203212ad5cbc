"""Accepting, declining, undoing, writing by hand. F7–F10"""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from coterie.modes.draft import Clash, NotPending, StaleChange, Unplaced
from coterie.modes.draft.git import CHANGE_TRAILER, PROPOSED_BY_TRAILER, THREAD_TRAILER, UNDOES_TRAILER, CommitMessage
from tests.modes.draft.conftest import ANN, BO, LAMP, DraftHarness, change

NIGHTS = "The lamp burns every night, and every night it burns."


async def test_f8_accept_makes_one_commit_that_leads_back_to_the_talk(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change(NIGHTS, "The lamp burns every night.", "It says it twice."))
    accepted = await stage.draft.proposals.accept(one.id, BO)
    assert accepted.state == "accepted"
    assert stage.text() == LAMP.replace(NIGHTS, "The lamp burns every night.")
    last, *_ = stage.draft.workspaces.repository(stage.workspace).history("main")
    assert (last.id, last.author, last.subject) == (accepted.accepted_commit, "Bo", "It says it twice.")
    assert last.trailers == {CHANGE_TRAILER: one.id, THREAD_TRAILER: thread.id, PROPOSED_BY_TRAILER: "Mara"}
    again = await stage.draft.proposals.accept(one.id, BO)  # clicked twice
    assert again.accepted_commit == accepted.accepted_commit
    assert len(stage.draft.workspaces.repository(stage.workspace).history("main")) == 2
    with pytest.raises(NotPending):
        await stage.draft.proposals.decline(one.id, ANN)


async def test_f8_edit_and_accept(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change("Nobody asks.", "Who asks?"))
    accepted = await stage.draft.proposals.accept(one.id, ANN, text="Why ask?")
    assert (accepted.state, accepted.text) == ("edited-and-accepted", "Why ask?")
    assert "Why ask?" in stage.text()


async def test_f8_what_the_document_says_already_is_no_commit(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change("Nobody asks.", "Who asks?"))
    with pytest.raises(NotPending):
        await stage.draft.proposals.accept(one.id, ANN, text="Nobody asks.")
    assert len(stage.draft.workspaces.repository(stage.workspace).history("main")) == 1


async def test_f8_accept_all_in_document_order_one_commit_each(stage: DraftHarness) -> None:
    thread = await stage.begin()
    await stage.proposals(
        thread,
        change("The boats", "Boats"),
        change("it. Nobody asks.", "it."),
        change("who lights it. Nobody asks", "why. Nobody asks"),
    )
    done = await stage.draft.proposals.accept_all(thread.room, ANN)
    # The overlapping two cannot both be: the first in the document wins, the other is stale and still pending.
    assert [one.proposed for one in done] == ["why. Nobody asks", "Boats"]
    assert len(stage.draft.workspaces.repository(stage.workspace).history("main")) == 3
    left = [one for one in stage.draft.proposal_queries.of_thread(thread.room) if one.state == "pending"]
    assert [(one.proposed, one.fresh) for one in left] == [("it.", False)]


async def test_f8_overlapping_proposals_are_judged_after_each_accept(stage: DraftHarness) -> None:
    thread = await stage.begin()
    whole, part = await stage.proposals(
        thread,
        change("Nobody knows who lights it. Nobody asks.", "It is a riddle."),
        change("Nobody asks.", "Who asks?"),
    )
    await stage.draft.proposals.accept(part.id, ANN)
    stale = stage.draft.proposal_queries.proposal(whole.id)
    assert stale.state == "pending"
    assert stale.stale_since is not None
    with pytest.raises(StaleChange):
        await stage.draft.proposals.accept(whole.id, ANN)
    await stage.draft.proposals.undo(part.id, ANN)  # the text is back, so it is fresh again (F7)
    assert stage.draft.proposal_queries.proposal(whole.id).fresh
    await stage.draft.proposals.accept(whole.id, ANN)
    assert "It is a riddle." in stage.text()


async def test_f8_undo_is_a_commit_and_keeps_what_came_after(stage: DraftHarness) -> None:
    thread = await stage.begin()
    one, other = await stage.proposals(thread, change("Nobody asks.", "Who asks?"), change("The boats", "Boats"))
    await stage.draft.proposals.accept(one.id, ANN)
    await stage.draft.proposals.accept(other.id, ANN)
    undone = await stage.draft.proposals.undo(one.id, BO)
    assert (undone.state, undone.fresh, undone.exact) == ("pending", True, "Nobody asks.")
    assert stage.text() == LAMP.replace("The boats", "Boats")
    last, *_ = stage.draft.workspaces.repository(stage.workspace).history("main")
    assert last.trailers[UNDOES_TRAILER] == one.id
    again = await stage.draft.proposals.accept(one.id, ANN)
    assert again.state == "accepted"
    assert stage.text() == LAMP.replace("The boats", "Boats").replace("Nobody asks.", "Who asks?")
    await stage.rewrite("Who asks?", "Who would ask?")
    with pytest.raises(Clash):
        await stage.draft.proposals.undo(one.id, ANN)


async def test_f7_stale_and_fresh_again(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change("Nobody asks.", "Who asks?"))
    await stage.rewrite("# The lamp", "# The old lamp")
    assert stage.draft.proposal_queries.proposal(one.id).fresh
    assert stage.draft.proposal_queries.proposal(one.id).start == one.start + 4
    stage.clock.advance(60)
    await stage.rewrite("Nobody asks.", "Some ask.")
    stale = stage.draft.proposal_queries.proposal(one.id)
    assert (stale.state, stale.stale_since) == ("pending", stage.clock.now())
    await stage.rewrite("Some ask.", "Nobody asks.")
    assert stage.draft.proposal_queries.proposal(one.id).fresh


async def test_f7_a_stale_proposal_is_made_anew_in_one_step(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change(NIGHTS, "The lamp burns every night."))
    await stage.rewrite("and every night it burns", "and each night it burns")
    anew = await stage.draft.proposals.repropose(one.id, ANN)
    assert (anew.replaces, anew.how, anew.exact) == (one.id, "fuzzy", NIGHTS.replace("every night it", "each night it"))
    assert stage.draft.proposal_queries.proposal(one.id).state == "withdrawn"
    await stage.draft.proposals.accept(anew.id, ANN)
    assert "The lamp burns every night.\n" in stage.text()
    (gone,) = await stage.proposals(thread, change("The boats come late in winter.", "x"))
    await stage.rewrite("The boats come late in winter.", "Entirely different words stand here.")
    with pytest.raises(Unplaced):
        await stage.draft.proposals.repropose(gone.id, ANN)


async def test_f10_a_decline_is_noted_with_its_comment(stage: DraftHarness) -> None:
    thread = await stage.begin()
    one, other = await stage.proposals(thread, change("Nobody asks.", ""), change("The boats", "Boats"))
    declined = await stage.draft.proposals.decline(one.id, BO, "It matters.")
    assert (declined.state, declined.comment) == ("declined", "It matters.")
    assert [note.text for note in stage.draft.thread_queries.notes(thread.room)] == [
        "Bo declined a proposal: It matters."
    ]
    withdrawn = await stage.draft.proposals.withdraw(other.id, stage.characters[0].id)
    assert withdrawn.state == "withdrawn"


async def test_f8_a_commit_whose_row_a_crash_lost_is_recognised(stage: DraftHarness) -> None:
    thread = await stage.begin()
    one, other = await stage.proposals(thread, change("Nobody asks.", "Who asks?"), change("The boats", "Boats"))
    committer = stage.draft.workspaces.committer(stage.workspace)
    note = CommitMessage("Shorter.", trailers={CHANGE_TRAILER: one.id})
    made = committer.write(
        "lamp.md", "main", lambda _: LAMP.replace("Nobody asks.", "Who asks?"), ANN.author, note, stage.clock.now()
    )
    assert made is not None
    accepted = await stage.draft.proposals.accept(one.id, ANN)
    assert (accepted.state, accepted.accepted_commit, accepted.text) == ("accepted", made.commit, "Who asks?")
    assert len(stage.draft.workspaces.repository(stage.workspace).history("main")) == 2
    assert stage.draft.proposal_queries.proposal(other.id).fresh


async def test_f1_commits_of_plain_git_are_noticed(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change("Nobody asks.", "Who asks?"))
    clone = stage.folder / "clone"
    subprocess.run(["git", "clone", "-q", str(stage.folder / "text"), str(clone)], check=True, capture_output=True)
    (clone / "lamp.md").write_text("A line before.\n\n" + LAMP)
    git = ["git", "-C", str(clone), "-c", "user.name=Cy", "-c", "user.email=cy@example.org"]
    subprocess.run([*git, "commit", "-q", "-a", "-m", "Before"], check=True, capture_output=True)
    subprocess.run([*git, "push", "-q"], check=True, capture_output=True)
    accepted = await stage.draft.proposals.accept(one.id, ANN)
    assert accepted.state == "accepted"
    assert stage.text() == "A line before.\n\n" + LAMP.replace("Nobody asks.", "Who asks?")


async def test_f9_two_people_save_from_one_base(stage: DraftHarness) -> None:
    thread = await stage.begin()
    base = await stage.draft.documents.read(stage.workspace, "lamp.md")
    save = stage.draft.documents.save
    await save(stage.workspace, "lamp.md", "main", LAMP.replace("The boats", "Boats"), base.blob, ANN, thread.room)
    after = await save(stage.workspace, "lamp.md", "main", LAMP.replace("# The", "# A"), base.blob, BO)
    assert after.text == LAMP.replace("The boats", "Boats").replace("# The", "# A")
    assert [note.text for note in stage.draft.thread_queries.notes(thread.room)] == ["Ann edited the document."]
    with pytest.raises(Clash) as clash:
        await save(stage.workspace, "lamp.md", "main", LAMP.replace("The boats", "Ships"), base.blob, BO)
    assert "+Ships come late in winter.\n" in clash.value.difference


async def test_f8_everybody_at_once(stage: DraftHarness) -> None:
    text = "# Lines\n\n" + "".join(f"Line {n} stands here.\n\n" for n in range(12))
    thread = await stage.begin(text=text)
    blocks = [change(f"Line {n} stands here.", f"Line {n} is done.") for n in range(12)]
    proposed = await stage.proposals(thread, *blocks)
    people = [ANN, BO]
    await asyncio.gather(
        *(stage.draft.proposals.accept(one.id, people[n % 2]) for n, one in enumerate(reversed(proposed)))
    )
    assert stage.text() == text.replace("stands here.", "is done.")
    assert len(stage.draft.workspaces.repository(stage.workspace).history("main")) == 13


async def test_f11_a_branch_is_reviewed_and_merged(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change("Nobody asks.", "Who asks?"))
    await stage.draft.documents.create_branch(stage.workspace, "try", "main")
    base = await stage.draft.documents.read(stage.workspace, "lamp.md", "try")
    await stage.draft.documents.save(stage.workspace, "lamp.md", "try", LAMP.replace("# The", "# A"), base.blob, BO)
    await stage.draft.documents.merge(stage.workspace, "try", "main", ANN)
    assert stage.text().startswith("# A lamp")
    assert stage.draft.proposal_queries.proposal(one.id).start == one.start - 2


async def test_accepted_rows_survive_a_restart(stage: DraftHarness) -> None:
    thread = await stage.begin()
    (one,) = await stage.proposals(thread, change("Nobody asks.", "Who asks?"))
    await stage.draft.proposals.accept(one.id, ANN)
    workspace = stage.workspace
    stage.store.close()
    stage.open()
    stage.workspace = workspace
    assert stage.draft.proposal_queries.proposal(one.id).state == "accepted"
