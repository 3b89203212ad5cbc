"""Macros of cards are expanded where a character's texts are shown."""

from __future__ import annotations

from tests.surfaces.web.conftest import Web


async def test_s9_macros_are_expanded_on_the_pages_of_a_character(web: Web) -> None:
    await web.client.put("/you", json={"name": "Ana"})
    body = {"name": "Mara", "persona": "{{char}} waits for {{user}}.", "voice_samples": ["{{user}}: Hello?"]}
    character = (await web.post("/characters", body, status=201))["id"]
    html = {"accept": "text/html"}
    page = (await web.client.get(f"/characters/{character}", headers=html)).text
    assert "Mara waits for Ana." in page
    assert "Ana: Hello?" in page  # the list of versions shows the text as it was written
    assert "Mara waits for you." in (await web.client.get("/characters", headers=html)).text
