"""Documents in Git: reading, writing, branches, merging texts."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import git_accepts
from coterie.base.offload import run_limited_blocking
from coterie.modes.draft.committer import Committer
from coterie.modes.draft.diff import (
    apply_edits,
    edits_between,
    merge_keeping_both,
    merge_texts,
    unified_diff,
    word_diff,
)
from coterie.modes.draft.errors import EditConflict, NoSuchDocument, NotADocument, WorkspaceError
from coterie.modes.draft.git import (
    CHANGE_TRAILER,
    MAIN_BRANCH,
    PROPOSED_BY_TRAILER,
    THREAD_TRAILER,
    CommitMessage,
    DocumentRepository,
    DocumentVersion,
    GitAuthor,
)

ANN = GitAuthor("Ann", "ann@example.org")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=Bo", "-c", "user.email=bo@example.org", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def replace_with(text: str) -> Callable[[DocumentVersion | None], str]:
    return lambda _: text


def append(line: str) -> Callable[[DocumentVersion | None], str]:
    return lambda version: (version.text if version else "") + line


@pytest.fixture
def repository(tmp_path: Path) -> DocumentRepository:
    return DocumentRepository(tmp_path / "text")


@pytest.fixture
def committer(repository: DocumentRepository) -> Committer:
    return Committer(repository, durable=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """An existing repository with two commits."""
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


def test_f1_plain_git_reads_written_documents(repository: DocumentRepository, committer: Committer) -> None:
    committer.write("notes/lamp.md", MAIN_BRANCH, replace_with("# The lamp\n"), ANN, CommitMessage("Begin"), NOON)
    message = CommitMessage(
        "Say when",
        "Nobody knew when.\nNow they do.",
        {CHANGE_TRAILER: "c1", THREAD_TRAILER: "t1", PROPOSED_BY_TRAILER: "Mara"},
    )
    written = committer.write(
        "notes/lamp.md", MAIN_BRANCH, replace_with("# The lamp\n\nIt burns at night.\n"), ANN, message, NOON
    )
    assert written is not None
    assert git(repository.folder, "show", "main:notes/lamp.md") == "# The lamp\n\nIt burns at night.\n"
    assert git(repository.folder, "log", "-1", "--format=%an <%ae>%n%s%n%b") == (
        "Ann <ann@example.org>\nSay when\nNobody knew when.\nNow they do.\n\n"
        "Coterie-Change: c1\nCoterie-Thread: t1\nProposed-by: Mara\n\n"
    )
    trailers = git(repository.folder, "log", "-1", "--format=%(trailers:key=Coterie-Change,valueonly)")
    assert trailers.strip() == "c1"
    assert git(repository.folder, "fsck", "--strict") == ""
    assert repository.documents(MAIN_BRANCH) == [("notes/lamp.md", "The lamp")]
    assert [one.subject for one in repository.history(MAIN_BRANCH)] == ["Say when", "Begin"]


def test_f1_message_text_cannot_forge_a_trailer(repository: DocumentRepository, committer: Committer) -> None:
    message = CommitMessage(
        "Fine\nCoterie-Change: forged", "So.\n\nCoterie-Change: forged", {CHANGE_TRAILER: "real\nThread: x"}
    )
    committer.write("a.md", MAIN_BRANCH, replace_with("a"), ANN, message, NOON)
    assert repository.history(MAIN_BRANCH)[0].trailers == {CHANGE_TRAILER: "real Thread: x"}


def test_f1_a_name_that_git_refuses_is_replaced(repository: DocumentRepository, committer: Committer) -> None:
    for number, name in enumerate(("<b>Eve</b>", "<>", "")):
        committer.write(
            "a.md",
            MAIN_BRANCH,
            replace_with(f"{number}\n"),
            GitAuthor(name, "e@example.org"),
            CommitMessage("Write"),
            NOON,
        )
    assert [one.author for one in repository.history(MAIN_BRANCH)] == ["Somebody", "Somebody", "bEve/b"]


def test_f1_recently_changed_documents(repository: DocumentRepository, committer: Committer, clone: Path) -> None:
    assert repository.recent(MAIN_BRANCH, 4) == []
    for number, path in enumerate(("a.md", "b/c.md", "d.md", "a.md")):
        when = NOON + timedelta(minutes=number)
        committer.write(path, MAIN_BRANCH, replace_with(f"# {path} {number}\n"), ANN, CommitMessage("Write"), when)
    found = repository.recent(MAIN_BRANCH, 2)
    assert [(one.path, one.title) for one in found] == [("a.md", "a.md 3"), ("d.md", "d.md 2")]
    assert found[0].changed_at == int((NOON + timedelta(minutes=3)).timestamp())
    assert [one.path for one in repository.recent(MAIN_BRANCH, 9)] == ["a.md", "d.md", "b/c.md"]
    assert [one.path for one in DocumentRepository(clone).recent("trunk", 9)] == ["plan.md"]
    git(clone, "rm", "-q", "plan.md")
    git(clone, "commit", "-q", "-m", "Away with it")
    assert DocumentRepository(clone).recent("trunk", 9) == []


def test_f1_an_existing_clone_is_used_without_rewriting_it(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD").strip()
    config = (clone / ".git" / "config").read_text()
    repository = DocumentRepository(clone)
    assert repository.main_branch == "trunk"
    assert repository.documents("trunk") == [("plan.md", "The plan")]
    committer = Committer(repository, durable=False)
    text = repository.read("plan.md", "trunk").text
    committer.write("plan.md", "trunk", replace_with(text + "\nThird.\n"), ANN, CommitMessage("Go further"), NOON)
    assert git(clone, "rev-parse", "HEAD~1").strip() == before
    assert git(clone, "log", "--format=%s").split("\n")[:3] == ["Go further", "Go on", "Begin"]
    assert (clone / ".git" / "config").read_text() == config
    # Its branch is checked out, so the file is updated.
    assert (clone / "plan.md").read_text() == text + "\nThird.\n"
    assert git(clone, "status", "--porcelain") == ""


def test_f1_a_modified_file_in_the_checkout_is_not_overwritten(clone: Path) -> None:
    (clone / "plan.md").write_text("Half a thought")
    repository = DocumentRepository(clone)
    Committer(repository, durable=False).write(
        "plan.md", "trunk", replace_with("# Other\n"), ANN, CommitMessage("Other"), NOON
    )
    assert (clone / "plan.md").read_text() == "Half a thought"
    assert repository.read("plan.md", "trunk").text == "# Other\n"


def test_f1_concurrent_writers_lose_nothing(repository: DocumentRepository) -> None:
    Committer(repository, durable=False).write("a.md", MAIN_BRANCH, replace_with(""), ANN, CommitMessage("Begin"), NOON)

    def write(number: int) -> None:
        committer = Committer(repository, durable=False)
        for turn in range(5):
            line = f"{number}.{turn}\n"
            committer.write("a.md", MAIN_BRANCH, append(line), ANN, CommitMessage(line), NOON)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = repository.read("a.md", MAIN_BRANCH).text.split()
    assert sorted(lines) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(5))
    assert len(repository.history(MAIN_BRANCH)) == 21


def test_f1_a_commit_of_plain_git_during_a_write_is_kept(clone: Path) -> None:
    """Plain git does not take our lock: the compare-and-swap detects its commit."""
    repository = DocumentRepository(clone)
    seen: list[str] = []

    def edit(version: DocumentVersion | None) -> str:
        assert version is not None
        seen.append(version.text)
        if len(seen) == 1:
            (clone / "plan.md").write_text("# The plan\n\nBo was quicker.\n")
            git(clone, "commit", "-q", "-a", "-m", "Bo")
        return version.text + "\nAnn too.\n"

    Committer(repository, durable=False).write("plan.md", "trunk", edit, ANN, CommitMessage("Ann"), NOON)
    assert len(seen) == 2
    assert repository.read("plan.md", "trunk").text == "# The plan\n\nBo was quicker.\n\nAnn too.\n"


def test_f1_the_lock_of_a_killed_process_is_removed(repository: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, replace_with("one"), ANN, CommitMessage("One"), NOON)
    lock = repository.git_folder / "refs" / "heads" / "main.lock"
    lock.write_text("")
    os.utime(lock, (0, 0))
    assert committer.write("a.md", MAIN_BRANCH, replace_with("two"), ANN, CommitMessage("Two"), NOON) is not None
    assert not lock.exists()


def test_f8_killed_processes_neither_lose_nor_repeat_commits(tmp_path: Path) -> None:
    """A small run; `python -m bench.git_accepts` makes 10,000 accepts in 16 processes."""
    figures = git_accepts.run(tmp_path, accepts=16, processes=2, wanted_kills=2)
    assert (figures["accepts"], figures["lost"], figures["doubled"], figures["fsck_clean"]) == (16, 0, 0, True)


def test_f8_commits_are_found_by_their_change(repository: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, replace_with("one"), ANN, CommitMessage("One"), NOON)
    base = repository.head(MAIN_BRANCH)
    committer.write(
        "a.md", MAIN_BRANCH, replace_with("two"), ANN, CommitMessage("Two", trailers={CHANGE_TRAILER: "c7"}), NOON
    )
    found = repository.find_changes(MAIN_BRANCH, {"c7", "c8"}, until=base)
    assert {change: revision.id for change, revision in found.items()} == {"c7": repository.head(MAIN_BRANCH)}


def test_f11_branches_merge_fast_forward_or_with_a_commit(repository: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, replace_with("one\n\ntwo\n\nthree\n"), ANN, CommitMessage("Begin"), NOON)
    committer.create_branch("try/this", MAIN_BRANCH)
    committer.write("a.md", "try/this", replace_with("ONE\n\ntwo\n\nthree\n"), ANN, CommitMessage("One"), NOON)
    assert committer.merge("try/this", MAIN_BRANCH, ANN, NOON) == repository.head("try/this")
    committer.write("a.md", MAIN_BRANCH, replace_with("ONE\n\ntwo\n\nTHREE\n"), ANN, CommitMessage("Three"), NOON)
    committer.write("a.md", "try/this", replace_with("One\n\ntwo\n\nthree\n"), ANN, CommitMessage("One"), NOON)
    committer.merge("try/this", MAIN_BRANCH, ANN, NOON)
    assert repository.read("a.md", MAIN_BRANCH).text == "One\n\ntwo\n\nTHREE\n"
    assert repository.history(MAIN_BRANCH)[0].subject == "Merge try/this into main"
    committer.write("a.md", MAIN_BRANCH, replace_with("1\n"), ANN, CommitMessage("1"), NOON)
    committer.write("a.md", "try/this", replace_with("I\n"), ANN, CommitMessage("I"), NOON)
    with pytest.raises(EditConflict):
        committer.merge("try/this", MAIN_BRANCH, ANN, NOON)
    with pytest.raises(WorkspaceError):
        committer.create_branch("try/this", MAIN_BRANCH)
    with pytest.raises(WorkspaceError):
        committer.create_branch("bad..name", MAIN_BRANCH)


def test_f14_blame_finds_the_commit_and_its_thread(repository: DocumentRepository, committer: Committer) -> None:
    committer.write("a.md", MAIN_BRANCH, replace_with("one\n\ntwo\n"), ANN, CommitMessage("Begin"), NOON)
    committer.write(
        "a.md",
        MAIN_BRANCH,
        replace_with("one\n\nTWO\n"),
        ANN,
        CommitMessage("Two", trailers={THREAD_TRAILER: "t9"}),
        NOON,
    )
    blamed = repository.blame(MAIN_BRANCH, "a.md", 3)
    assert blamed is not None
    assert blamed.trailers[THREAD_TRAILER] == "t9"
    assert repository.blame(MAIN_BRANCH, "a.md", 99) is None


@pytest.mark.parametrize("path", ["../a.md", "/a.md", "a.txt", ".git/a.md", "a/../b.md", "", "a//b.md", "a\\b.md"])
def test_f1_invalid_paths_are_refused(repository: DocumentRepository, committer: Committer, path: str) -> None:
    with pytest.raises(NotADocument):
        committer.write(path, MAIN_BRANCH, replace_with("x"), ANN, CommitMessage("x"), NOON)


def test_f1_an_empty_repository_has_no_documents(repository: DocumentRepository) -> None:
    assert repository.documents(MAIN_BRANCH) == []
    assert repository.history(MAIN_BRANCH) == []
    with pytest.raises(NoSuchDocument):
        repository.read("a.md", MAIN_BRANCH)


def test_f1_a_file_that_is_not_utf8_is_refused(clone: Path) -> None:
    (clone / "odd.md").write_bytes(b"\xff\xfe")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "Odd")
    with pytest.raises(NotADocument):
        DocumentRepository(clone).read("odd.md", "trunk")


texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d "]), max_size=12).map("".join)


@given(texts, texts, texts)
def test_f9_a_merge_has_the_edits_of_both_sides_or_is_none(base: str, ours: str, theirs: str) -> None:
    both = merge_texts(base, ours, theirs)
    assert merge_texts(base, ours, base) == ours
    assert merge_texts(base, base, theirs) == theirs
    assert merge_texts(base, theirs, ours) == both
    if both is not None and not {e.start for e in edits_between(base, ours)} & {
        e.start for e in edits_between(base, theirs)
    }:
        edits = sorted([*edits_between(base, ours), *edits_between(base, theirs)], key=lambda edit: edit.start)
        assert apply_edits(base, edits) == both


def test_f9_a_conflict_is_not_merged() -> None:
    assert merge_texts("one two\n", "one 2\n", "one II\n") is None
    assert "-one 2\n" in unified_diff("one 2\n", "one II\n", "a.md")


def test_a_new_repository_is_bare(repository: DocumentRepository) -> None:
    assert pygit2.Repository(str(repository.folder)).is_bare


def test_a_document_with_very_many_changes_is_merged() -> None:
    """Each change copied the whole text, which took minutes."""
    base = [f"line {number}\n" for number in range(60_000)]
    ours = [line.upper() if number % 4 == 0 else line for number, line in enumerate(base)]
    theirs = [line.upper() if number % 4 == 2 else line for number, line in enumerate(base)]
    both = "".join(line.upper() if number % 2 == 0 else line for number, line in enumerate(base))
    assert merge_texts("".join(base), "".join(ours), "".join(theirs)) == both
    assert merge_keeping_both("".join(base), "".join(ours), "".join(theirs)) == both


REPEATED = "a\nb\n" * 40_000, "b\na\na\n" * 30_000
"""libgit2 takes long for texts like this, and keeps the lock of the interpreter meanwhile."""


@pytest.fixture
def offloaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done in a worker process."""
    begun: list[str] = []

    def run(what: str, *arguments: Any) -> object:
        begun.append(what)
        return run_limited_blocking(what, *arguments)

    for module in ("diff", "committer"):
        monkeypatch.setattr(f"coterie.modes.draft.{module}.run_limited_blocking", run)
    return begun


