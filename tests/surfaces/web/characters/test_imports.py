"""The page and the API of imports from SillyTavern."""

from __future__ import annotations

from coterie.eventstore.worker import Worker
from tests.modes.story.sillytavern.tavern_folder import BOOK, make_folder
from tests.surfaces.web.conftest import Web

HTML = {"Accept": "text/html"}


async def run_jobs(web: Web) -> None:
    app = web.app
    await Worker(app.store.jobs, app.handlers(), clock=app._clock, bus=app.store.bus).drain()


async def test_s26_a_found_folder_is_previewed_imported_and_reported(web: Web) -> None:
    folder_of_user = web.app.sillytavern.drop_folder / "data/default-user"
    make_folder(web.app.sillytavern.drop_folder)
    (folder_of_user / "characters/Broken.png").write_bytes(b"This is no picture.")
    page = (await web.client.get("/imports", headers=HTML)).text
    folder = str(web.app.sillytavern.found_folders()[0])
    assert folder in page
    preview = await web.post("/imports/preview", {"folder": folder})
    assert {one["kind"]: one["items"] for one in preview["kinds"]}["character"] == 3
    assert await web.get("/imports") == []
    run = await web.post("/imports", {"folder": folder}, status=202)
    assert (run["done"], run["items"], run["ended"]) == (0, 10, None)
    assert 'id="import-progress"' in (await web.client.get(f"/imports/{run['id']}", headers=HTML)).text
    await run_jobs(web)
    ended = await web.get(f"/imports/{run['id']}")
    assert (ended["done"], ended["ended"] is not None) == (10, True)
    items = {one["path"]: one for one in await web.get(f"/imports/{run['id']}/items")}
    assert items["chats/Nils/First trip.jsonl"]["counts"] == {"messages": 8, "swipes": 7}
    report = (await web.client.get(f"/imports/{run['id']}", headers=HTML)).text
    for text in ("Not imported", "Broken", "First trip", items["characters/Nils.png"]["target"]):
        assert text in report
    query = {"kind": "lorebook", "path": "worlds/Harbour.json"}
    assert (await web.client.get(f"/imports/{run['id']}/document", params=query)).json() == BOOK
    assert (await web.client.get(f"/imports/{run['id']}/document", params={**query, "path": "x"})).status_code == 404
    assert (await web.client.get("/imports/none")).status_code == 404


async def test_s26_the_page_cannot_name_other_folders(web: Web) -> None:
    for path in ("/imports", "/imports/preview"):
        answer = await web.client.post(path, json={"folder": "/etc"})
        assert answer.status_code == 403
        assert "coterie import" in answer.json()["fix"]
