"""Errors of rooms and turns.

RoomError
├── NoSuchRoom         there is no room with this id
├── NoSuchTurn         the room has no such turn
├── Busy               a reply is running in the room
└── PermissionDenied   the person may not do this here
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class RoomError(CoterieError):
    exit_code = 30


class NoSuchRoom(RoomError):
    http_status = 404


class NoSuchTurn(RoomError):
    http_status = 404


class Busy(RoomError):
    http_status = 409


class PermissionDenied(RoomError):
    exit_code = 31
