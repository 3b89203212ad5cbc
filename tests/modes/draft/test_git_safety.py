"""Writing never loses another document, nor what somebody has not committed, and bad repositories are clear errors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pygit2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.base.errors import CoterieError, UnsafePath
from coterie.modes.draft.committer import Checkout, Committer
from coterie.modes.draft.errors import DraftError, EditConflict, NotADocument, PathTaken, WorkspaceError
from coterie.modes.draft.git import MAIN_BRANCH, CommitMessage, DocumentRepository, GitAuthor
from tests.modes.draft.conftest import ANN as ANN_PERSON
from tests.modes.draft.conftest import BO, DraftHarness
from tests.swapping import swapping

ANN = GitAuthor("Ann", "ann@example.org")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=Bo", "-c", "user.email=bo@example.org", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def write(repository: DocumentRepository, path: str, text: str, branch: str = MAIN_BRANCH) -> None:
    Committer(repository, durable=False).write(path, branch, lambda _: text, ANN, CommitMessage(f"Edit {path}"), NOON)


@pytest.fixture
def repository(tmp_path: Path) -> DocumentRepository:
    return DocumentRepository(tmp_path / "text")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with a branch `side`, whose changes touch several files; `trunk` is checked out."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "plan.md").write_text("# The plan\n\nFirst.\n")
    (folder / "old.md").write_text("Old.\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "other.md").write_text("Other.\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Begin")
    git(folder, "checkout", "-q", "-b", "side")
    (folder / "plan.md").write_text("# The plan\n\nFirst.\n\nSecond.\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "new.md").write_text("New.\n")
    (folder / "run.sh").chmod(0o755)
    git(folder, "rm", "-q", "old.md")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Side")
    git(folder, "checkout", "-q", "trunk")
    return folder


# --- a path that is, or lies below, something else -----------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [("notes.md", "notes.md/part.md"), ("notes.md/part.md", "notes.md"), ("a.md/b/c.md", "a.md/b/c.md/d/e.md")],
)
def test_a_path_below_a_file_or_of_a_folder_is_refused(repository: DocumentRepository, first: str, second: str) -> None:
    write(repository, first, "# Kept\n")
    before = repository.head(MAIN_BRANCH)
    with pytest.raises(PathTaken) as refused:
        write(repository, second, "# Other\n")
    assert refused.value.http_status == 409
    assert repository.head(MAIN_BRANCH) == before
    assert repository.documents(MAIN_BRANCH) == [(first, "Kept")]


def test_a_link_or_submodule_is_not_replaced(clone: Path) -> None:
    (clone / "link.md").symlink_to("plan.md")
    git(clone, "add", "link.md")
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{git(clone, 'rev-parse', 'HEAD').strip()},module.md")
    git(clone, "commit", "-q", "-m", "Link")
    repository = DocumentRepository(clone)
    for path in ("link.md", "module.md", "link.md/a.md", "module.md/a.md"):
        with pytest.raises(PathTaken):
            write(repository, path, "text", "trunk")


_NAMES = st.sampled_from(["a.md", "b.md"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_WRITES = st.lists(st.tuples(st.sampled_from(["main", "side"]), _PATHS), max_size=8)


@settings(max_examples=25, deadline=None)
@given(_WRITES, st.booleans())
def test_no_sequence_of_writes_and_merges_loses_another_document(
    writes: list[tuple[str, str]], merge_first: bool
) -> None:
    with TemporaryDirectory() as folder:
        repository = DocumentRepository(Path(folder) / "text")
        committer = Committer(repository, durable=False)
        write(repository, "start.md", "start")
        committer.create_branch("side", MAIN_BRANCH)
        expected: dict[str, dict[str, str]] = {"main": {"start.md": "start"}, "side": {"start.md": "start"}}
        for number, (branch, path) in enumerate(writes):
            taken = any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in expected[branch])
            try:
                write(repository, path, f"text {number}", branch)
            except PathTaken:
                assert taken
            else:
                assert not taken
                expected[branch][path] = f"text {number}"
        source, target = ("side", "main") if merge_first else ("main", "side")
        try:
            committer.merge(source, target, ANN, NOON)
        except EditConflict:
            pass
        else:
            both = {**expected[target], **expected[source]}
            assert {path for path, _ in repository.documents(target)} == set(both)
            expected[target] = {path: repository.read(path, target).text for path in both}
        for branch, documents in expected.items():
            assert {path: repository.read(path, branch).text for path, _ in repository.documents(branch)} == documents


async def test_every_way_of_writing_refuses_a_taken_path(harness: DraftHarness) -> None:
    thread = await harness.open_thread()
    draft, workspace = harness.draft, harness.workspace
    (proposal,) = await harness.propose(
        thread, "<change><original>Nobody asks.</original><proposed>Who asks?</proposed><reason>r</reason></change>"
    )
    for path in ("lamp.md/part.md", "lamp.md/a/b.md"):
        with pytest.raises(PathTaken):
            await draft.documents.create(workspace, path, "text", ANN_PERSON)
        with pytest.raises(PathTaken):
            await draft.documents.save(workspace, path, "main", "text", "", ANN_PERSON)
    # The document becomes a folder by plain git: typing and accepting change nothing.
    live = await draft.documents.live_document(workspace, "lamp.md")
    length = len(live.text)
    repository = draft.workspaces.repository(workspace)
    elsewhere = harness.folder / "elsewhere"
    git(harness.folder, "clone", "-q", str(repository.folder), str(elsewhere))
    git(elsewhere, "rm", "-q", "lamp.md")
    (elsewhere / "lamp.md").mkdir()
    (elsewhere / "lamp.md" / "part.md").write_text("Part.\n")
    git(elsewhere, "add", ".")
    git(elsewhere, "commit", "-q", "-m", "A folder")
    git(elsewhere, "push", "-q")
    live.text = live.text + "typed"
    live.writers[BO.id] = BO
    assert len(live.text) > length
    with pytest.raises(DraftError):
        await draft.documents.commit_typing(workspace, "lamp.md", "main")
    with pytest.raises(DraftError):
        await draft.proposals.accept(proposal.id, ANN_PERSON)
    assert [path for path, _ in repository.documents("main")] == ["lamp.md/part.md"]
    assert live.text.endswith("typed"), "what was typed is still there"
    live.text = live.base


@pytest.mark.parametrize("path", ["a\0.md", "\udc80.md", "x" * 300 + ".md", "a/" * 3_000 + "b.md", " .md/"])
def test_a_path_that_cannot_be_stored_is_refused(repository: DocumentRepository, path: str) -> None:
    with pytest.raises(NotADocument):
        write(repository, path, "text")


@pytest.mark.parametrize("branch", ["bad..name", "-x", "a\udc80", "", "main/below", "x" * 5_000])
def test_a_branch_that_cannot_exist_is_refused_at_once(repository: DocumentRepository, branch: str) -> None:
    write(repository, "a.md", "text")
    with pytest.raises(WorkspaceError):
        write(repository, "a.md", "text", branch)
    with pytest.raises(DraftError):
        Committer(repository, durable=False).create_branch(branch, MAIN_BRANCH)
    assert repository.branches() == [MAIN_BRANCH]


def test_a_base_that_is_no_version_is_refused(repository: DocumentRepository) -> None:
    write(repository, "a.md", "text")
    for base in ("nonsense", "0" * 40, "\udc80", "é", "0" * 39, "00"):
        with pytest.raises(CoterieError):
            repository.blob_text(base)


# --- a merge into what is checked out ------------------------------------------------------------------------


def _diverge(clone: Path) -> None:
    (clone / "other.md").write_text("Other, changed.\n")
    git(clone, "commit", "-q", "-a", "-m", "Trunk goes on")


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_merge_into_the_checked_out_branch_updates_its_files(clone: Path, fast_forward: bool) -> None:
    if not fast_forward:
        _diverge(clone)
    (clone / "untracked.txt").write_text("mine")
    Committer(DocumentRepository(clone), durable=False).merge("side", "trunk", ANN, NOON)
    assert git(clone, "status", "--porcelain") == "?? untracked.txt\n"
    assert (clone / "plan.md").read_text().endswith("Second.\n")
    assert (clone / "notes" / "new.md").read_text() == "New.\n"
    assert not (clone / "old.md").exists() and os.access(clone / "run.sh", os.X_OK)


def test_a_merge_that_deletes_the_last_file_of_a_folder_or_puts_a_file_in_its_place(clone: Path) -> None:
    git(clone, "checkout", "-q", "side")
    Committer(DocumentRepository(clone), durable=False).merge("trunk", "side", ANN, NOON)  # nothing to do
    git(clone, "rm", "-q", "-r", "notes")
    (clone / "notes").write_text("A file now.\n")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "A file")
    git(clone, "checkout", "-q", "-b", "before", "HEAD~1")
    Committer(DocumentRepository(clone), durable=False).merge("side", "before", ANN, NOON)
    assert git(clone, "status", "--porcelain") == ""
    assert (clone / "notes").read_text() == "A file now.\n"


def _edit(clone: Path) -> None:
    (clone / "plan.md").write_text("Half a thought")


def _stage(clone: Path) -> None:
    _edit(clone)
    git(clone, "add", "plan.md")


def _stage_and_restore(clone: Path) -> None:
    text = (clone / "plan.md").read_text()
    _stage(clone)
    (clone / "plan.md").write_text(text)


def _delete(clone: Path) -> None:
    (clone / "plan.md").unlink()


def _untracked(clone: Path) -> None:
    (clone / "notes").mkdir()
    (clone / "notes" / "new.md").write_text("Mine, not committed.\n")


def _untracked_in_the_way(clone: Path) -> None:
    (clone / "notes").write_text("Mine, not committed.\n")


def _untracked_folder_in_the_way(clone: Path) -> None:
    (clone / "old.md").unlink()
    (clone / "old.md").mkdir()
    (clone / "old.md" / "mine.txt").write_text("Mine.\n")


def _state(folder: Path) -> list[tuple[str, bytes | None]]:
    files = sorted(path for path in folder.rglob("*") if ".git" not in path.parts)
    return [(str(path), path.read_bytes() if path.is_file() else None) for path in files]


@pytest.mark.parametrize(
    "change",
    [_edit, _stage, _stage_and_restore, _delete, _untracked, _untracked_in_the_way, _untracked_folder_in_the_way],
)
@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_merge_over_uncommitted_changes_is_refused_and_touches_nothing(
    clone: Path, change: Callable[[Path], None], fast_forward: bool
) -> None:
    if not fast_forward:
        _diverge(clone)
    change(clone)
    head, status, files = git(clone, "rev-parse", "trunk"), git(clone, "status", "--porcelain"), _state(clone)
    with pytest.raises(EditConflict, match="not committed") as refused:
        Committer(DocumentRepository(clone), durable=False).merge("side", "trunk", ANN, NOON)
    assert "ommit" in refused.value.fix and str(refused.value).count(".md") + str(refused.value).count("notes") >= 1
    assert (git(clone, "rev-parse", "trunk"), git(clone, "status", "--porcelain")) == (head, status)
    assert _state(clone) == files


def test_a_merge_leaves_uncommitted_changes_of_other_files_alone(clone: Path) -> None:
    (clone / "other.md").write_text("Half a thought")
    Committer(DocumentRepository(clone), durable=False).merge("side", "trunk", ANN, NOON)
    assert git(clone, "status", "--porcelain") == " M other.md\n"
    assert (clone / "other.md").read_text() == "Half a thought"


def test_a_merge_into_another_branch_or_a_detached_head_leaves_the_files_alone(clone: Path) -> None:
    repository = DocumentRepository(clone)
    git(clone, "checkout", "-q", "-b", "third")
    Committer(repository, durable=False).merge("side", "trunk", ANN, NOON)
    assert git(clone, "status", "--porcelain") == "" and not (clone / "notes").exists()
    git(clone, "branch", "-m", "trunk", "main")
    git(clone, "checkout", "-q", "--detach", "third")
    write(DocumentRepository(clone), "plan.md", "# Other\n", "main")
    assert git(clone, "status", "--porcelain") == "" and (clone / "plan.md").read_text() == "# The plan\n\nFirst.\n"


def test_a_staged_change_is_not_overwritten_by_a_commit(clone: Path) -> None:
    _stage(clone)
    write(DocumentRepository(clone), "plan.md", "# Other\n", "trunk")
    assert (clone / "plan.md").read_text() == "Half a thought"


def test_a_linked_folder_in_the_checkout_is_not_written_through(clone: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (clone / "linked").symlink_to(outside)
    write(DocumentRepository(clone), "linked/a.md", "text", "trunk")
    assert list(outside.iterdir()) == []


def test_a_folder_that_is_swapped_with_a_link_is_not_written_through(clone: Path, tmp_path: Path) -> None:
    """The folders of a commit are replaced by links to the outside, and back, while files are written and deleted."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0.md").write_text("not of this repository")
    repository = DocumentRepository(clone)
    checkout = Checkout.of(repository, "trunk")
    assert checkout is not None
    blob = str(repository.git.create_blob(b"text"))
    with swapping(clone / "swapped", outside):
        for number in range(400):
            path = f"swapped/{number % 3}.md"
            with suppress(OSError, UnsafePath):
                checkout.has_version(path, None, blob)
                checkout.write(path, blob)
            checkout.apply({path: False}, "HEAD")
    assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("0.md", "not of this repository")]
    secret = pygit2.hash((outside / "0.md").read_bytes())
    assert secret not in DocumentRepository(clone).git, "nothing outside was staged"


