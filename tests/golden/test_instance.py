"""A whole instance written by the first version must open, verify clean and show everything that is in it.

`instance/` holds its database as SQL, its document repository as a Git fast-export stream, and what the API
answered when it was written. `@HOME@` in the SQL stands for the data folder.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from coterie.app import all_projections, open_store
from coterie.base.paths import Paths
from coterie.eventstore.sqlite.backup import check_backup
from coterie.eventstore.sqlite.verify import verify
from tests.e2e.conftest import Site

FOLDER = Path(__file__).parent / "instance"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


def write_instance(folder: Path) -> None:
    """Put the golden instance into an empty data folder."""
    folder.mkdir(parents=True)
    sql = (FOLDER / "database.sql").read_text(encoding="utf-8").replace("@HOME@", str(folder))
    connection = apsw.Connection(str(folder / "coterie.db"))
    connection.execute(sql)
    connection.close()
    (name,) = set(re.findall(rf"{re.escape(str(folder))}/drafts/([\w-]+)", sql))
    repository = folder / "drafts" / name
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", repository], check=True)
    stream = (FOLDER / "workspace.fast-export").read_bytes()
    subprocess.run(["git", "-C", repository, "fast-import", "--quiet"], input=stream, check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    instance = tmp_path_factory.mktemp("golden") / "home"
    write_instance(instance)
    return instance


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    instance = Site(folder)
    yield instance
    instance.close()


def test_the_instance_verifies_clean(tmp_path: Path) -> None:
    write_instance(tmp_path / "home")
    with open_store(Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})) as store:
        hashes = store.hashes()
        report = verify(store.reader, store.projections)
        assert report.clean, report.problems
        store.rebuild()
        assert store.hashes() == hashes


def test_the_tables_of_the_store_are_renamed_and_undeclared_ones_removed(tmp_path: Path) -> None:
    write_instance(tmp_path / "home")
    with open_store(Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})) as store:
        tables = {name for (name,) in store.query("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        declared = {table for projection in store.projections for table in projection.tables}
    assert {"stream_lineage", "active_ranges", "projection"} <= tables
    assert not {"line", "counting", "view"} & tables - declared
    journaled = {table for projection in store.projections if projection.journaled for table in projection.tables}
    assert {table.removeprefix("undo_") for table in tables if table.startswith("undo_")} == journaled


def test_a_backup_of_the_instance_is_checked_without_migrating_it(tmp_path: Path) -> None:
    write_instance(tmp_path / "home")
    backup = tmp_path / "home" / "coterie.db"
    before = backup.read_bytes()
    report = check_backup(backup, all_projections())
    assert report.clean, report.problems
    assert report.events
    assert backup.read_bytes() == before


def page(site: Site, path: str) -> str:
    answer = site.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, (path, answer.text[:300])
    assert answer.headers["content-type"].startswith("text/html")
    return html.unescape(answer.text)


def test_every_chat_is_on_the_page_with_its_turns(site: Site) -> None:
    for chat, expected in EXPECTED["chats"].items():
        assert site.texts(f"/chats/{chat}") == expected["turns"]
        shown = page(site, f"/chats/{chat}")
        assert expected["title"] in shown
        assert expected["turns"][-1].strip("“”") in shown
    listed = page(site, "/chats")
    assert all(expected["title"] in listed for expected in EXPECTED["chats"].values())


def test_every_desk_is_on_the_page_with_its_messages(site: Site) -> None:
    for desk, expected in EXPECTED["desks"].items():
        texts = [message["text"] for message in site.ask("GET", f"/desk/{desk}/messages")]
        assert texts[: len(expected["messages"])] == expected["messages"]
        assert expected["title"] in page(site, f"/desk/{desk}")


def test_documents_proposals_and_threads_are_there(site: Site) -> None:
    for workspace, expected in EXPECTED["documents"].items():
        base = f"/draft/workspaces/{workspace}"
        assert site.ask("GET", f"{base}/documents/{expected['document']}")["text"] == expected["text"]
        changes = [
            [change["id"], change["state"]] for change in site.ask("GET", f"{base}/changes/{expected['document']}")
        ]
        assert changes == expected["changes"]
        assert [thread["id"] for thread in site.ask("GET", f"{base}/threads")] == expected["threads"]
        assert expected["document"] in page(site, f"{base}/documents/{expected['document']}")
        assert expected["name"] in page(site, "/draft")


def test_the_crowds_lines_are_there(site: Site) -> None:
    room = EXPECTED["crowd"]["room"]
    lines = [[line["author"]["name"], line["text"]] for line in site.ask("GET", f"/crowd/{room}/messages?limit=100")]
    assert lines == EXPECTED["crowd"]["messages"]
    page(site, f"/crowd/{room}")


def test_characters_memories_and_people_are_there(site: Site) -> None:
    listed = page(site, "/characters")
    assert all(name in listed for name in EXPECTED["characters"])
    for owner, expected in EXPECTED["memories"].items():
        assert [memory["text"] for memory in site.ask("GET", f"/memories?owner={owner}")] == expected
        page(site, f"/characters/{owner}")
    for path in ("/", "/memory", "/ops", "/settings", "/search?q=lamp"):
        page(site, path)


def test_rooms_bound_on_matrix_are_there(site: Site) -> None:
    bindings = site.call(lambda: site.app.message_router.chats.rooms.on_surface("matrix"))
    assert [one.room.id for one in bindings] == ["!kitchen:example.org"]