def test_long_texts_are_compared_in_a_worker_process(offloaded: list[str]) -> None:
    old, new = REPEATED
    assert apply_edits(old, edits_between(old, new)) == new
    assert "+a\n" in unified_diff(old, new, "a.md")
    assert len(offloaded) == 2
    long = "".join(f"line {number}\n" for number in range(50_000))
    changed = long.replace("line 300\n", "line CCC\n").replace("line 400\n", "line CD\n")
    assert [edit.text for edit in edits_between(long, changed)] == ["CCC", "CD"]
    assert len(offloaded) == 2, "what is equal at the start and the end needs no comparison"


def test_a_comparison_that_takes_too_long_is_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.modes.draft.diff._COMPARE_S", 0.0)
    old, new = (f"begin\n{text}the end\n" for text in REPEATED)
    (edit,) = edits_between(old, new)
    assert apply_edits(old, [edit]) == new and edit.start >= len("begin\n")
    assert merge_keeping_both(old, old, new) == new and merge_texts(old, new, old) == new
    assert "too large to be shown" in unified_diff(old, new, "a.md")


async def test_on_the_event_loop_nothing_waits_for_a_worker(offloaded: list[str]) -> None:
    old, new = REPEATED
    assert apply_edits(old, edits_between(old, new)) == new
    assert offloaded == []


