"""What happens to the cast: characters are written and rewritten, and the person says who they are."""

from __future__ import annotations

from typing import Any

from coterie.characters.identity import Identity
from coterie.eventstore import Payload


class CharacterAuthored(Payload, kind="bot_authored"):
    """A character was created, or written anew. Every version stays readable."""

    identity: Identity
    """Who it is from now on, all of it; its `id` says which character."""
    card: dict[str, Any] | None = None
    """The card it came from, as it was read, so that it goes out again unchanged."""


class CharacterReset(Payload, kind="bot_reset"):
    """A character's life starts over; who it is stays."""

    bot: str
    """The character's id."""


class OwnerAuthored(Payload, kind="you_authored"):
    """Who the person is, to the characters."""

    name: str
    """What characters call the person."""
    pronouns: str = ""
    """Told after the name, such as `she/her`; may be empty."""
    persona: str = ""
    """What characters are told about the person; may be empty."""


class CharacterDeleted(Payload, kind="bot_deleted"):
    """A character is no longer among the cast. Its chats stay readable, and writing it anew brings it back."""

    bot: str
    """The character's id."""
