"""Writes every schema to its file."""

from __future__ import annotations

from coterie.modes.crowd.protocol.schemas import FOLDER, MESSAGE_TYPES, schema_text

for shape in MESSAGE_TYPES:
    (FOLDER / f"{shape.schema_name()}.json").write_text(schema_text(shape), encoding="utf-8")