@given(texts, texts, st.text("ab\n", max_size=5), st.text("ab\n", max_size=5))
def test_law_long_texts_have_the_edits_of_their_middle(old: str, new: str, head: str, tail: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("coterie.modes.draft.diff._SHORT_CHARS", 0)
        patched.setattr("coterie.modes.draft.diff.run_limited_blocking", lambda _w, _s, run, *texts: run(*texts))
        one, other = head + old + tail, head + new + tail
        edits = edits_between(one, other)
        assert apply_edits(one, edits) == other
        assert all(first.end < second.start for first, second in itertools.pairwise(edits))


def test_large_documents_are_compared_and_merged_in_a_worker_process(
    repository: DocumentRepository, committer: Committer, offloaded: list[str]
) -> None:
    base = "".join(f"line {number}\n" for number in range(20_000))
    committer.write("a.md", MAIN_BRANCH, replace_with(base), ANN, CommitMessage("Write"), NOON)
    committer.create_branch("side", MAIN_BRANCH)
    committer.write("a.md", "side", replace_with(base.replace("line 9\n", "nine\n")), ANN, CommitMessage("9"), NOON)
    committer.write("a.md", MAIN_BRANCH, replace_with(base + "end\n"), ANN, CommitMessage("End"), NOON)
    (difference,) = repository.compare("side", MAIN_BRANCH)
    assert difference.patch.startswith("--- a/a.md\n+++ b/a.md\n@@") and "-line 9\n+nine\n" in difference.patch
    committer.merge("side", MAIN_BRANCH, ANN, NOON)
    assert repository.read("a.md", MAIN_BRANCH).text == base.replace("line 9\n", "nine\n") + "end\n"
    assert "Merging the branches" in offloaded
    committer.write("a.md", "side", replace_with(base.replace("line 0\n", "zero\n")), ANN, CommitMessage("0"), NOON)
    committer.write(
        "a.md", MAIN_BRANCH, replace_with(base.replace("line 0\n", "null\n")), ANN, CommitMessage("0"), NOON
    )
    with pytest.raises(EditConflict, match=r"conflict in a\.md"):
        committer.merge("side", MAIN_BRANCH, ANN, NOON)


def test_a_repository_that_a_worker_process_cannot_open_is_merged_all_the_same(
    repository: DocumentRepository, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise WorkspaceError("The repository cannot be opened (it belongs to another user).", "Check it.")

    monkeypatch.setattr("coterie.modes.draft.committer.run_limited_blocking", refuse)
    monkeypatch.setattr("coterie.modes.draft.committer._SMALL_MERGE_BYTES", 0)
    committer.write("a.md", MAIN_BRANCH, replace_with("one\n\nthree\n"), ANN, CommitMessage("Write"), NOON)
    committer.create_branch("side", MAIN_BRANCH)
    committer.write("a.md", "side", replace_with("1\n\nthree\n"), ANN, CommitMessage("1"), NOON)
    committer.write("a.md", MAIN_BRANCH, replace_with("one\n\nthree\nfour\n"), ANN, CommitMessage("4"), NOON)
    committer.merge("side", MAIN_BRANCH, ANN, NOON)
    assert repository.read("a.md", MAIN_BRANCH).text.startswith("1\n")


def test_a_short_and_a_very_long_text_are_shown_as_replaced() -> None:
    assert word_diff("a\n" * 500, "a\n" * 100_000) == (("-", "a\n" * 500), ("+", "a\n" * 100_000))
