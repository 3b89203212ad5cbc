"""Room keys: what opens what others write. Megolm, the receiving side.

A key counts only for the person whose device gave it to us: whoever wrote something must be whose key opens it. A place
in a key's row opens one event and no other, so that nobody can say old words again in another's name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from vodozemac import ExportedSessionKey, InboundGroupSession, MegolmMessage, SessionKey

from coterie.kernel.cabinet import Cabinet, Place
from coterie.surfaces.matrix.crypto.own_device import PICKLE_KEY
from coterie.surfaces.matrix.crypto.pairwise import Unopenable
from coterie.surfaces.matrix.crypto.signing import Json

_KEYS = "room keys"


class NoKey(Unopenable):
    """We were not given the key, or only from a later place on."""


@dataclass
class RoomKey:
    room: str
    sender: str
    sender_key: str
    pickle: str
    heard: dict[str, str] = field(default_factory=dict)
    """The event at each place that was opened."""


class RoomKeys:
    def __init__(self, cabinet: Cabinet) -> None:
        self._cabinet = cabinet
        self._noted: dict[Place, str | None] = {}

    def take(
        self, room: str, sender: str, sender_key: str, session: str, key: str, *, exported: bool = False
    ) -> dict[Place, str | None]:
        """What to keep of a key we were given. One that opens less than what we have is not taken."""
        try:
            made = (
                InboundGroupSession.import_session(ExportedSessionKey(key))
                if exported
                else InboundGroupSession(SessionKey(key))
            )
        except ValueError as error:
            raise Unopenable(str(error)) from error
        if made.session_id != session:
            raise Unopenable("the key is not what it says it is")
        place = (_KEYS, f"{room} {session}")
        before = self._kept(room, session)
        if before is not None:
            known = InboundGroupSession.from_pickle(before.pickle, PICKLE_KEY)
            if before.sender != sender or known.first_known_index <= made.first_known_index:
                return {}
        heard = before.heard if before is not None else {}
        return {place: json.dumps(asdict(RoomKey(room, sender, sender_key, made.pickle(PICKLE_KEY), heard)))}

    def opens(self, room: str, event: Json) -> bool:
        """Whether we have what would open it, now."""
        try:
            self._fitting(room, event)
        except Unopenable:
            return False
        return True

    def open(self, room: str, event: Json) -> Json:
        """The event as it was before it was sealed. Raises `NoKey` where one may still come."""
        key, line, message = self._fitting(room, event)
        try:
            opened = line.decrypt(message)
            told = json.loads(opened.plaintext)
        except ValueError as error:
            raise Unopenable(str(error)) from error
        at, before = str(opened.message_index), key.heard.get(str(opened.message_index))
        if before not in (None, event["event_id"]):
            raise Unopenable("said before, as another event")
        if not isinstance(told, dict) or told.get("room_id") != room or not isinstance(told.get("content"), dict):
            raise Unopenable("meant for another room")
        if before is None:
            key.heard[at] = str(event["event_id"])
            self._noted[_KEYS, f"{room} {line.session_id}"] = json.dumps(asdict(key))
        plain = {**told["content"]}
        if "m.relates_to" in event["content"]:
            plain["m.relates_to"] = event["content"]["m.relates_to"]
        return {**event, "type": str(told.get("type", "")), "content": plain}

    def noted(self) -> dict[Place, str | None]:
        """Which places were opened since this was last asked."""
        noted, self._noted = self._noted, {}
        return noted

    def _fitting(self, room: str, event: Json) -> tuple[RoomKey, InboundGroupSession, MegolmMessage]:
        content = event["content"]
        try:
            session, message = str(content["session_id"]), MegolmMessage.from_base64(str(content["ciphertext"]))
        except (KeyError, ValueError) as error:
            raise Unopenable(str(error)) from error
        key = self._kept(room, session)
        if key is None:
            raise NoKey("no key for this")
        if key.sender != event.get("sender"):
            raise Unopenable("somebody else's key")
        line = InboundGroupSession.from_pickle(key.pickle, PICKLE_KEY)
        if message.message_index() < line.first_known_index:
            raise NoKey("the key begins later")
        return key, line, message

    def _kept(self, room: str, session: str) -> RoomKey | None:
        place = (_KEYS, f"{room} {session}")
        told = self._noted.get(place) or self._cabinet.get(*place)
        return RoomKey(**json.loads(told)) if told is not None else None
