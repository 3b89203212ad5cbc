"""docs/reference/http.md: every route of the server, from its OpenAPI description."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coterie.app import App, open_store
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.settings import Settings
from coterie.surfaces.openai_api.routes import openai_router
from coterie.surfaces.web.server import create_web
from coterie.surfaces.webhook.routes import webhook_router
from tools.reference.markdown import GENERATED, code, first_paragraph, table

_HEAD = """\
# HTTP API

A running server serves the same description at `/openapi.json`. The same paths answer with HTML pages
when the `Accept` header names `text/html`, as browsers do. The [reference](../reference.md#errors-over-http)
describes error responses and status codes. A `?` marks an optional field."""

_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    meaning: str
    takes: str
    answers: str

    @property
    def group(self) -> str:
        return self.path.split("/")[1]


def api() -> dict[str, Any]:
    """The OpenAPI description of the app with every router that `coterie serve` includes."""
    with tempfile.TemporaryDirectory() as folder:
        paths, settings = Paths.locate({"COTERIE_HOME": folder}), Settings()
        with open_store(paths) as store:
            app = App(paths, settings, store)
            web = create_web(app)
            web.include_router(webhook_router(app.message_router, settings.webhook, app.room_files))
            files = app.room_files
            web.include_router(
                openai_router(app.message_router, settings.api, SystemClock(), app.api_keys, files_of=files)
            )
            return web.openapi()


def http_page() -> str:
    described_api = api()
    routes = list(_routes(described_api))
    lines = [GENERATED, "", _HEAD, ""]
    for group in dict.fromkeys(route.group for route in routes):
        lines += [f"## /{group}", ""]
        rows = [
            (f"`{route.method} {route.path}`", route.meaning, route.takes, route.answers)
            for route in routes
            if route.group == group
        ]
        lines += [*table(("route", "what it does", "takes", "returns"), rows), ""]
    lines += ["## Schemas", ""]
    for name, schema in sorted(_schemas(described_api).items()):
        lines += [f"### {name} {{ #{name.lower()} }}", ""]
        if description := first_paragraph(schema.get("description")):
            lines += [description, ""]
        if "properties" in schema:
            needed = schema.get("required", [])
            fields = [
                (code(key if key in needed else f"{key}?"), _type(inner), first_paragraph(inner.get("description")))
                for key, inner in schema["properties"].items()
            ]
            lines += [*table(("field", "type", "meaning"), fields), ""]
        else:
            lines += [_type(schema), ""]
    return "\n".join(lines).rstrip() + "\n"


def _routes(described_api: dict[str, Any]) -> Iterator[Route]:
    for path, methods in described_api["paths"].items():
        for method in _METHODS:
            if (operation := methods.get(method)) is not None:
                meaning = operation.get("summary", "")
                yield Route(method.upper(), path, meaning, _takes(operation), _answers(operation))


def _takes(operation: dict[str, Any]) -> str:
    parts = [
        code(parameter["name"] + ("" if parameter.get("required") else "?"))
        for parameter in operation.get("parameters", [])
        if parameter["in"] in ("query", "header")
    ]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(_type(body["schema"]) if body.get("schema") else f"the body as `{kind}`")
    return ", ".join(parts)


def _answers(operation: dict[str, Any]) -> str:
    parts = []
    for status, answer in operation.get("responses", {}).items():
        if not status.startswith("2"):
            continue
        shapes = [_type(body["schema"]) for body in answer.get("content", {}).values() if body.get("schema")]
        parts.append(" ".join((status, *shapes)).strip())
    return "; ".join(parts)


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema as short text; schemas of components are links."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})" if schema["$ref"].startswith("#/components") else code(name)
    if "const" in schema:
        return code(f'"{schema["const"]}"')
    if "enum" in schema:
        return " or ".join(code(f'"{option}"') for option in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(option) for option in schema[several])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"map to {_type(inner)}"
    return str(schema.get("type", "anything"))


def _schemas(described_api: dict[str, Any]) -> dict[str, dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = described_api.get("components", {}).get("schemas", {})
    return {name: schema for name, schema in schemas.items() if name not in ("HTTPValidationError", "ValidationError")}
