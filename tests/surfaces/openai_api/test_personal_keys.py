"""Who calls /v1 with a personal key is the person it belongs to, not the owner."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from pydantic import SecretStr

from coterie.characters import OWNER, Identity
from coterie.surfaces.openai_api.settings import ApiSettings
from tests.surfaces.openai_api.test_routes import client, user
from tests.surfaces.webhook.conftest import Serve, Served


async def person_with_key(served: Served, name: str, *characters: str) -> tuple[str, str, str]:
    person = await served.app.people.add(name)
    for character in characters:
        await served.app.people.allow(person.id, served.app.characters.find(character).id)
    key, token = await served.app.api_keys.create(person.id, "a client")
    return person.id, key.id, token


async def test_a_key_acts_as_its_person_and_sees_their_characters_alone(serve: Serve) -> None:
    async with serve() as served:
        await served.app.characters.save(Identity(name="Secret Keeper", persona="Known to the owner alone."))
        ana, _, key = await person_with_key(served, "Ana", "Mara")
        async with client(served, key, max_retries=0) as ai:
            assert [model.id async for model in ai.models.list()] == ["Mara"]
            await ai.chat.completions.create(model="Mara", messages=[user("Good evening.")])
            for name in ("Secret Keeper", "Nobody"):
                with pytest.raises(openai.NotFoundError) as refused:
                    await ai.chat.completions.create(model=name, messages=[user("Hello")])
                assert "Mara" not in str(refused.value)
            with pytest.raises(openai.BadRequestError, match="not begin a chat of this kind"):
                await ai.chat.completions.create(model="Mara", messages=[user("Run it.")], extra_body={"mode": "desk"})
        (binding,) = served.app.message_router.chats.rooms.on_surface("api")
        assert binding.person == ana


async def test_the_same_conversation_of_two_people_is_two_chats(serve: Serve) -> None:
    async with serve() as served:
        _, _, ana = await person_with_key(served, "Ana", "Mara")
        _, _, bo = await person_with_key(served, "Bo", "Mara")
        served.script.replies = ["To the owner.", "To Ana.", "To Bo.", "Again to Ana."]
        said: list[Any] = []
        for key in ("none needed", ana, bo):
            async with client(served, key) as ai:
                made = await ai.chat.completions.create(model="Mara", messages=[user("The same words.")])
                said.append(made.choices[0].message.content)
        async with client(served, ana) as ai:
            retried = await ai.chat.completions.create(
                model="Mara", messages=[user("The same words.")], extra_headers={"x-stainless-retry-count": "1"}
            )
        assert said == ["To the owner.", "To Ana.", "To Bo."]
        assert retried.choices[0].message.content == "To Ana."
        owners = {room.person for room in served.app.message_router.chats.rooms.on_surface("api")}
        assert len(owners) == 3 and OWNER in owners


async def test_a_revoked_or_invented_key_is_nobody_even_where_no_key_is_needed(serve: Serve) -> None:
    async with serve() as served:
        _, key_id, key = await person_with_key(served, "Ana", "Mara")
        await served.app.api_keys.revoke(key_id)
        for token in (key, "coterie_", "coterie_invented", f"{key}x"):
            answer = await served.client.get("/v1/models", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 401, token
        assert (await served.client.get("/v1/models")).status_code == 200, "this machine, without a key, is the owner"


async def test_permission_that_is_taken_back_counts_for_chats_that_exist(serve: Serve) -> None:
    async with serve() as served:
        ana, _, key = await person_with_key(served, "Ana", "Mara")
        async with client(served, key, max_retries=0) as ai:
            await ai.chat.completions.create(model="Mara", messages=[user("Hello.")])
            await served.app.people.allow(ana, served.app.characters.find("Mara").id, allowed=False)
            with pytest.raises(openai.NotFoundError):
                await ai.chat.completions.create(
                    model="Mara", messages=[user("Hello."), {"role": "assistant", "content": "Hi."}, user("And now?")]
                )


async def test_the_configured_key_stays_the_owners_beside_personal_ones(serve: Serve) -> None:
    async with serve(api=ApiSettings(key=SecretStr("our-own-key"))) as served:
        await served.app.characters.save(Identity(name="Secret Keeper", persona="Known to the owner alone."))
        _, _, key = await person_with_key(served, "Ana", "Mara")
        _, token = await served.app.api_keys.create(OWNER, "my laptop")
        for one, names in ((key, ["Mara"]), ("our-own-key", None), (token, None)):
            async with client(served, one) as ai:
                listed = [model.id async for model in ai.models.list()]
                assert listed == names if names else len(listed) == 2
        assert (await served.client.get("/v1/models")).status_code == 401


async def test_keys_are_created_listed_and_revoked_on_the_page_and_stored_hashed(serve: Serve) -> None:
    async with serve() as served:
        person = await served.app.people.add("Ana")
        made = (await served.client.post(f"/people/{person.id}/keys", json={"name": "phone <b>"})).json()
        assert made["key"].startswith("coterie_") and len(made["key"]) > 40
        listed = (await served.client.get(f"/people/{person.id}/keys")).json()
        assert [(one["id"], one["name"], one["key"]) for one in listed] == [(made["id"], "phone <b>", None)]
        page = (await served.client.get("/settings/people", headers={"Accept": "text/html"})).text
        assert "phone &lt;b&gt;" in page and made["key"] not in page
        stored = [str(event.payload) for event in served.app.store.reader.read(after=0, limit=10_000)]
        assert not any(made["key"] in text for text in stored)
        assert made["key"] not in served.app.paths.database.read_bytes().decode("latin-1")
        assert (await served.client.delete(f"/people/keys/{made['id']}")).status_code == 200
        assert (await served.client.delete(f"/people/keys/{made['id']}")).status_code == 404
        assert (await served.client.get(f"/people/{person.id}/keys")).json() == []
        assert (await served.client.post("/people/nobody/keys", json={"name": "x"})).status_code == 400
