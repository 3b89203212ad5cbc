"""The home page and the activity of a character, as HTML."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote

from coterie.conversation.events import AssistantTurn, AssistantTurnStarted
from coterie.eventstore import NewEvent, NewJob
from coterie.llm.messages import PromptMessage, ToolCall
from coterie.llm.usage import STREAM, ModelCalled
from coterie.modes.desk.events import WorkerEnded, WorkerStarted, WorkerWaiting
from coterie.modes.draft.events import ChangeProposed
from tests.surfaces.web.conftest import Web
from tests.surfaces.web.test_pages import HOSTILE, html


async def at_home(web: Web) -> str:
    await web.client.put("/you", json={"name": "Ana"})
    return str((await web.post("/characters/ready/maren", status=201))["id"])


def lines(text: str) -> list[tuple[str, str]]:
    """The link and text of each inbox row."""
    away = text.split('class="home-inbox"')[1].split("</section>")[0]
    return [(unescape(href), unescape(said)) for href, said in re.findall(r'<a href="([^"]+)"[^>]*>([^<]+)</a>', away)]


async def say_at_the_desk(web: Web, room: str, character: str, text: str) -> None:
    started = AssistantTurnStarted(reply=f"r-{text}", speaker=character, answers=None)
    await web.app.store.append(
        [NewEvent(room, started, character), NewEvent(room, AssistantTurn(reply=f"r-{text}", text=text), character)]
    )


async def test_a_new_instance_explains_each_mode_and_has_an_empty_inbox(web: Web) -> None:
    character = await at_home(web)
    text = await html(web, "/")
    assert "Nothing new." in text
    assert f'href="/characters/{character}"' in text
    assert text.count('class="home-intro"') == 4
    for path in ("/characters", "/draft", "/crowd", "/desk", "/about"):
        assert f'href="{path}"' in text


async def test_s17_an_unread_reply_is_listed_until_it_is_read(web: Web) -> None:
    await web.client.put("/you", json={"name": "Ana"})
    _, chat = await web.begin(title="The jetty")
    web.script.replies = ["The tide is out."]
    await web.say(chat, "Hello.")
    text = await html(web, "/")
    assert lines(text) == [(chat, "Maren Oke answered")]
    assert "The tide is out." in text
    await web.post(f"{chat}/read")
    assert lines(await html(web, "/")) == []
    assert "The jetty" in await html(web, "/")


async def test_s17_during_a_reply_the_lists_show_the_previous_message(web: Web) -> None:
    await web.client.put("/you", json={"name": "Ana"})
    character, chat = await web.begin(title="The jetty")
    web.script.replies = ["The tide is out."]
    await web.say(chat, "Hello.")
    room = f"room:{chat.removeprefix('/chats/')}"
    begun = AssistantTurnStarted(reply="r-next", speaker=character, answers=None)
    await web.app.store.append([NewEvent(room, begun, character)])
    for path in ("/", "/chats", f"/characters/{character}"):
        text = await html(web, path)
        assert "The tide is out." in text
        assert "No messages yet." not in text


async def test_waiting_and_finished_workers_are_listed(web: Web) -> None:
    character = await at_home(web)
    desk = (await web.post("/desk", {"character": character, "title": "The garden"}, status=201))["id"]
    room = f"room:{desk}"
    asked = PromptMessage(role="assistant", text="", calls=(ToolCall(id="1", name="send_mail", arguments="{}"),))
    await say_at_the_desk(web, room, character, "At it.")
    await web.post(f"/desk/{desk}/read")
    await web.app.store.append(
        [
            NewEvent(room, WorkerStarted(worker="digger", task="dig"), character),
            NewEvent(room, WorkerEnded(worker="digger", state="done", result="Dug."), character),
            NewEvent(room, WorkerStarted(worker="mailer", task="mail"), character),
            NewEvent(room, WorkerWaiting(worker="mailer", question="May I send_mail?", said=asked), character),
        ]
    )
    await say_at_the_desk(web, room, character, "The bed is dug.")
    await say_at_the_desk(web, room, character, "mailer asks: May I? Answer “yes mailer”.")
    text = await html(web, "/")
    assert lines(text) == [
        (f"/desk/{desk}", "Maren Oke asks for your approval"),
        (f"/desk/{desk}", "Maren Oke finished some work"),
    ]
    assert "The bed is dug." in text
    assert "May I send_mail?" in text
    assert "mailer asks" not in text
    await web.post(f"/desk/{desk}/read")
    assert lines(await html(web, "/")) == [(f"/desk/{desk}", "Maren Oke asks for your approval")]


async def with_a_proposal(web: Web, character: str, title: str) -> str:
    workspace = str((await web.post("/draft/workspaces", {"name": title}, status=201))["id"])
    answer = await web.client.put(
        f"/draft/workspaces/{workspace}/documents/lamp%20oil.md", json={"text": f"# {title}\n\nIt burns.\n"}
    )
    assert answer.is_success, answer.text
    body = {"document": "lamp oil.md", "members": [{"bot": character}], "title": title}
    thread = await web.post(f"/draft/workspaces/{workspace}/threads", body, status=201)
    proposed = ChangeProposed(
        change="c1", reply="r", author=character, workspace=workspace, document="lamp oil.md", branch="main",
        original="It burns.", proposed="It burns on.", reason="", inserts=False, missing="absent", commit="", blob="",
    )  # fmt: skip
    await web.app.store.append([NewEvent(f"room:{thread['id']}", proposed, character)])
    return f"/draft/workspaces/{workspace}/documents/{quote('lamp oil.md')}"


async def test_pending_proposals_are_listed_with_their_document(web: Web) -> None:
    character = await at_home(web)
    document = await with_a_proposal(web, character, "The lamp")
    text = await html(web, "/")
    assert lines(text) == [(f"{document}?branch=main", "Maren Oke left 1 proposal for The lamp")]
    assert f'href="{document}"' in text
    assert (await web.client.get(f"{document}?branch=main")).status_code == 200


async def test_access_requests_and_failed_jobs_are_listed(web: Web) -> None:
    await at_home(web)
    await web.app.people.request_pairing("matrix", "@bo:example.org", "Bo", 60)
    await web.app.store.jobs.enqueue([NewJob("sending_a_copy", key="k")])
    (job,) = await web.app.store.jobs.lease(["sending_a_copy"], holder="test")
    await web.app.store.jobs.fail(job, "The disk is full.", fatal=True)
    assert lines(await html(web, "/")) == [
        ("/settings#people", "Bo asks for access"),
        ("/ops", "Failed: sending a copy"),
    ]


async def test_spending_since_the_last_visit_is_listed(web: Web) -> None:
    await at_home(web)
    call = ModelCalled(
        call="c", day="2026-01-01", role="narrative", provider="p", model="m", outcome="answered", tokens_in=1,
        tokens_out=1, estimated=False, usd_micros=120_000, priced="known", total_ms=1.0,
    )  # fmt: skip
    await web.app.store.append([NewEvent(STREAM, call)])
    await web.post("/you/here")
    assert lines(await html(web, "/")) == [], "whoever is here for the first time was never away"
    clock, now = web.app.visits._clock, web.app.visits._clock.now()
    await web.app.store.append([NewEvent(STREAM, call), NewEvent(STREAM, call.model_copy(update={"priced": "free"}))])
    clock.now = lambda: now.replace(year=now.year + 1)  # type: ignore[method-assign]
    text = await html(web, "/")
    assert lines(text) == [("/ops", "$0.12 spent on 1 call to models")]
    assert "Welcome back, Ana" in text


async def test_hostile_names_and_titles_are_escaped(web: Web) -> None:
    await web.client.put("/you", json={"name": HOSTILE})
    character = (await web.post("/characters", {"name": HOSTILE}, status=201))["id"]
    chat = (await web.post(f"/characters/{character}/kickoff", {"title": HOSTILE, "place": {"name": "x"}}, status=201))[
        "id"
    ]
    web.script.replies = [HOSTILE]
    await web.say(f"/chats/{chat}", "Hello.")
    desk = (await web.post("/desk", {"character": character, "title": HOSTILE[:200]}, status=201))["id"]
    await say_at_the_desk(web, f"room:{desk}", character, HOSTILE)
    await with_a_proposal(web, character, HOSTILE)
    await web.app.people.request_pairing("matrix", "@x", HOSTILE, 60)
    for path in ("/", f"/characters/{character}"):
        text = await html(web, path)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text


async def test_a_character_page_lists_its_activity_in_every_mode(web: Web) -> None:
    await web.client.put("/you", json={"name": "Ana"})
    character, chat = await web.begin(title="The jetty")
    desk = (await web.post("/desk", {"character": character, "title": "The garden"}, status=201))["id"]
    await web.app.store.append([NewEvent(f"room:{desk}", WorkerStarted(worker="w", task="dig the bed"), character)])
    await with_a_proposal(web, character, "The lamp")
    text = await html(web, f"/characters/{character}")
    assert "Activity · 3" in text
    assert f'href="{chat}"' in text
    assert f'href="/desk/{desk}"' in text
    assert re.search(r"dig the bed.*running", text)
    assert re.search(r'href="/draft/threads/\w+"', text)
    assert "1 proposal" in text
    assert "not a member of any room" in text


async def test_c14_a_crowd_member_is_shown_with_its_drift(web: Web) -> None:
    from coterie.modes.crowd.events import CrowdDrifted, room_stream

    name = next(iter(web.app.crowd.configs.personas()))
    character = (await web.post(f"/crowd/personas/{name}/meet"))["id"]
    rooms = [room for room in web.app.crowd.configs.rooms().values() if not room.roster or name in room.roster]
    persona = web.app.crowd.configs.persona(name)
    state = {"traits": {**persona.traits.model_dump(), "warmth": 0.99}, "interests": []}
    drifted = CrowdDrifted(persona=name, number=1, after=0, state=state, changes=())
    await web.app.store.append([NewEvent(room_stream(rooms[0].name), drifted, "crowd")])
    text = await html(web, f"/characters/{character}")
    for room in rooms:
        assert f'href="/crowd/{room.name}"' in text
    assert f"warmth {persona.traits.warmth:.2f} → 0.99" in text
    await web.app.crowd.close()
