"""All pages except the chat, as HTML: their content, and that hostile text is escaped."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import escape as _escape
from html.parser import HTMLParser

import pytest

from coterie.eventstore import NewJob
from coterie.memory.writer import NewMemory
from tests.surfaces.web.conftest import Web

BROWSER = {"Accept": "text/html"}
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)><svg/onload=alert(1)>"
    "\"'><b onclick=alert(1)>[x](javascript:alert(1)) {{7*7}} \u202egnp.exe\u200b"
)


def escape(text: str) -> str:
    """Escape text like the templates."""
    return _escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


class Live(HTMLParser):
    """Collects markup that would run a script."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "script" and not (attributes.get("src") or "").startswith("/static/"):
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name == "style" or (value or "").strip().lower().startswith("javascript:"):
                self.found.append(f"{tag} {name}={value}")
        if tag in ("img", "iframe", "object", "embed", "base") and not (attributes.get("src") or "").startswith("/"):
            self.found.append(f"<{tag}>")


async def html(web: Web, path: str, status: int = 200) -> str:
    answer = await web.client.get(path, headers=BROWSER)
    assert answer.status_code == status, (path, answer.text[:400])
    assert answer.headers["content-type"].startswith("text/html")
    live = Live()
    live.feed(answer.text)
    assert live.found == [], path
    # What somebody edits must stay as it is; everything else reads as it is written.
    read = re.sub(r"<textarea.*?</textarea>| value=\"[^\"]*\"| data-\w+=\"[^\"]*\"", "", answer.text, flags=re.DOTALL)
    assert not re.search("[\u202e\u200b]", read), path
    return answer.text


async def author(web: Web, **fields: object) -> str:
    made = await web.client.post("/characters", json={"name": "Mara", **fields})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


async def lived_in(web: Web, words: str) -> dict[str, str]:
    """An instance in which every text that can be written is `words`."""
    texts = dict.fromkeys(("name", "persona", "backstory", "initial_relationship", "kickoff"), words)
    await web.client.put("/you", json={"name": words, "pronouns": words, "persona": words})
    character = await author(web, **texts, traits=[words], voice_samples=[words])
    await web.client.put(
        f"/characters/{character}", json={**texts, "persona": f"{words}\nand more", "traits": [], "voice_samples": []}
    )
    opening = {"title": words, "place": {"name": words}, "weather": words, "facts": [words], "greeting": words}
    chat = (await web.post(f"/characters/{character}/kickoff", opening, status=201))["id"]
    web.script.replies = [words]
    web.script.shapes["TurnAnalysis"] = words
    said = await web.say(f"/chats/{chat}", f"walnuts {words}")
    app = web.app
    app.memory.add_many(
        [NewMemory(f"walnuts {words}", character, f"room:{chat}", speaker=words, about=(words, "you"),
                   witnesses=("you", character),
                   happened=datetime(2024, 5, 1, tzinfo=UTC))]
    )  # fmt: skip
    await app.store.jobs.enqueue([NewJob(words[:60], key="k", payload={"room": words})])
    (job,) = await app.store.jobs.lease([words[:60]], holder="test")
    await app.store.jobs.fail(job, words, fatal=True)
    memory = app.memory.page(owner=character)[0]
    return {"character": character, "chat": chat, "reply": said["reply"], "memory": memory.id, "room": memory.room}


PAGES = [
    "/", "/characters", "/characters/new", "/characters/{character}", "/characters/{character}/edit",
    "/characters/{character}/kickoff", "/characters/{character}/kickoff/form",
    "/characters/{character}/kickoff/form?empty=true",
    "/settings", "/settings/backups", "/memory", "/memory?q=walnuts&owner={character}",
    "/memory?view=graph", "/memory?view=timeline", "/memory/{memory}/edit?room={room}",
    "/memory/{memory}/row?room={room}",
    "/ops", "/ops/now", "/ops/embedding", "/search?q=walnuts", "/search", "/chats/{chat}/prompt/{reply}",
]  # fmt: skip


async def test_hostile_text_is_escaped_on_every_page(web: Web) -> None:
    names = await lived_in(web, HOSTILE)
    for path in PAGES:
        text = await html(web, path.format(**names))
        assert "<script>alert" not in text
    odd = ["/characters/{x}", "/chats/{x}/prompt/y", "/memory/{x}/edit", "/search?q={x}",
           "/memory?q={x}&owner={x}&room={x}", "/memory?type={x}&since={x}&view={x}"]  # fmt: skip
    for path in odd:
        answer = await web.client.get(path.replace("{x}", "<script>alert(1)</script>"), headers=BROWSER)
        assert "<script>alert" not in answer.text, path


async def test_s10_a_new_instance_asks_for_the_owner_and_a_character(web: Web) -> None:
    assert "Who are you?" in await html(web, "/settings")
    await web.client.put("/you", json={"name": "Ana"})
    new = await html(web, "/characters/new")
    assert re.findall(r'data-api="POST /characters/ready/(\w+)"', new) == ["maren", "teodor", "io"]
    assert 'data-drop="/characters/import"' in new
    assert 'data-api="POST /characters"' in new
    assert "No characters yet" in await html(web, "/characters")


