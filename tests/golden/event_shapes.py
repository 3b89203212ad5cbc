"""The fields of every kind of event as last accepted; `python -m tests.golden.event_shapes` accepts the current ones.

A change that older stored events do not fit needs a new version and an upcaster. Optional fields may be added freely.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.reference.events import declared_payloads
from tools.reference.markdown import type_name

ACCEPTED = Path(__file__).with_name("event_shapes.json")
Shapes = dict[str, dict[str, str]]
"""Kind and version → field → its type, with a `?` if it is optional."""


def shapes() -> Shapes:
    return {
        f"{kind} {payload.version}": {
            name: type_name(info.annotation) + ("" if info.is_required() else "?")
            for name, info in payload.model_fields.items()
        }
        for kind, payload in sorted(declared_payloads().items())
    }


def unfit(before: Shapes, now: Shapes) -> list[str]:
    """The differences that make events of the earlier shape unreadable."""
    problems = []
    for name, fields in before.items():
        kind, version = name.split()
        versions = [int(key.split()[1]) for key in now if key.split()[0] == kind]
        if not versions:
            problems.append(f"{kind} is gone")
        elif int(version) in versions:
            current = now[name]
            problems += [
                f"{kind}.{field} is not what it was" for field, type_ in fields.items() if current.get(field) != type_
            ]
            problems += [
                f"{kind}.{field} is new"
                for field in current
                if field not in fields and not current[field].endswith("?")
            ]
    return problems


if __name__ == "__main__":
    ACCEPTED.write_text(json.dumps(shapes(), indent=1) + "\n")
