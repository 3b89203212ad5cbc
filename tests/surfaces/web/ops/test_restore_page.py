from __future__ import annotations

import socket

import httpx

from coterie.surfaces.web.ops.pages import RestorePage


def test_s28_the_restore_page_shows_the_progress() -> None:
    with RestorePage("127.0.0.1", 0) as room:
        address = f"http://127.0.0.1:{room.port}"
        assert httpx.get(f"{address}/health").json()["restoring"] == {"what": "", "done": 0, "most": 0}
        room.set_progress("Checking the backup", 3, 25)
        answer = httpx.post(f"{address}/chats/a/turns", json={"text": "Hello?"})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["restoring"] == {"what": "Checking the backup", "done": 3, "most": 25}
        assert {"error", "fix"} <= answer.json().keys()
        assert httpx.head(address).status_code == 503


def test_s28_a_browser_gets_a_page_that_reloads() -> None:
    with RestorePage("127.0.0.1", 0) as room:
        room.set_progress("<b>bold</b>", 1, 2)
        page = httpx.get(f"http://127.0.0.1:{room.port}/chats/a", headers={"Accept": "text/html,*/*"})
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "&lt;b&gt;bold" in page.text
    assert 'http-equiv="refresh"' in page.text
    assert 'value="1" max="2"' in page.text


def test_s28_the_restore_page_releases_its_port() -> None:
    with RestorePage("127.0.0.1", 0) as room:
        port = room.port
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))
