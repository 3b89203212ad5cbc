"""Documents in Git. F1, F8"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import git_accepts
from coterie.modes.draft.diff import apply_edits, edits_between, merge_texts, unified_diff
from coterie.modes.draft.errors import Clash, NoSuchDocument, NotADocument, WorkspaceError
from coterie.modes.draft.git import (
    CHANGE_TRAILER,
    MAIN_BRANCH,
    PROPOSED_BY_TRAILER,
    THREAD_TRAILER,
    CommitMessage,
    Committer,
    DocumentRepository,
    DocumentVersion,
    GitAuthor,
)

ANN = GitAuthor("Ann", "ann@example.org")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=Bo", "-c", "user.email=bo@example.org", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def saying(text: str) -> Callable[[DocumentVersion | None], str]:
    return lambda _: text


def appending(line: str) -> Callable[[DocumentVersion | None], str]:
    return lambda version: (version.text if version else "") + line


@pytest.fixture
def workspace(tmp_path: Path) -> DocumentRepository:
    return DocumentRepository(tmp_path / "text")


@pytest.fixture
def committer(workspace: DocumentRepository) -> Committer:
    return Committer(workspace, durable=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Somebody's repository, with a history of its own."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "plan.md").write_text("# The plan\n\nFirst.\n")
    (folder / "code.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Begin")
    (folder / "plan.md").write_text("# The plan\n\nFirst.\n\nSecond.\n")
    git(folder, "commit", "-q", "-a", "-m", "Go on")
    return folder


def test_f1_plain_git_reads_what_was_written(workspace: DocumentRepository, committer: Committer) -> None:
    committer.write("notes/lamp.md", MAIN_BRANCH, saying("# The lamp\n"), ANN, CommitMessage("Begin"), NOON)
    note = CommitMessage(
        "Say when",
        "Nobody knew when.\nNow they do.",
        {CHANGE_TRAILER: "c1", THREAD_TRAILER: "t1", PROPOSED_BY_TRAILER: "Mara"},
    )
    written = committer.write(
        "notes/lamp.md", MAIN_BRANCH, saying("# The lamp\n\nIt burns at night.\n"), ANN, note, NOON
    )
    assert written is not None
    assert git(workspace.folder, "show", "main:notes/lamp.md") == "# The lamp\n\nIt burns at night.\n"
    assert git(workspace.folder, "log", "-1", "--format=%an <%ae>%n%s%n%b") == (
        "Ann <ann@example.org>\nSay when\nNobody knew when.\nNow they do.\n\n"
        "Coterie-Change: c1\nCoterie-Thread: t1\nProposed-by: Mara\n\n"
    )
    trailers = git(workspace.folder, "log", "-1", "--format=%(trailers:key=Coterie-Change,valueonly)")
    assert trailers.strip() == "c1"
    assert git(workspace.folder, "fsck", "--strict") == ""
    assert workspace.documents(MAIN_BRANCH) == [("notes/lamp.md", "The lamp")]
    assert [one.subject for one in workspace.history(MAIN_BRANCH)] == ["Say when", "Begin"]


def test_f1_no_text_becomes_a_trailer_of_ours(workspace: DocumentRepository, committer: Committer) -> None:
    note = CommitMessage(
        "Fine\nCoterie-Change: forged", "So.\n\nCoterie-Change: forged", {CHANGE_TRAILER: "real\nThread: x"}
    )
    committer.write("a.md", MAIN_BRANCH, saying("a"), ANN, note, NOON)
    assert workspace.history(MAIN_BRANCH)[0].trailers == {CHANGE_TRAILER: "real Thread: x"}


def test_f1_a_name_that_git_cannot_take_is_no_reason_not_to_write(
    workspace: DocumentRepository, committer: Committer
) -> None:
    for number, name in enumerate(("<b>Eve</b>", "<>", "")):
        committer.write(
            "a.md", MAIN_BRANCH, saying(f"{number}\n"), GitAuthor(name, "e@example.org"), CommitMessage("Write"), NOON
        )
    assert [one.author for one in workspace.history(MAIN_BRANCH)] == ["Somebody", "Somebody", "bEve/b"]


def test_f1_the_documents_changed_last_are_known(
    workspace: DocumentRepository, committer: Committer, clone: Path
) -> None:
    assert workspace.recent(MAIN_BRANCH, 4) == []
    for number, path in enumerate(("a.md", "b/c.md", "d.md", "a.md")):
        when = NOON + timedelta(minutes=number)
        committer.write(path, MAIN_BRANCH, saying(f"# {path} {number}\n"), ANN, CommitMessage("Write"), when)
    found = workspace.recent(MAIN_BRANCH, 2)
    assert [(one.path, one.title) for one in found] == [("a.md", "a.md 3"), ("d.md", "d.md 2")]
    assert found[0].changed_at == int((NOON + timedelta(minutes=3)).timestamp())
    assert [one.path for one in workspace.recent(MAIN_BRANCH, 9)] == ["a.md", "d.md", "b/c.md"]
    assert [one.path for one in DocumentRepository(clone).recent("trunk", 9)] == ["plan.md"]
    git(clone, "rm", "-q", "plan.md")
    git(clone, "commit", "-q", "-m", "Away with it")
    assert DocumentRepository(clone).recent("trunk", 9) == []


def test_f1_a_clone_is_adopted_without_rewriting_it(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD").strip()
    config = (clone / ".git" / "config").read_text()
    workspace = DocumentRepository(clone)
    assert workspace.main_branch == "trunk"
    assert workspace.documents("trunk") == [("plan.md", "The plan")]
    committer = Committer(workspace, durable=False)
    text = workspace.read("plan.md", "trunk").text
    committer.write("plan.md", "trunk", saying(text + "\nThird.\n"), ANN, CommitMessage("Go further"), NOON)
    assert git(clone, "rev-parse", "HEAD~1").strip() == before
    assert git(clone, "log", "--format=%s").split("\n")[:3] == ["Go further", "Go on", "Begin"]
    assert (clone / ".git" / "config").read_text() == config
    # Its branch is checked out, so the file follows and nothing looks changed.
    assert (clone / "plan.md").read_text() == text + "\nThird.\n"
    assert git(clone, "status", "--porcelain") == ""


def test_f1_a_file_that_somebody_is_editing_is_left_alone(clone: Path) -> None:
    (clone / "plan.md").write_text("Half a thought")
    workspace = DocumentRepository(clone)
    Committer(workspace, durable=False).write(
        "plan.md", "trunk", saying("# Other\n"), ANN, CommitMessage("Other"), NOON
    )
    assert (clone / "plan.md").read_text() == "Half a thought"
    assert workspace.read("plan.md", "trunk").text == "# Other\n"


def test_f1_concurrent_writers_lose_nothing(workspace: DocumentRepository) -> None:
    Committer(workspace, durable=False).write("a.md", MAIN_BRANCH, saying(""), ANN, CommitMessage("Begin"), NOON)

    def write(number: int) -> None:
        committer = Committer(workspace, durable=False)
        for turn in range(5):
            line = f"{number}.{turn}\n"
            committer.write("a.md", MAIN_BRANCH, appending(line), ANN, CommitMessage(line), NOON)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = workspace.read("a.md", MAIN_BRANCH).text.split()
    assert sorted(lines) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(5))
    assert len(workspace.history(MAIN_BRANCH)) == 21


def test_f1_a_head_that_moved_meanwhile_is_seen(clone: Path) -> None:
    """Plain git knows nothing of our lock: the compare-and-swap is what keeps its commit."""
    workspace = DocumentRepository(clone)
    seen: list[str] = []

    def make(now: DocumentVersion | None) -> str:
        assert now is not None
        seen.append(now.text)
        if len(seen) == 1:
            (clone / "plan.md").write_text("# The plan\n\nBo was quicker.\n")
            git(clone, "commit", "-q", "-a", "-m", "Bo")
        return now.text + "\nAnn too.\n"

    Committer(workspace, durable=False).write("plan.md", "trunk", make, ANN, CommitMessage("Ann"), NOON)
    assert len(seen) == 2
    assert workspace.read("plan.md", "trunk").text == "# The plan\n\nBo was quicker.\n\nAnn too.\n"


def test_f1_a_lock_that_a_killed_process_left_is_cleared(workspace: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, saying("one"), ANN, CommitMessage("One"), NOON)
    left = workspace.git_folder / "refs" / "heads" / "main.lock"
    left.write_text("")
    os.utime(left, (0, 0))
    assert committer.write("a.md", MAIN_BRANCH, saying("two"), ANN, CommitMessage("Two"), NOON) is not None
    assert not left.exists()


def test_f8_killed_processes_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Small; `python -m bench.git_accepts` runs 16 processes and 10,000 accepts."""
    figures = git_accepts.run(tmp_path, accepts=16, processes=2, wanted_kills=2)
    assert (figures["accepts"], figures["lost"], figures["doubled"], figures["fsck_clean"]) == (16, 0, 0, True)


