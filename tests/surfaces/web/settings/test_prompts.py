"""The instructions to models on the page: shown, changed, reset, used by the next call. L5"""

from __future__ import annotations

from coterie.characters import declared_prompts
from tests.surfaces.web.conftest import Web


async def test_l5_every_process_has_a_prompt_that_is_shown(web: Web) -> None:
    shown = {prompt["name"]: prompt for prompt in await web.get("/prompts")}
    assert {"story", "channel", "branch", "worker", "compactor", "cortex", "draft"} <= set(shown)
    assert any(name.startswith("classifier") for name in shown)
    assert {prompt["origin"] for prompt in shown.values()} == {"built-in"}
    assert all(prompt.about.endswith(".") for prompt in declared_prompts())


async def test_l5_a_changed_prompt_is_used_by_the_next_call_and_the_characters_own_goes_first(web: Web) -> None:
    bot, chat = await web.begin()

    async def told() -> str:
        await web.say(chat, "Hello.")
        return web.script.prompt()

    assert "You write only what Maren Oke says and does" in await told()
    changed = await web.client.put("/prompts/story", json={"text": "Write as {name} in verse, {unknown}."})
    assert changed.json()["origin"] == "shared"
    assert "Write as Maren Oke in verse, {unknown}." in await told()
    own = await web.client.put(f"/prompts/story?character={bot}", json={"text": "Be brief."})
    assert own.json()["origin"] == "character"
    assert "You are Maren Oke. Be brief." in await told()
    await web.client.delete(f"/prompts/story?character={bot}")
    assert "in verse" in await told()
    assert (await web.client.delete("/prompts/story")).json()["origin"] == "built-in"
    assert "in verse" not in await told()


async def test_l5_an_empty_or_unknown_prompt_is_refused(web: Web) -> None:
    assert (await web.client.put("/prompts/story", json={"text": "  "})).status_code == 400
    assert (await web.client.put("/prompts/none", json={"text": "x"})).status_code == 400
    assert (await web.client.put("/prompts/..%2Fx", json={"text": "x"})).status_code in (400, 404)
    assert (await web.client.put("/prompts/story?character=none", json={"text": "x"})).status_code == 404
