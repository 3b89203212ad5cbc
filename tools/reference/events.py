"""docs/reference/events.md: every kind of event, by the package that declares it."""

from __future__ import annotations

import json
from itertools import groupby

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coterie import app as _all_kinds  # noqa: F401 (importing it declares every kind)
from coterie.eventstore import Payload, declared_kinds
from tools.reference.markdown import GENERATED, classes_in, code, field_descriptions, first_paragraph, table, type_name

_HEAD = """\
# Events

Every kind of event in the log. Besides the fields of its payload an event has `id`, `stream`, `seq`,
`kind`, `version`, `ts`, `actor`, `cause`, `key` and `turn` ([event store](../eventstore.md)). Print events
with `coterie events --kind KIND`.

The package that declares a kind owns its schema. A change needs a new version and an upcaster for the
old ones. Older events may lack a field that has a default."""


def declared_payloads() -> dict[str, type[Payload]]:
    """Every kind that Coterie itself declares; tests declare kinds of their own."""
    return {kind: payload for kind, payload in declared_kinds().items() if payload.__module__.startswith("coterie.")}


def owner(payload: type[Payload]) -> str:
    """The package that declares a kind: `eventstore`, `modes/story` …"""
    _, package, *rest = payload.__module__.split(".")
    return f"{package}/{rest[0]}" if package in ("modes", "surfaces") and rest else package


def events_page() -> str:
    kinds = sorted(declared_payloads().values(), key=lambda payload: (owner(payload), payload.kind))
    lines = [GENERATED, "", _HEAD, ""]
    rows = []
    for package, payloads in groupby(kinds, owner):
        names = ", ".join(f"[`{payload.kind}`](#{payload.kind})" for payload in payloads)
        rows.append((code(package), names))
    lines += [*table(("package", "kinds"), rows), ""]
    for package, payloads in groupby(kinds, owner):
        lines += [f"## {package}", ""]
        for payload in payloads:
            lines += _kind(payload)
    lines += ["## Nested types", ""]
    for model in _nested_models(kinds):
        lines += [f"### {model.__name__}", ""]
        if text := _own_doc(model):
            lines += [text, ""]
        lines += [*_fields(model), ""]
    return "\n".join(lines).rstrip() + "\n"


def _kind(payload: type[Payload]) -> list[str]:
    lines = [f"### {payload.kind} {{ #{payload.kind} }}", "", _own_doc(payload), ""]
    where = payload.__module__.removeprefix("coterie.").replace(".", "/") + ".py"
    lines += [f"Version {payload.version}, `{payload.__name__}` in `{where}`.", ""]
    if payload.model_fields:
        lines += [*_fields(payload), ""]
    return lines


def _own_doc(model: type[BaseModel]) -> str:
    """The docstring of the class itself, not an inherited one."""
    return first_paragraph(model.__dict__.get("__doc__"))


def _fields(model: type[BaseModel]) -> list[str]:
    descriptions = field_descriptions(model)
    rows = [
        (code(name), code(type_name(info.annotation)), _default(info), descriptions[name])
        for name, info in model.model_fields.items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    if info.default_factory not in (None, dict, list, tuple):
        return "generated"  # an id or a time
    value = info.get_default(call_default_factory=True)
    return code("{}" if isinstance(value, BaseModel) else json.dumps(value, ensure_ascii=False, default=str))


def _nested_models(kinds: list[type[Payload]]) -> list[type[BaseModel]]:
    """The models that fields refer to, recursively."""
    models: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = list(kinds)
    while waiting:
        for info in waiting.pop().model_fields.values():
            for cls in classes_in(info.annotation):
                if issubclass(cls, BaseModel) and cls.__name__ not in models:
                    models[cls.__name__] = cls
                    waiting.append(cls)
    return [models[name] for name in sorted(models)]
