"""The chat gateway: validates, moderates, numbers, stores and broadcasts messages. It never calls a model."""

from coterie.modes.crowd.gateway.admission import (
    Admission,
    Admitted,
    ChatIdentity,
    ChatTokens,
    Refused,
    RoomLimits,
    changed_modes,
    check_guest_name,
)
from coterie.modes.crowd.gateway.gateway import (
    MAX_OUTSTANDING_BYTES,
    ChatRoom,
    Encoding,
    Fanout,
    Frame,
    Gateway,
    Socket,
)

__all__ = [
    "MAX_OUTSTANDING_BYTES",
    "Admission",
    "Admitted",
    "ChatIdentity",
    "ChatRoom",
    "ChatTokens",
    "Encoding",
    "Fanout",
    "Frame",
    "Gateway",
    "Refused",
    "RoomLimits",
    "Socket",
    "changed_modes",
    "check_guest_name",
]
