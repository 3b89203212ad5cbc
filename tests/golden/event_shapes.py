"""What every kind of event looked like when it was last settled (`python -m tests.golden.event_shapes` does that).

A log outlives the code that wrote it. Whoever changes a shape so that older events no longer fit must say so with a
new version and an upcaster; a field that may be left out can be added without.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.reference.events import declared_payloads
from tools.reference.markdown import type_name

SETTLED = Path(__file__).with_name("event_shapes.json")
Shapes = dict[str, dict[str, str]]
"""By kind and version; of each field its type, with a `?` where it may be left out."""


def shapes() -> Shapes:
    return {
        f"{kind} {payload.version}": {
            name: type_name(info.annotation) + ("" if info.is_required() else "?")
            for name, info in payload.model_fields.items()
        }
        for kind, payload in sorted(declared_payloads().items())
    }


def unfit(before: Shapes, now: Shapes) -> list[str]:
    """The places where an event of the earlier shape cannot be read any more."""
    found = []
    for name, fields in before.items():
        kind, version = name.split()
        versions = [int(one.split()[1]) for one in now if one.split()[0] == kind]
        if not versions:
            found.append(f"{kind} is gone")
        elif int(version) in versions:
            there = now[name]
            found += [
                f"{kind}.{field} is not what it was" for field, kept in fields.items() if there.get(field) != kept
            ]
            found += [
                f"{kind}.{field} is new" for field in there if field not in fields and not there[field].endswith("?")
            ]
    return found


if __name__ == "__main__":
    SETTLED.write_text(json.dumps(shapes(), indent=1) + "\n")
