"""Finding a session in the log: from where a room was last opened to where it ends."""

from __future__ import annotations

from coterie.kernel import LogReader, Payload
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import CrowdOpened, room_stream

_PAGE = 5_000


def last_session_events(reader: LogReader, room: str) -> list[Payload]:
    opened = reader.read(room_stream(room), kinds=[CrowdOpened.kind], limit=1, newest_first=True)
    if not opened:
        raise BadRecording(
            f"Nothing was recorded in the room {room}.", f"Begin with: coterie crowd run --room {room} …"
        )
    found: list[Payload] = []
    after = opened[0].seq - 1
    while page := reader.read(room_stream(room), after=after, limit=_PAGE):
        found.extend(event.payload for event in page)
        after = page[-1].seq
    return found
