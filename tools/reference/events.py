"""docs/reference/events.md: every kind of event, by the room that owns it."""

from __future__ import annotations

import json
from itertools import groupby

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coterie import app as _every_room  # noqa: F401 (importing it declares every kind)
from coterie.eventstore import Payload, declared_kinds
from tools.reference.markdown import GENERATED, classes_in, code, field_descriptions, first_paragraph, table, type_name

_HEAD = """\
# Events

Everything that ever happened is one of these. An event is a payload in its place: beside its own fields it has
`id`, `stream`, `seq`, `kind`, `version`, `ts`, `actor`, `cause`, `key` and `turn` ([kernel](../kernel.md)).
`coterie events --kind KIND` shows them as they are.

A kind belongs to the room that declares it, and only that room changes its shape: with a new version, and an
upcaster for the old ones. A field with a default may be left out by older events."""


def declared_payloads() -> dict[str, type[Payload]]:
    """Every kind that Coterie itself declares; tests declare kinds of their own."""
    return {kind: payload for kind, payload in declared_kinds().items() if payload.__module__.startswith("coterie.")}


def owner(payload: type[Payload]) -> str:
    """The room a kind belongs to: `kernel`, `modes/story` …"""
    _, room, *rest = payload.__module__.split(".")
    return f"{room}/{rest[0]}" if room in ("modes", "surfaces") and rest else room


def events_page() -> str:
    kinds = sorted(declared_payloads().values(), key=lambda payload: (owner(payload), payload.kind))
    lines = [GENERATED, "", _HEAD, ""]
    rows = []
    for room, held in groupby(kinds, owner):
        names = ", ".join(f"[`{one.kind}`](#{one.kind})" for one in held)
        rows.append((code(room), names))
    lines += [*table(("room", "kinds"), rows), ""]
    for room, held in groupby(kinds, owner):
        lines += [f"## {room}", ""]
        for payload in held:
            lines += _kind(payload)
    lines += ["## Shapes inside them", ""]
    for shape in _shapes(kinds):
        lines += [f"### {shape.__name__}", ""]
        if told := _own_doc(shape):
            lines += [told, ""]
        lines += [*_fields(shape), ""]
    return "\n".join(lines).rstrip() + "\n"


def _kind(payload: type[Payload]) -> list[str]:
    lines = [f"### {payload.kind} {{ #{payload.kind} }}", "", _own_doc(payload), ""]
    where = payload.__module__.removeprefix("coterie.").replace(".", "/") + ".py"
    lines += [f"Version {payload.version}, `{payload.__name__}` in `{where}`.", ""]
    if payload.model_fields:
        lines += [*_fields(payload), ""]
    return lines


def _own_doc(shape: type[BaseModel]) -> str:
    """Its own words: a class without any would tell those of its base."""
    return first_paragraph(shape.__dict__.get("__doc__"))


def _fields(shape: type[BaseModel]) -> list[str]:
    said = field_descriptions(shape)
    rows = [
        (code(name), code(type_name(info.annotation)), _default(info), said[name])
        for name, info in shape.model_fields.items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    if info.default_factory not in (None, dict, list, tuple):
        return "made anew"  # an id or a time: not the same twice
    value = info.get_default(call_default_factory=True)
    return code("{}" if isinstance(value, BaseModel) else json.dumps(value, ensure_ascii=False, default=str))


def _shapes(kinds: list[type[Payload]]) -> list[type[BaseModel]]:
    """Models that fields are made of, and those inside them."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = list(kinds)
    while waiting:
        for info in waiting.pop().model_fields.values():
            for one in classes_in(info.annotation):
                if issubclass(one, BaseModel) and one.__name__ not in found:
                    found[one.__name__] = one
                    waiting.append(one)
    return [found[name] for name in sorted(found)]
