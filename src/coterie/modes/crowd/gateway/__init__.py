"""The gateway: validates, moderates, numbers, stores and broadcasts. Fast and boring; no model on its path. C3, C4"""

from coterie.modes.crowd.gateway.door import Admitted, Door, Stopped
from coterie.modes.crowd.gateway.fanout import MOST_WAITING, Encoding, Fanout, Frame, Socket
from coterie.modes.crowd.gateway.gateway import Gateway
from coterie.modes.crowd.gateway.limits import RoomLimits
from coterie.modes.crowd.gateway.room import Room

__all__ = [
    "MOST_WAITING",
    "Admitted",
    "Door",
    "Encoding",
    "Fanout",
    "Frame",
    "Gateway",
    "Room",
    "RoomLimits",
    "Socket",
    "Stopped",
]
