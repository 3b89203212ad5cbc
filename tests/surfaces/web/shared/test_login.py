"""P17: with a password set, every request needs a login."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from argon2 import PasswordHasher
from pydantic import SecretStr
from starlette.datastructures import Headers

from coterie.base.clock import ManualClock
from coterie.base.redaction import redact
from coterie.surfaces.web.server import create_web
from coterie.surfaces.web.shared.login import SESSION_SECONDS, Sessions, TooManyTries, WrongPassword, hash_password
from tests.surfaces.web.conftest import Web

PASSWORD = "the sea keeps no diary"
BROWSER = {"Accept": "text/html"}
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)


@pytest.fixture
async def client(web: Web) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_web(web.app, SecretStr(QUICK)))
    async with httpx.AsyncClient(transport=transport, base_url="http://192.168.1.5:8000") as made:
        yield made


async def come_in(client: httpx.AsyncClient, password: str = PASSWORD, **headers: str) -> httpx.Response:
    return await client.post("/login", json={"password": password}, headers=headers)


async def test_p17_every_route_is_behind_the_door(client: httpx.AsyncClient, web: Web) -> None:
    paths = {
        path
        for path, of in (await web.get("/openapi.json"))["paths"].items()
        # The overlay has a token of its own.
        if path not in ("/health", "/join", "/join/leave", "/overlay/{room}/live")
    }
    assert len(paths) > 20
    for path in sorted(paths):
        concrete = path.replace("{", "").replace("}", "")
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            answer = await client.request(method, concrete)
            assert answer.status_code == 401, (method, path)
            assert answer.json()["fix"]


async def test_p17_a_browser_is_led_to_the_door_and_back(client: httpx.AsyncClient) -> None:
    answer = await client.get("/chats?x=1", headers=BROWSER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/chats%3Fx%3D1")
    door = await client.get(answer.headers["location"], headers=BROWSER)
    assert 'data-then="/chats?x=1"' in door.text
    assert (await come_in(client)).status_code == 200
    assert (await client.get("/chats")).status_code == 200
    again = await client.get("/login?next=/characters", headers=BROWSER)
    assert (again.status_code, again.headers["location"]) == (303, "/characters")


async def test_p17_the_cookie_is_for_this_house_and_no_script(client: httpx.AsyncClient) -> None:
    cookie = (await come_in(client)).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert PASSWORD not in cookie


async def test_p17_going_out_ends_the_session(client: httpx.AsyncClient) -> None:
    cookie = (await come_in(client)).headers["set-cookie"].partition(";")[0]
    assert (await client.post("/logout")).status_code == 200
    assert (await client.get("/chats", headers={"cookie": cookie})).status_code == 401


@pytest.mark.parametrize("cookie", ["coterie=", "coterie=x", "a=b; coterie", "x" * 5_000, "coterie==;;"])
async def test_p17_an_invented_session_is_none(client: httpx.AsyncClient, cookie: str) -> None:
    answer = await client.get("/chats", headers={"cookie": cookie})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\n"]
)
async def test_p17_the_door_leads_nowhere_else(client: httpx.AsyncClient, wanted: str) -> None:
    answer = await client.get("/login", params={"next": wanted}, headers=BROWSER)
    assert 'data-then="/"' in answer.text


async def test_p17_a_wrong_password_is_told_at_its_field_and_soon_makes_one_wait(client: httpx.AsyncClient) -> None:
    for _ in range(5):
        answer = await come_in(client, "not the password")
        assert answer.status_code == 401
        assert answer.json()["error"].startswith("password: ")
    waiting = await come_in(client)
    assert waiting.status_code == 429
    assert int(waiting.headers["retry-after"]) >= 1


async def test_p17_another_site_cannot_log_in_or_out(client: httpx.AsyncClient) -> None:
    assert (await come_in(client, origin="http://evil.example")).status_code == 403
    assert (await client.post("/logout", headers={"origin": "http://evil.example"})).status_code == 403
    assert (await come_in(client, origin="http://192.168.1.5:8000")).status_code == 200


async def test_p17_who_brings_a_key_of_their_own_is_let_to_where_it_is_asked_for(web: Web) -> None:
    app = create_web(web.app, SecretStr(QUICK), keyed=("/v1",))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://192.168.1.5:8000") as client:
        assert (await client.get("/v1/models")).status_code == 404, "it is past the door, where nothing is mounted"
        for path in ("/v1x", "/webhook", "/chats"):
            assert (await client.get(path)).status_code == 401


async def test_p17_without_a_password_there_is_no_door(web: Web) -> None:
    assert (await web.client.post("/login", json={"password": "x"})).status_code == 404
    assert (await web.client.get("/characters", headers={"host": "192.168.1.5"})).status_code == 421


async def test_a_session_ends_by_itself() -> None:
    clock = ManualClock()
    sessions = Sessions(QUICK, clock)
    token = (await sessions.log_in(PASSWORD, "here")).session
    clock.advance(SESSION_SECONDS - 1)
    assert sessions.is_valid(token)
    clock.advance(2)
    assert not sessions.is_valid(token)
    assert not sessions.is_valid("")


async def test_each_further_try_waits_longer_and_only_for_who_tried() -> None:
    clock = ManualClock()
    sessions = Sessions(QUICK, clock)
    waits: list[float] = []
    while len(waits) < 12:
        try:
            await sessions.log_in("wrong", "there")
        except TooManyTries as error:
            waits.append(error.wait_s)
            clock.advance(error.wait_s)
        except WrongPassword:
            assert await sessions.log_in(PASSWORD, "here")
    assert waits == sorted(waits)
    assert waits[-1] == 900


def test_what_is_kept_is_a_hash() -> None:
    hashed = hash_password(PASSWORD)
    assert hashed.startswith("$argon2id$")
    assert hash_password(hashed) == hashed
    assert PASSWORD not in redact(hashed)


async def test_a_forwarded_address_does_not_reset_the_limit(client: httpx.AsyncClient) -> None:
    for n in range(5):
        forwarded = {"X-Forwarded-For": f"10.0.0.{n}"}
        assert (await come_in(client, "not the password", **forwarded)).status_code == 401
    assert (await come_in(client, "not the password", **{"X-Forwarded-For": "10.9.9.9"})).status_code == 429


async def test_one_caller_locks_out_nobody_else_not_even_behind_the_same_address() -> None:
    clock = ManualClock()
    sessions = Sessions(QUICK, clock)
    mine = (await sessions.log_in(PASSWORD, "127.0.0.1")).device
    for _ in range(200):
        with pytest.raises((TooManyTries, WrongPassword)):
            await sessions.log_in("wrong", "127.0.0.1")
    with pytest.raises(TooManyTries):
        await sessions.log_in(PASSWORD, "127.0.0.1")
    assert await sessions.log_in(PASSWORD, "127.0.0.1", mine), "the browser has logged in before"
    assert await sessions.log_in(PASSWORD, "192.168.1.7"), "another address"


async def test_a_known_browser_is_limited_by_itself_and_a_forged_one_is_not_known() -> None:
    sessions = Sessions(QUICK, ManualClock())
    mine = (await sessions.log_in(PASSWORD, "127.0.0.1")).device
    other = (await sessions.log_in(PASSWORD, "127.0.0.1")).device
    for _ in range(5):
        with pytest.raises(WrongPassword):
            await sessions.log_in("wrong", "127.0.0.1", mine)
    with pytest.raises(TooManyTries):
        await sessions.log_in(PASSWORD, "10.0.0.1", mine)
    assert (await sessions.log_in(PASSWORD, "10.0.0.1", other)).device == other
    for forged in ("x", "x.", ".", f"{mine}0", mine.partition(".")[0], "\ud800.x", Sessions("another")._new_device()):
        for _ in range(5):
            with pytest.raises(WrongPassword):
                await sessions.log_in("wrong", "10.0.0.2", forged)
        with pytest.raises(TooManyTries):
            await sessions.log_in("wrong", "10.0.0.2", forged)
        sessions._limits.clear("10.0.0.2")


async def test_many_addresses_guess_no_faster_than_the_limit_of_all() -> None:
    clock = ManualClock()
    sessions = Sessions(QUICK, clock)
    guesses = 0
    for n in range(400):
        try:
            await sessions.log_in("wrong", f"10.0.{n // 250}.{n % 250}")
        except WrongPassword:
            guesses += 1
        except TooManyTries:
            pass
    assert guesses == 50
    clock.advance(10.1)
    with pytest.raises(WrongPassword):
        await sessions.log_in("wrong", "10.1.1.1")
    with pytest.raises(TooManyTries):
        await sessions.log_in("wrong", "10.1.1.2")


async def test_the_addresses_of_one_network_are_one_caller() -> None:
    sessions = Sessions(QUICK, ManualClock())
    for n in range(5):
        with pytest.raises(WrongPassword):
            await sessions.log_in("wrong", f"2001:db8::{n:x}")
    with pytest.raises(TooManyTries):
        await sessions.log_in("wrong", "2001:db8::ffff:1%eth0")
    assert await sessions.log_in(PASSWORD, "2001:db8:0:1::1")


@pytest.mark.parametrize(
    "odd",
    [
        '{"a":1}=x',
        "a b c",
        'x="unterminated',
        "=",
        ";;;",
        "[]=()",
        "é=ü",
        "a=b=c",
        "coterie",
        "coterie-8001=theirs",
        "expires=Thu, 01 Jan 1970 00:00:00 GMT",
        "coterie-8000=stale",
    ],
)
async def test_a_cookie_of_another_app_does_not_hide_ours(client: httpx.AsyncClient, odd: str) -> None:
    ours = (await come_in(client)).headers.get_list("set-cookie")[0].partition(";")[0]
    assert ours.startswith("coterie-8000=")
    client.cookies.clear()
    for cookie in (f"{odd}; {ours}", f"{ours}; {odd}"):
        headers = {"cookie": cookie.encode()}
        assert (await client.get("/chats", headers=headers)).status_code == 200  # type: ignore[arg-type]


async def test_a_confirmation_works_once_soon_and_for_its_own_session() -> None:
    clock = ManualClock()
    sessions = Sessions(QUICK, clock)
    mine = (await sessions.log_in(PASSWORD, "here")).session
    theirs = (await sessions.log_in(PASSWORD, "here")).session

    def headers(session: str, token: str) -> Headers:
        return Headers({"cookie": f"coterie={session}", "coterie-confirmation": token})

    token = await sessions.confirm(mine, PASSWORD, "here")
    assert not sessions.use_confirmation(headers(theirs, token)), "another session"
    token = await sessions.confirm(mine, PASSWORD, "here")
    assert sessions.use_confirmation(headers(mine, token))
    assert not sessions.use_confirmation(headers(mine, token)), "a second time"
    token = await sessions.confirm(mine, PASSWORD, "here")
    clock.advance(121)
    assert not sessions.use_confirmation(headers(mine, token)), "too late"
    token = await sessions.confirm(mine, PASSWORD, "here")
    sessions.log_out(mine)
    assert not sessions.use_confirmation(headers(mine, token)), "logged out"
    assert not sessions.use_confirmation(headers(mine, ""))
    for _ in range(5):
        with pytest.raises(WrongPassword):
            await sessions.confirm(theirs, "wrong", "there")
    with pytest.raises(TooManyTries):
        await sessions.confirm(theirs, PASSWORD, "there")
