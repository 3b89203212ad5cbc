"""How the chat is going: how fast, about what, how much of it is personas, and in what mood. C15"""

from __future__ import annotations

from pydantic import Field

from coterie.modes.crowd.protocol.chat_message import RoomName
from coterie.modes.crowd.protocol.wire import WireMessage, WireModel


class TrendCount(WireModel):
    what: str
    times: int = Field(ge=1)


class Trends(WireMessage):
    shape = "trends"

    room: RoomName
    ts: int
    velocity: float = Field(ge=0)
    """Messages a second, over the last seconds."""
    top_tokens: tuple[TrendCount, ...] = ()
    top_emotes: tuple[TrendCount, ...] = ()
    bot_fraction: float = Field(ge=0, le=1)
    top_mentions: tuple[TrendCount, ...] = ()
    mood: float = Field(ge=-1, le=1)
    """From gloomy to delighted."""
