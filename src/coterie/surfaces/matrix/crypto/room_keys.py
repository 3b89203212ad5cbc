"""Room keys: what opens what others write. Megolm, the receiving side.

A key counts only for the person whose device gave it to us: whoever wrote something must be whose key opens it. A place
in a key's row opens one event and no other, so that nobody can say old words again in another's name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from vodozemac import ExportedSessionKey, InboundGroupSession, MegolmMessage, SessionKey

from coterie.kernel.cabinet import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.own_device import PICKLE_KEY
from coterie.surfaces.matrix.crypto.pairwise import Undecryptable
from coterie.surfaces.matrix.crypto.signing import Json

_INBOUND = "room keys"


class MissingKey(Undecryptable):
    """We were not given the key, or only from a later place on."""


@dataclass
class InboundKey:
    room: str
    sender: str
    sender_key: str
    pickle: str
    heard: dict[str, str] = field(default_factory=dict)
    """The event at each place that was opened."""


class InboundSessions:
    def __init__(self, cabinet: KeyStore) -> None:
        self._cabinet = cabinet
        self._noted: dict[KeyPath, str | None] = {}

    def add_key(
        self, room: str, sender: str, sender_key: str, session: str, key: str, *, exported: bool = False
    ) -> dict[KeyPath, str | None]:
        """What to keep of a key we were given. One that opens less than what we have is not taken."""
        try:
            made = (
                InboundGroupSession.import_session(ExportedSessionKey(key))
                if exported
                else InboundGroupSession(SessionKey(key))
            )
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        if made.session_id != session:
            raise Undecryptable("the key is not what it says it is")
        place = (_INBOUND, f"{room} {session}")
        before = self._kept(room, session)
        if before is not None:
            known = InboundGroupSession.from_pickle(before.pickle, PICKLE_KEY)
            if before.sender != sender or known.first_known_index <= made.first_known_index:
                return {}
        heard = before.heard if before is not None else {}
        return {place: json.dumps(asdict(InboundKey(room, sender, sender_key, made.pickle(PICKLE_KEY), heard)))}

    def can_decrypt(self, room: str, event: Json) -> bool:
        """Whether we have what would open it, now."""
        try:
            self._fitting(room, event)
        except Undecryptable:
            return False
        return True

    def decrypt(self, room: str, event: Json) -> Json:
        """The event as it was before it was sealed. Raises `NoKey` where one may still come."""
        key, line, message = self._fitting(room, event)
        try:
            opened = line.decrypt(message)
            told = json.loads(opened.plaintext)
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        at, before = str(opened.message_index), key.heard.get(str(opened.message_index))
        if before not in (None, event["event_id"]):
            raise Undecryptable("said before, as another event")
        if not isinstance(told, dict) or told.get("room_id") != room or not isinstance(told.get("content"), dict):
            raise Undecryptable("meant for another room")
        if before is None:
            key.heard[at] = str(event["event_id"])
            self._noted[_INBOUND, f"{room} {line.session_id}"] = json.dumps(asdict(key))
        plain = {**told["content"]}
        if "m.relates_to" in event["content"]:
            plain["m.relates_to"] = event["content"]["m.relates_to"]
        return {**event, "type": str(told.get("type", "")), "content": plain}

    def take_changes(self) -> dict[KeyPath, str | None]:
        """Which places were opened since this was last asked."""
        noted, self._noted = self._noted, {}
        return noted

    def _fitting(self, room: str, event: Json) -> tuple[InboundKey, InboundGroupSession, MegolmMessage]:
        content = event["content"]
        try:
            session, message = str(content["session_id"]), MegolmMessage.from_base64(str(content["ciphertext"]))
        except (KeyError, ValueError) as error:
            raise Undecryptable(str(error)) from error
        key = self._kept(room, session)
        if key is None:
            raise MissingKey("no key for this")
        if key.sender != event.get("sender"):
            raise Undecryptable("somebody else's key")
        line = InboundGroupSession.from_pickle(key.pickle, PICKLE_KEY)
        if message.message_index() < line.first_known_index:
            raise MissingKey("the key begins later")
        return key, line, message

    def _kept(self, room: str, session: str) -> InboundKey | None:
        place = (_INBOUND, f"{room} {session}")
        told = self._noted.get(place) or self._cabinet.get(*place)
        return InboundKey(**json.loads(told)) if told is not None else None
