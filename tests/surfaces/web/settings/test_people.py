"""People, over HTTP and on the settings page. P3"""

from __future__ import annotations

from tests.surfaces.web.conftest import Web


async def test_p3_a_person_is_invited_linked_allowed_and_unlinked(web: Web) -> None:
    bot, _ = await web.begin()
    made = await web.post("/people", {"name": "Bo"}, status=201)
    person, code = made["person"]["id"], made["code"]
    assert made["minutes"] == 15 and made["person"]["may_talk"] == []
    people = web.app.people
    assert (await people.link(code, "webhook", "bo")).id == person
    shown = await web.get("/people")
    bo = next(one for one in shown["people"] if one["id"] == person)
    assert bo["accounts"] == [{"surface": "webhook", "account": "bo", "name": ""}]
    assert code not in str(shown), "a code is shown once"
    for character, allowed, expected in ((bot, True, [bot]), ("*", True, ["*", bot]), ("*", False, [bot])):
        body = {"character": character, "allowed": allowed}
        answer = await web.client.put(f"/people/{person}/characters", json=body)
        assert sorted(answer.json()["may_talk"]) == expected
    answer = await web.client.post("/people/unlink", json={"surface": "webhook", "account": "bo"})
    assert answer.status_code == 204 and people.by_account("webhook", "bo") is None


async def test_p3_an_access_request_is_approved_by_its_code(web: Web) -> None:
    asking = await web.app.people.request_pairing("matrix", "@cy:example.org", "Cy", 15)
    assert asking is not None
    (waits,) = (await web.get("/people"))["asking"]
    assert waits["code"] == asking.code and waits["account"] == "@cy:example.org"
    let_in = await web.post("/people/approve", {"code": asking.code})
    assert let_in["name"] == "Cy" and (await web.get("/people"))["asking"] == []
    again = await web.client.post("/people/approve", json={"code": asking.code})
    assert again.status_code >= 400 and "There is no request" in again.json()["error"], "a code works once"


async def test_p3_invalid_requests_are_refused(web: Web) -> None:
    for path, body in (
        ("/people", {"name": "  "}),
        ("/people/nobody/code", {}),
        ("/people/unlink", {"surface": "webhook", "account": "nobody"}),
        ("/people/approve", {"code": "AAAAA-AAAAA"}),
    ):
        answer = await web.client.post(path, json=body)
        assert 400 <= answer.status_code < 500 and answer.json()["error"], path


async def test_p3_the_page_shows_people_and_escapes_their_names(web: Web) -> None:
    await web.begin()
    await web.client.put("/you", json={"name": "Ana"})
    await web.post("/people", {"name": '<img src=x onerror="alert(1)">'}, status=201)
    page = (await web.client.get("/settings", headers={"Accept": "text/html"})).text
    assert "Who may talk to your characters" in page and "&lt;img src=x" in page and "<img src=x" not in page
    part = (await web.client.get("/settings/people", headers={"Accept": "text/html"})).text
    assert "May not talk to any character yet" in part and "/characters" in part
