"""What can be wrong with a room or a turn.

RoomError
├── NoSuchRoom        there is no room with this id
├── NoSuchTurn        the room has no such turn
└── Busy              somebody is speaking in the room
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class RoomError(CoterieError):
    exit_code = 30


class NoSuchRoom(RoomError):
    pass


class NoSuchTurn(RoomError):
    pass


class Busy(RoomError):
    pass
