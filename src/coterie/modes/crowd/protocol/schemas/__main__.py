"""Writes every schema to its file."""

from __future__ import annotations

from coterie.modes.crowd.protocol.schemas import FOLDER, SHAPES, written

for shape in SHAPES:
    (FOLDER / f"{shape.schema_name()}.json").write_text(written(shape), encoding="utf-8")