async def test_f11_a_merge_by_the_service_leaves_a_clean_checkout(harness: DraftHarness, clone: Path) -> None:
    workspace = await harness.draft.workspaces.open(clone)
    await harness.draft.documents.merge(workspace, "side", "trunk", ANN_PERSON)
    assert git(clone, "status", "--porcelain") == ""


# --- adopting a folder ---------------------------------------------------------------------------------------


def _no_head(folder: Path) -> None:
    (folder / ".git" / "HEAD").unlink()


def _garbage_config(folder: Path) -> None:
    (folder / ".git" / "config").write_text("[[[")


def _garbage_branch(folder: Path) -> None:
    (folder / ".git" / "refs" / "heads" / "trunk").write_text("nonsense")


def _missing_objects(folder: Path) -> None:
    for item in (folder / ".git" / "objects").glob("??/*"):
        item.unlink()


def _git_file(folder: Path) -> None:
    git_folder = folder / ".git"
    git_folder.rename(folder / "moved")
    git_folder.write_text("gitdir: /nowhere/at/all")


@pytest.mark.parametrize("damage", [_no_head, _garbage_config, _garbage_branch, _missing_objects, _git_file])
async def test_a_broken_repository_is_refused(
    harness: DraftHarness, clone: Path, damage: Callable[[Path], None]
) -> None:
    damage(clone)
    before = _state(clone)
    with pytest.raises(DraftError) as refused:
        await harness.draft.workspaces.open(clone)
    assert 400 <= refused.value.http_status < 500
    assert harness.draft.thread_queries.workspaces() == {} and _state(clone) == before


