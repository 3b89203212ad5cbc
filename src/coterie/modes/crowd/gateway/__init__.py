"""The gateway: validates, moderates, numbers, stores and broadcasts. Fast and boring; no model on its path. C3, C4"""

from coterie.modes.crowd.gateway.admission import Admission, Admitted, Rejected, RoomLimits
from coterie.modes.crowd.gateway.fanout import MAX_OUTSTANDING_BYTES, Encoding, Fanout, Frame, Socket
from coterie.modes.crowd.gateway.gateway import ChatRoom, Gateway

__all__ = [
    "MAX_OUTSTANDING_BYTES",
    "Admission",
    "Admitted",
    "ChatRoom",
    "Encoding",
    "Fanout",
    "Frame",
    "Gateway",
    "Rejected",
    "RoomLimits",
    "Socket",
]
