"""Requests to every route of `/openapi.json`, made by schemathesis: valid ones, invalid ones, and ones with real ids.

A response is wrong if it is a 5xx, comes after more than five seconds, or has a status, content type or shape that
`/openapi.json` does not describe.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bench.lib.report import log, progress

HANG_S = 5.0
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_FEW = {"POST /backups", "POST /login"}
"""A backup copies the database, and a wrong password makes the next one wait."""
_KEEP_ID = {"POST /backups/{file}/restore"}
"""With a real file it would restart the server."""
_ADDRESSES = {"PATCH /settings", "POST /models/test"}


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
        result = self.result
        arguments = case.as_transport_kwargs(base_url=self._address)
        arguments["timeout"] = 4 * HANG_S
        arguments["stream"] = True
        arguments["allow_redirects"] = False
        if arguments.get("cookies"):
            arguments["cookies"] = {**dict(session.cookies), **arguments["cookies"]}
        result.requests += 1
        started = time.perf_counter()
        try:
            answer = session.request(**arguments)
            is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
            if is_stream:
                answer.close()  # it would go on for ever
            else:
                _ = answer.content
        except (ValueError, requests.exceptions.InvalidHeader) as error:
            result.problems.setdefault("not sent", f"{operation.label}: {error}"[:300])
            result.requests -= 1  # the client itself cannot send it, such as a header with a line break
            return
        except requests.RequestException as error:
            result.hangs += 1
            self._note(operation, "no answer", str(error))
            return
        taken = time.perf_counter() - started
        result.slowest_s = max(result.slowest_s, taken)
        result.statuses[answer.status_code] += 1
        if taken > HANG_S:
            result.hangs += 1
            self._note(operation, "slow", f"{taken:.1f} s: {_describe(arguments)}")
        if answer.status_code >= 500:
            result.server_errors += 1
            self._note(operation, f"{answer.status_code}", f"{answer.text[:300]} ← {_describe(arguments)}")
        elif not is_stream:
            self._check_shape(case, operation, answer, arguments)

    def _check_shape(self, case: Any, operation: Any, answer: requests.Response, arguments: Any) -> None:
        try:
            case.validate_response(answer, checks=_CHECKS)
        except FailureGroup as group:
            self.result.undocumented += 1
            for failure in group.exceptions:
                self._note(
                    operation, f"{type(failure).__name__} {answer.status_code}", f"{failure} ← {_describe(arguments)}"
                )

    def _note(self, operation: Any, kind: str, text: str) -> None:
        key = f"{operation.label}: {kind}"
        if key not in self.result.problems:
            self.result.problems[key] = text[:1_500]
            log(f"{key}: {text[:600]}")


def _order(label: str) -> int:
    """What deletes comes last, so that the others find something, and then the end of the session."""
    if label == "POST /logout":
        return 2
    return int(label.endswith(("/delete", "/reset")) or label.startswith("DELETE"))


def _describe(arguments: Mapping[str, Any]) -> str:
    parts = (arguments.get(name) for name in ("method", "url", "params", "json", "data"))
    return " ".join(repr(part)[:300] for part in parts if part)


def _with_local_addresses(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_local_addresses(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_local_addresses(item) for item in value]
    return "http://127.0.0.1:9/v1" if isinstance(value, str) and "://" in value else value


def fill(address: str, cookies: Mapping[str, str]) -> dict[str, list[str]]:
    """Create one of everything through the API; real values of parameters, by name."""
    with httpx.Client(base_url=address, cookies=dict(cookies), timeout=120) as client:

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
        desk = post("/desk", {"character": characters[1], "title": "A desk"})
        rooms = [room["name"] for room in client.get("/crowd").json()] or ["den"]
        person = post("/people", {"name": "Ben"})["person"]["id"]
        memories = [memory["id"] for memory in client.get("/memories").json()]
    desks = [desk.get("id") or desk["chat"]["id"]]
    return {
        "character_id": characters,
        "character": characters,
        "owner": characters,
        "chat": [*chats, *desks],
        "turn": [str(turn.get("turn", ""))],
        "reply": [str(turn.get("reply", ""))],
        "workspace": [workspace],
        "path": ["one.md", "part/two.md"],
        "thread": [thread],
        "room": rooms,
        "person": [person],
        "memory_id": memories,
        "name": ["maren", "io"],
    }