def test_f8_a_commit_without_its_row_is_recognised(workspace: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, saying("one"), ANN, CommitMessage("One"), NOON)
    base = workspace.head(MAIN_BRANCH)
    committer.write(
        "a.md", MAIN_BRANCH, saying("two"), ANN, CommitMessage("Two", trailers={CHANGE_TRAILER: "c7"}), NOON
    )
    found = workspace.find_changes(MAIN_BRANCH, {"c7", "c8"}, until=base)
    assert {change: revision.id for change, revision in found.items()} == {"c7": workspace.head(MAIN_BRANCH)}


def test_f11_branches_merge_fast_forward_or_with_a_commit(workspace: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, saying("one\n\ntwo\n\nthree\n"), ANN, CommitMessage("Begin"), NOON)
    committer.create_branch("try/this", MAIN_BRANCH)
    committer.write("a.md", "try/this", saying("ONE\n\ntwo\n\nthree\n"), ANN, CommitMessage("One"), NOON)
    assert committer.merge("try/this", MAIN_BRANCH, ANN, NOON) == workspace.head("try/this")
    committer.write("a.md", MAIN_BRANCH, saying("ONE\n\ntwo\n\nTHREE\n"), ANN, CommitMessage("Three"), NOON)
    committer.write("a.md", "try/this", saying("One\n\ntwo\n\nthree\n"), ANN, CommitMessage("One"), NOON)
    committer.merge("try/this", MAIN_BRANCH, ANN, NOON)
    assert workspace.read("a.md", MAIN_BRANCH).text == "One\n\ntwo\n\nTHREE\n"
    assert workspace.history(MAIN_BRANCH)[0].subject == "Merge try/this into main"
    committer.write("a.md", MAIN_BRANCH, saying("1\n"), ANN, CommitMessage("1"), NOON)
    committer.write("a.md", "try/this", saying("I\n"), ANN, CommitMessage("I"), NOON)
    with pytest.raises(Clash):
        committer.merge("try/this", MAIN_BRANCH, ANN, NOON)
    with pytest.raises(WorkspaceError):
        committer.create_branch("try/this", MAIN_BRANCH)
    with pytest.raises(WorkspaceError):
        committer.create_branch("bad..name", MAIN_BRANCH)


