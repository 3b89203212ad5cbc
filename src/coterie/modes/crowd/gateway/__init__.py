"""The gateway: validates, moderates, numbers, stores and broadcasts. Fast and boring; no model on its path. C3, C4"""

from coterie.modes.crowd.gateway.door import Admission, Admitted, Rejected
from coterie.modes.crowd.gateway.fanout import MAX_OUTSTANDING_BYTES, Encoding, Fanout, Frame, Socket
from coterie.modes.crowd.gateway.gateway import Gateway
from coterie.modes.crowd.gateway.limits import RoomLimits
from coterie.modes.crowd.gateway.room import ChatRoom

__all__ = [
    "MAX_OUTSTANDING_BYTES",
    "Admitted",
    "Admission",
    "Encoding",
    "Fanout",
    "Frame",
    "Gateway",
    "ChatRoom",
    "RoomLimits",
    "Socket",
    "Rejected",
]
