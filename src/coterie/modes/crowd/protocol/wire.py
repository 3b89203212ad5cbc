"""What every shape of the contract has in common: it reads JSON, keeps what it does not know, and names its trouble."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.modes.crowd.errors import BadWireMessage

_set_attribute = object.__setattr__


class WireModel(BaseModel):
    """A piece of a shape. Unknown fields stay: a newer producer may say more than an older reader understands."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)


class WireMessage(WireModel):
    message_type: ClassVar[str]
    version: ClassVar[int] = 1

    @classmethod
    def from_json(cls, raw: str | bytes) -> Self:
        """From JSON. `BadWire` names the first thing that does not fit."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise bad_wire_message(cls.message_type, error) from None

    @classmethod
    def from_validated(cls, fields: dict[str, Any], extra: dict[str, Any]) -> Self:
        """From fields that were all validated already, every one of them, in their order. Looks at nothing again."""
        made = cls.__new__(cls)
        _set_attribute(made, "__dict__", fields)
        _set_attribute(made, "__pydantic_fields_set__", _all_fields(cls))
        _set_attribute(made, "__pydantic_extra__", extra)
        _set_attribute(made, "__pydantic_private__", None)
        return made

    @classmethod
    def schema_name(cls) -> str:
        return f"{cls.message_type}.v{cls.version}"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        told = cls.model_json_schema()
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:coterie:crowd:{cls.message_type}:{cls.version}",
            **told,
        }

    def to_json(self) -> str:
        """As JSON, with what was left out left out."""
        return self.model_dump_json(exclude_none=True)


def bad_wire_message(shape: str, error: ValidationError) -> BadWireMessage:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the whole"
    return BadWireMessage(
        f"This is no {shape}: {place}: {first['msg']}.", f"Send what schemas/{shape}.v1.json describes."
    )


@cache
def _all_fields(shape: type[WireMessage]) -> set[str]:
    """Shared by all of a shape: they are frozen, and a copy copies it."""
    return set(shape.model_fields)