def test_f14_blame_leads_to_the_commit(workspace: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, saying("one\n\ntwo\n"), ANN, CommitMessage("Begin"), NOON)
    committer.write(
        "a.md", MAIN_BRANCH, saying("one\n\nTWO\n"), ANN, CommitMessage("Two", trailers={THREAD_TRAILER: "t9"}), NOON
    )
    blamed = workspace.blame(MAIN_BRANCH, "a.md", 3)
    assert blamed is not None
    assert blamed.trailers[THREAD_TRAILER] == "t9"
    assert workspace.blame(MAIN_BRANCH, "a.md", 99) is None


@pytest.mark.parametrize("path", ["../a.md", "/a.md", "a.txt", ".git/a.md", "a/../b.md", "", "a//b.md", "a\\b.md"])
def test_f1_what_cannot_be_a_document(workspace: DocumentRepository, committer: Committer, path: str) -> None:
    with pytest.raises(NotADocument):
        committer.write(path, MAIN_BRANCH, saying("x"), ANN, CommitMessage("x"), NOON)


def test_f1_what_is_not_there(workspace: DocumentRepository) -> None:
    assert workspace.documents(MAIN_BRANCH) == []
    assert workspace.history(MAIN_BRANCH) == []
    with pytest.raises(NoSuchDocument):
        workspace.read("a.md", MAIN_BRANCH)


def test_f1_what_is_not_text(clone: Path) -> None:
    (clone / "odd.md").write_bytes(b"\xff\xfe")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "Odd")
    with pytest.raises(NotADocument):
        DocumentRepository(clone).read("odd.md", "trunk")


parts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d "]), max_size=12).map("".join)


@given(parts, parts, parts)
def test_f9_a_merge_holds_what_both_changed_or_is_none(base: str, ours: str, theirs: str) -> None:
    both = merge_texts(base, ours, theirs)
    assert merge_texts(base, ours, base) == ours
    assert merge_texts(base, base, theirs) == theirs
    assert merge_texts(base, theirs, ours) == both
    if both is not None and not {e.start for e in edits_between(base, ours)} & {
        e.start for e in edits_between(base, theirs)
    }:
        edits = sorted([*edits_between(base, ours), *edits_between(base, theirs)], key=lambda edit: edit.start)
        assert apply_edits(base, edits) == both


def test_f9_the_same_words_changed_twice_are_no_merge() -> None:
    assert merge_texts("one two\n", "one 2\n", "one II\n") is None
    assert "-one 2\n" in unified_diff("one 2\n", "one II\n", "a.md")


def test_the_repository_is_one_that_libgit2_made(workspace: DocumentRepository) -> None:
    assert pygit2.Repository(str(workspace.folder)).is_bare
