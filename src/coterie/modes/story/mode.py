"""What the story mode brings to the house: its views and its work."""

from __future__ import annotations

from coterie.kernel import View
from coterie.modes.story.chats import Chats
from coterie.modes.story.edges import Edges
from coterie.modes.story.prompts import Prompts


def views() -> list[View]:
    return [Chats(), Edges(), Prompts()]