async def test_s1_every_version_is_readable_with_what_it_changed(web: Web) -> None:
    character = await author(web, persona="Keeps a lighthouse.")
    await web.client.put(
        f"/characters/{character}", json={"name": "Mara", "persona": "Keeps a lighthouse.\nSays little."}
    )
    text = await html(web, f"/characters/{character}")
    assert "Version 2" in text
    assert "Version 1" in text
    assert re.search(r"diff-added.*Says little\.", text)


async def test_s8_a_classifier_that_fails_leaves_an_empty_form_with_a_notice(web: Web) -> None:
    character = await author(web, kickoff="Rain.")
    web.script.shapes["Opening"] = "no JSON at all"
    text = await html(web, f"/characters/{character}/kickoff/form")
    assert "could not be read" in text
    assert 'name="place.name"' in text


async def test_s13_the_prompt_page_shows_every_part_and_what_was_left_out(web: Web) -> None:
    _, chat = await web.begin()
    said = await web.say(chat, "Hello there.")
    prompt = await web.get(f"{chat}/prompt/{said['reply']}")
    text = await html(web, f"{chat}/prompt/{said['reply']}")
    assert text.count('class="part part-') == len(prompt["parts"])
    assert all(part["name"] not in text for part in prompt["parts"] if part["name"].startswith("turn "))
    assert all(escape(part["text"].split("\n")[0]) in text for part in prompt["parts"])
    assert "Hello there." in text
    assert "Left out" in text
    assert "Nothing was sent" in await html(web, f"{chat}/prompt/{said['turn']}", status=404)


async def test_s17_search_results_are_marked(web: Web) -> None:
    _, chat = await web.begin()
    await web.say(chat, "The walnut tree fell.")
    text = await html(web, "/search?q=walnut")
    assert "<mark>walnut</mark>" in text
    assert f"{chat}?at=" in text
    assert "No results" in await html(web, "/search?q=zebra")


async def test_s28_backups_are_taken_and_listed(web: Web) -> None:
    made = await web.post("/backups", status=201)
    assert [one["file"] for one in await web.get("/backups")] == [made["file"]]
    await web.client.put("/you", json={"name": "Ana"})
    assert made["file"] in await html(web, "/settings")
    assert [event.kind for event in await web.app.store.read("instance")][-1] == "backup_taken"


async def test_s28_a_server_that_cannot_restart_shows_the_restore_command(web: Web) -> None:
    made = await web.post("/backups", status=201)
    answer = await web.client.post(f"/backups/{made['file']}/restore")
    assert answer.status_code == 409
    assert f"coterie restore {web.app.backups.folder / made['file']}" in answer.json()["fix"]
    assert web.app.backups.restore_requested is None


async def test_s29_a_key_is_never_on_the_settings_page(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_MODELS__API_KEY", "sk-very-secret-0123456789")
    await web.client.put("/you", json={"name": "Ana"})
    text = await html(web, "/settings")
    assert "sk-very-secret" not in text


async def test_m7_a_page_of_memories_leads_to_the_next(web: Web) -> None:
    character = await author(web)
    web.app.memory.add_many([NewMemory(f"Number {n} was red.", character, f"memory:{character}") for n in range(50)])
    first = await html(web, f"/memory?owner={character}")
    assert first.count('role="listitem"') == 40
    more = re.search(r'hx-get="(/memory\?[^"]+)"', first)
    assert more is not None
    rest = await html(web, more[1].replace("&amp;", "&"))
    assert rest.count('role="listitem"') == 10
    assert "hx-get" not in rest


@pytest.mark.parametrize(
    "path",
    ["/characters/x", "/characters/x/edit", "/characters/x/kickoff", "/characters/x/portrait", "/search?q=a&chat=x"],
)
async def test_a_missing_path_shows_an_error_page(web: Web, path: str) -> None:
    text = await html(web, path, status=404)
    assert "Go home" in text


async def test_l10_a_chat_with_the_bundled_model_says_so_and_shows_the_way_to_a_better_one(web: Web) -> None:
    character = await author(web)
    chat = (await web.client.post(f"/characters/{character}/kickoff", json={"place": {"name": "the jetty"}})).json()[
        "id"
    ]
    other = [await html(web, f"/chats/{chat}"), (await web.client.get(f"/chats/{chat}/drawer", headers=BROWSER)).text]
    assert not any("/settings#models" in page for page in other)
    web.app.models.settings.roles.clear()
    assert '<a id="demo-model" href="/settings#models">Demo model: connect a better one</a>' in await html(
        web, f"/chats/{chat}"
    )
    drawer = (await web.client.get(f"/chats/{chat}/drawer", headers=BROWSER)).text
    assert "Facts and summaries: not with this model." in drawer
    assert 'href="/settings#models"' in drawer