async def test_a_folder_that_cannot_be_adopted_is_refused(harness: DraftHarness, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("text")
    for folder in (
        "",
        ".",
        "relative/path",
        str(tmp_path / "missing"),
        str(file),
        str(file / "below"),
        "/a\0b",
        f"{tmp_path}/\udc80",
        f"{tmp_path}/{'x' * 300}",
        "/" + "x/" * 4_000,
        "~nobody-of-this-name/text",
        "/proc/self/mem",
    ):
        with pytest.raises(DraftError) as refused:
            await harness.draft.workspaces.adopt(folder, confirmed=True)
        assert 400 <= refused.value.http_status < 500, folder
    assert harness.draft.thread_queries.workspaces() == {}
    assert not (tmp_path / "missing").exists()


async def test_a_folder_without_permission_is_refused(harness: DraftHarness, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o000)
    try:
        if os.access(folder, os.R_OK):
            pytest.skip("this user may read everything")
        with pytest.raises(DraftError):
            await harness.draft.workspaces.adopt(str(folder), confirmed=True)
    finally:
        folder.chmod(0o700)


async def test_a_bare_repository_and_a_plain_folder_are_adopted(harness: DraftHarness, tmp_path: Path) -> None:
    bare, plain = tmp_path / "bare.git", tmp_path / "plain"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    plain.mkdir()
    for folder in (bare, plain):
        workspace = await harness.draft.workspaces.adopt(str(folder), confirmed=True)
        await harness.draft.documents.create(workspace, "a.md", "# A\n", ANN_PERSON)
        assert (await harness.draft.documents.read(workspace, "a.md")).text == "# A\n"


async def test_a_repository_that_breaks_later_gives_clear_errors(harness: DraftHarness, clone: Path) -> None:
    workspace = await harness.draft.workspaces.open(clone)
    repository = harness.draft.workspaces.repository(workspace)
    _missing_objects(clone)
    fresh = DocumentRepository(clone)
    for one in (repository, fresh):
        for call in (
            lambda one=one: one.documents("trunk"),
            lambda one=one: one.history("trunk"),
            lambda one=one: one.read("other.md", "trunk"),
            lambda one=one: one.recent("trunk", 5),
            lambda one=one: one.compare("side", "trunk"),
            lambda one=one: write(one, "x.md", "text", "trunk"),
        ):
            try:
                call()
            except DraftError:
                continue
    with pytest.raises(WorkspaceError):
        fresh.documents("trunk")
    with pytest.raises(WorkspaceError):
        write(fresh, "x.md", "text", "trunk")
