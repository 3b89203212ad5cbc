"""Requests to every route of `/openapi.json`, made by schemathesis: valid ones, invalid ones, and ones with real ids.

Pages and their fragments are not described there; they are asked with real and with hostile parameters. A response is
wrong if it is a 5xx, comes after more than five seconds, or has a status, content type or shape that
`/openapi.json` does not describe.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import requests
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bench.lib.hostile_inputs import huge_picture
from bench.lib.report import log, progress
from bench.lib.server_process import ServerProcess
from coterie.surfaces.web.server import _PAGES

HANG_S = 5.0
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_FEW = {"POST /backups", "POST /login"}
"""A backup copies the database, and a wrong password makes the next one wait."""
_KEEP_ID = {"POST /backups/{file}/restore"}
"""With a real file it would restart the server."""
_ADDRESSES = {"PATCH /settings", "POST /models/test"}
_HOSTILE = (
    *("", "0", "-1", "9" * 25, "1e999", "nan", "x" * 3_000, "%", "a b", "../..", "%2e%2e/x", "é🦀", "\x00", "\ud800"),
    *("<b>", "'\"&", "9999-12-31T23:59:59Z", "0001-01-01", "true", "[]", "http://[", "chat:1,instance:-5"),
)


@dataclass
class FuzzResult:
    requests: int = 0
    server_errors: int = 0
    hangs: int = 0
    undocumented: int = 0
    operations: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    slowest_s: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)
    """By operation and kind: the first problem of that kind."""


class ApiFuzzer:
    def __init__(self, address: str, schema: dict[str, Any], ids: Mapping[str, list[str]]) -> None:
        """`ids` are real values of path and query parameters, by name."""
        self._address = address
        self._schema = schemathesis.openapi.from_dict(schema)
        self._ids = ids
        self.result = FuzzResult()

    def run(self, cookies: Mapping[str, str], examples: int, *, number: int = 1) -> None:
        """Send `examples` requests to every operation."""
        found = list(self._schema.get_all_operations())
        operations = [one.ok() for one in found if isinstance(one, Ok)]
        if len(operations) < len(found):
            self.result.problems["/openapi.json"] = "some operations are not described validly"
        self.result.operations = len(operations)
        operations.sort(key=lambda operation: _order(operation.label))
        with requests.Session() as session:
            session.cookies.update(cookies)
            for position, operation in enumerate(operations):
                progress(position, len(operations), operation.label)
                count = 3 if operation.label in _FEW else examples
                self._fuzz(session, dict(cookies), operation, count, number)

    def run_pages(self, routes: Sequence[APIRoute], cookies: Mapping[str, str], examples: int) -> None:
        """Send `examples` requests to every page."""
        chance = random.Random("pages")
        with requests.Session() as session:
            for position, route in enumerate(routes):
                progress(position, len(routes), route.path)
                for _ in range(examples):
                    session.cookies.clear()
                    session.cookies.update(cookies)
                    self._send_page(session, route, chance)

    def _send_page(self, session: requests.Session, route: APIRoute, chance: random.Random) -> None:
        def value(name: str) -> str:
            real = self._ids.get(name) or [""]
            return chance.choice(real) if chance.random() < 0.6 else chance.choice(_HOSTILE)

        path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: _quoted(value(found[1])), route.path)
        names = [parameter.alias for parameter in route.dependant.query_params if chance.random() < 0.7]
        query = "&".join(f"{name}={_quoted(value(name))}" for name in [*names, "of"])
        headers = {"Accept": "text/html"} if chance.random() < 0.8 else {}
        if chance.random() < 0.3:
            headers["HX-Request"] = "true"
        arguments = {"method": "GET", "url": f"{self._address}{path}?{query}", "headers": headers}
        self._answer(session, arguments, f"GET {route.path}")

    def _fuzz(
        self, session: requests.Session, cookies: dict[str, str], operation: Any, count: int, number: int
    ) -> None:
        chance = random.Random(f"{operation.label} {number}")

        @seed(number)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            self._use_real_ids(case, operation.label, chance)
            session.cookies.clear()
            session.cookies.update(cookies)  # a route may have changed them
            self._send(session, case, operation)

        ask()

    def _use_real_ids(self, case: Any, label: str, chance: random.Random) -> None:
        if label not in _KEEP_ID:
            for values in (case.path_parameters, case.query, case.body):
                if isinstance(values, dict):
                    for name in values:
                        if name in self._ids and self._ids[name] and chance.random() < 0.7:
                            values[name] = chance.choice(self._ids[name])
        if label in _ADDRESSES:
            case.body = _with_local_addresses(case.body)

    def _send(self, session: requests.Session, case: Any, operation: Any) -> None:
        arguments = case.as_transport_kwargs(base_url=self._address)
        if arguments.get("cookies"):
            arguments["cookies"] = {**dict(session.cookies), **arguments["cookies"]}
        answer = self._answer(session, arguments, operation.label)
        if answer is not None:
            self._check_shape(case, operation.label, answer, arguments)

    def _answer(self, session: requests.Session, arguments: dict[str, Any], label: str) -> requests.Response | None:
        """The response, unless there is none, or it is an error of the server or a stream."""
        result = self.result
        result.requests += 1
        started = time.perf_counter()
        try:
            answer = session.request(**arguments, timeout=4 * HANG_S, stream=True, allow_redirects=False)
            is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
            if is_stream:
                answer.close()  # it would go on for ever
            else:
                _ = answer.content
        except (ValueError, requests.exceptions.InvalidHeader) as error:
            result.problems.setdefault("not sent", f"{label}: {error}"[:300])
            result.requests -= 1  # the client itself cannot send it, such as a header with a line break
            return None
        except requests.RequestException as error:
            result.hangs += 1
            self._note(label, "no answer", f"{error} ← {_describe(arguments)}")
            return None
        taken = time.perf_counter() - started
        result.slowest_s = max(result.slowest_s, taken)
        result.statuses[answer.status_code] += 1
        if taken > HANG_S:
            result.hangs += 1
            self._note(label, "slow", f"{taken:.1f} s: {_describe(arguments)}")
        if answer.status_code >= 500:
            result.server_errors += 1
            self._note(label, f"{answer.status_code}", f"{answer.text[:300]} ← {_describe(arguments)}")
            return None
        return None if is_stream else answer

    def _check_shape(self, case: Any, label: str, answer: requests.Response, arguments: Any) -> None:
        try:
            case.validate_response(answer, checks=_CHECKS)
        except FailureGroup as group:
            self.result.undocumented += 1
            for failure in group.exceptions:
                self._note(
                    label, f"{type(failure).__name__} {answer.status_code}", f"{failure} ← {_describe(arguments)}"
                )

    def _note(self, label: str, kind: str, text: str) -> None:
        key = f"{label}: {kind}"
        if key not in self.result.problems:
            self.result.problems[key] = text[:1_500]
            log(f"{key}: {text[:600]}")


def _order(label: str) -> int:
    """What deletes comes last, so that the others find something, and then the end of the session."""
    if label == "POST /logout":
        return 2
    return int(label.endswith(("/delete", "/reset")) or label.startswith("DELETE"))


def _quoted(value: str) -> str:
    return quote(value.encode("utf-8", "surrogatepass"), safe="")


def _describe(arguments: Mapping[str, Any]) -> str:
    parts = (arguments.get(name) for name in ("method", "url", "params", "json", "data"))
    return " ".join(repr(part)[:300] for part in parts if part)


def _with_local_addresses(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_local_addresses(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_local_addresses(item) for item in value]
    return "http://127.0.0.1:9/v1" if isinstance(value, str) and "://" in value else value


def page_routes() -> list[APIRoute]:
    """The routes of pages and of their fragments, which `/openapi.json` does not describe."""
    found = [route for router in _PAGES for route in router.routes if isinstance(route, APIRoute)]
    return [route for route in found if "GET" in (route.methods or ())]


def fill(server: ServerProcess, cookies: Mapping[str, str]) -> dict[str, list[str]]:
    """Create one of everything through the API; real values of parameters and fields, by name."""
    tavern = server.home.resolve() / "import" / "default-user"
    for folder in ("characters", "chats", "QuickReplies"):
        (tavern / folder).mkdir(parents=True)
    (tavern / "QuickReplies" / "Set.json").write_text('{"name": "Set", "qrList": [{"label": "Hi", "message": "Hi."}]}')
    with httpx.Client(base_url=server.address, cookies=dict(cookies), timeout=120) as client:

        def post(path: str, body: object = None, **query: str) -> Any:
            answer = client.post(path, json=body, params=query)
            answer.raise_for_status()
            return answer.json()

        characters = [post("/characters/ready/maren")["id"], post("/characters/ready/io")["id"]]
        chats = [post(f"/characters/{characters[0]}/kickoff", {"place": {"name": "the jetty"}})["id"]]
        turn = post(f"/chats/{chats[0]}/turns", {"text": "Where is the lamp?"}, wait="true")
        workspace = post("/draft/workspaces", {"name": "A book"})["id"]
        client.put(f"/draft/workspaces/{workspace}/documents/one.md", json={"text": "It rained.\n\nThen it stopped.\n"})
        thread = post(
            f"/draft/workspaces/{workspace}/threads",
            {"document": "one.md", "title": "A thread", "members": [{"bot": characters[0]}]},
        )["id"]
        change = "<change><original>It rained.</original><proposed>It poured.</proposed></change>"
        client.post(f"/draft/threads/{thread}/messages", json={"text": f"Shorter? [[{change}]]"}).raise_for_status()
        link = post(f"/draft/workspaces/{workspace}/guests/one.md", {"name": "Guest"})["id"]
        desks = [post("/desk", {"character": characters[1], "title": "A desk"})["id"]]
        process = post(f"/desk/{desks[0]}/workers", {"task": "Count."})["id"]
        schedule = post(f"/desk/{desks[0]}/schedules", {"prompt": "Count.", "when": {"every_s": 86_400}})["id"]
        rooms = [room["name"] for room in client.get("/crowd").json()]
        members = client.get(f"/crowd/{rooms[0]}").json()["personas"]
        line = post(f"/crowd/{rooms[0]}/messages", {"text": "hello all"})
        person = post("/people", {"name": "Ben"})["person"]["id"]
        key = post(f"/people/{person}/keys", {"name": "An app"})["id"]
        memory = "\n".join(f'{{"text": "Ana likes tea number {number}."}}' for number in range(3))
        client.post("/memories/import", params={"owner": characters[0]}, content=memory).raise_for_status()
        memories = [memory["id"] for memory in client.get("/memories", params={"owner": characters[0]}).json()]
        persona = post("/you/personas", {"name": "Captain"})["id"]
        picture = client.put(f"/you/personas/{persona}/picture", content=huge_picture(9, 9)).json()["picture"]
        book = post("/lorebooks", {"name": "Places"})["id"]
        entry = post(f"/lorebooks/{book}/entries", {"name": "Jetty", "keys": ["jetty"], "content": "Wet."})["entry"]
        preset = client.post("/models/samplers/import", params={"name": "warm"}, content=b'{"temp": 0.9}')
        preset.raise_for_status()
        run = post("/imports", {"folder": str(tavern)})["id"]
        backup = post("/backups")["file"]
        jobs = [str(job["id"]) for job in client.get("/ops/jobs").json()["jobs"]]
        message = post("/webhook", {"text": "hi", "room": "main", "id": "first"})["id"]
        prompts = [one["name"] for one in client.get("/prompts").json()]
        changes = [one["id"] for one in client.get(f"/draft/threads/{thread}").json()["changes"]]
    return {
        "message": [message],
        "change": changes,
        "link": [link],
        "process": [process],
        "schedule": [schedule],
        "number": [str(line["number"])],
        "key": [key],
        "persona": [persona],
        "picture": [picture.rpartition("/")[2]],
        "book": [book, f"card:{characters[0]}"],
        "entry": [entry],
        "run_id": [run],
        "file": [backup],
        "job": jobs or ["1"],
        "role": ["narrative", "classifier"],
        "task": ["research"],
        "skill": ["notes"],
        "of": ["0"],
        "use": ["expression", "gallery"],
        "folder": [str(tavern)],
        "character_id": characters,
        "character": characters,
        "owner": characters,
        "chat": [*chats, *desks],
        "turn": [str(turn.get("turn", ""))],
        "reply": [str(turn.get("reply", ""))],
        "workspace": [workspace],
        "path": ["one.md", "part/two.md"],
        "thread": [thread],
        "room": rooms[:2],
        "person": [person],
        "memory_id": memories,
        "name": ["maren", "telegram", "local", "warm", "persona", prompts[0], *members[:2]],
        "provider": ["openai-compatible"],
        "base_url": [server.model],
        "model": ["script", "local/script", "http://127.0.0.1:9/x.gguf"],
        "document": ["one.md"],
    }
