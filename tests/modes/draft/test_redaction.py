"""A configured secret is refused in a document, and redacted in a thread."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from coterie.base.errors import SecretInName
from coterie.base.redaction import redact
from coterie.modes.draft.committer import Committer
from coterie.modes.draft.errors import SecretInDocument
from coterie.modes.draft.git import CommitMessage, DocumentRepository
from coterie.modes.draft.live_document import Update
from tests.modes.draft.conftest import ANN, LAMP, DraftHarness, Script
from tests.modes.draft.test_live_document import insert

SECRET = "a-registered/secret+of 20"
FORMS = (SECRET, base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex(), quote(SECRET, safe=""))


@pytest.fixture(autouse=True)
def registered() -> None:
    redact.register(SECRET)


def git_texts(folder: Path) -> str:
    """Every object of the repository, readable or not."""
    shown = subprocess.run(["git", "-C", folder, "cat-file", "--batch-all-objects", "--batch"], capture_output=True)
    return shown.stdout.decode(errors="replace")


def assert_nowhere(harness: DraftHarness) -> None:
    folder = harness.draft.workspaces.repository(harness.workspace).folder
    texts = git_texts(folder)
    events = "".join(event.payload.model_dump_json() for event in harness.store.reader.read(limit=10_000))
    assert "The lamp" in texts
    assert [form for form in FORMS if form in texts or form in events] == []


@pytest.mark.parametrize("form", FORMS)
async def test_a_document_with_a_secret_is_refused_and_nothing_is_written(harness: DraftHarness, form: str) -> None:
    await harness.open_thread()
    documents, workspace = harness.draft.documents, harness.workspace
    before = await documents.read(workspace, "lamp.md")
    with pytest.raises(SecretInDocument, match="nothing was saved"):
        await documents.save(workspace, "lamp.md", "main", f"{LAMP}{form}", before.blob, ANN)
    with pytest.raises(SecretInDocument, match="nothing was saved"):
        await documents.create(workspace, "new.md", f"# New\n\n{form}", ANN)
    with pytest.raises(SecretInName):
        await documents.create(workspace, f"notes/{SECRET.encode().hex()}.md", "# New", ANN)
    with pytest.raises(SecretInName):
        await harness.draft.workspaces.create(SECRET)
    assert (await documents.read(workspace, "lamp.md")) == before
    assert_nowhere(harness)


async def test_typed_text_with_a_secret_is_refused_until_it_is_removed(harness: DraftHarness) -> None:
    await harness.open_thread()
    documents, workspace = harness.draft.documents, harness.workspace
    live = await documents.live_document(workspace, "lamp.md")
    begun, last = SECRET[:-1], SECRET[-1]
    assert await documents.add_updates(workspace, live, 0, [Update("a", insert(LAMP, 0, begun))], ANN)
    complete = Update("b", insert(begun + LAMP, len(begun), last))
    with pytest.raises(SecretInDocument):
        await documents.add_updates(workspace, live, 1, [complete], ANN)
    assert live.version == 1
    without = Update("c", insert(SECRET + LAMP, 3, "x"))
    assert await documents.add_updates(workspace, live, 1, [complete, without], ANN)
    await documents.commit_typing(workspace, "lamp.md", "main")
    assert_nowhere(harness)


async def test_a_document_that_had_a_secret_already_can_still_be_edited(harness: DraftHarness, tmp_path: Path) -> None:
    before = f"# Old\n\n{SECRET}\n\nMore."
    repository = DocumentRepository(tmp_path / "old")
    vars(redact)["_index"] = vars(type(redact)())["_index"]  # it was not configured yet
    write = Committer(repository).write
    write("old.md", "main", lambda _: before, ANN.author, CommitMessage("Begin"), harness.clock.now())
    vars(redact)["_secrets"].clear()
    redact.register(SECRET)
    edited = before.replace("More.", "Less.")
    assert write("old.md", "main", lambda _: edited, ANN.author, CommitMessage("Edit"), harness.clock.now())
    with pytest.raises(SecretInDocument):
        write("old.md", "main", lambda _: edited + SECRET, ANN.author, CommitMessage("Edit"), harness.clock.now())


async def test_a_secret_in_a_message_or_a_reply_is_neither_stored_nor_sent(
    harness: DraftHarness, script: Script
) -> None:
    thread = await harness.open_thread()
    for form in FORMS:
        script.replies = [
            f"You wrote {form}. <change><original>The boats</original><proposed>{form}</proposed></change>"
        ]
        await harness.send_message(thread, f"My key is {form}.")
    assert script.requests
    sent = "".join(request.model_dump_json() for request in script.requests)
    assert [form for form in FORMS if form in sent] == []
    assert_nowhere(harness)
