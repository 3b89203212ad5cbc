"""A data folder as SillyTavern keeps it, made for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coterie.characters.cards import Card, export_card

Line = dict[str, Any]


def card(name: str, **fields: object) -> bytes:
    data = {"name": name, "description": f"{name} keeps the ferry.", "first_mes": "Aye?", "extensions": {}, **fields}
    document = {"spec": "chara_card_v2", "spec_version": "2.0", "data": data, "chat": f"{name} - today"}
    return export_card(Card.read(document), "png").data


def said(name: str, text: str, *, user: bool = False, **fields: object) -> Line:
    line = {"name": name, "is_user": user, "is_system": False, "send_date": "2024-03-01T12:00:00.000Z", "mes": text}
    return {**line, "extra": {}, **fields}


def write_lines(path: Path, *lines: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")


HEADER: Line = {"user_name": "Ana", "character_name": "Nils", "create_date": "2024-3-1@12h00m00s", "chat_metadata": {}}
CHAT: list[Line] = [
    said("Nils", "Aye?", swipes=["Ahoy.", "Aye?"], swipe_id=1, swipe_info=[{"extra": {}}, {"extra": {"model": "m"}}]),
    said("Ana", '*sits* "Across, please."', user=True, extra={"isSmallSys": False}),
    said("Nils", "Two coins.", swipes=["Free.", "Two coins.", "No."], swipe_id=1, gen_started="2024-03-01T12:00:01Z"),
    said("Nils", "And hold on.", extra={"api": "openai", "token_count": 4}),
    said("System", "The player paused.", is_system=True, extra={"type": "narrator"}),
    said("Ana", "", user=True),
    said("Ana", "Here.", user=True, swipes=["Here.", "There."], swipe_id=0),
    said("Nils", "Mind the step.", force_avatar="/thumbnail?file=Nils.png", unknown={"deep": [1, 2.5, None]}),
]
GROUP: list[Line] = [
    said("Nils", "Who is there?", original_avatar="Nils.png"),
    said("Ana", "Both of you, hello.", user=True),
    said("Runa", "Hello.", original_avatar="Runa.png", swipes=["Hello.", "Go away."], swipe_id=0),
    said("Nils", "Hm.", original_avatar="Nils.png"),
]
BOOK: Line = {
    "entries": {
        "0": {"uid": 0, "key": ["ferry"], "keysecondary": [], "content": "The ferry leaves at six.", "order": 100},
        "1": {"uid": 1, "key": ["toll"], "keysecondary": [], "content": "The toll is two coins.", "disable": True},
    }
}


def make_folder(root: Path) -> Path:
    """SillyTavern's folder; the data is in `data/default-user`."""
    user = root / "data" / "default-user"
    (user / "characters").mkdir(parents=True)
    (user / "characters" / "Nils.png").write_bytes(card("Nils"))
    (user / "characters" / "Runa.png").write_bytes(card("Runa"))
    write_lines(user / "chats" / "Nils" / "First trip.jsonl", HEADER, *CHAT)
    (user / "groups").mkdir()
    group = {"id": "77", "name": "Crew", "members": ["Nils.png", "Runa.png"], "chats": ["Crew night"]}
    (user / "groups" / "77.json").write_text(json.dumps(group))
    write_lines(user / "group chats" / "Crew night.jsonl", {**HEADER, "character_name": "unused"}, *GROUP)
    (user / "worlds").mkdir()
    (user / "worlds" / "Harbour.json").write_text(json.dumps(BOOK))
    (user / "TextGen Settings").mkdir()
    (user / "TextGen Settings" / "Warm.json").write_text(json.dumps({"temp": 1.2, "min_p": 0.05}))
    power = {
        "personas": {"a.png": "Ana", "b.png": "Bo"},
        "persona_descriptions": {"a.png": {"description": "A cartographer."}},
        "default_persona": "a.png",
    }
    (user / "settings.json").write_text(json.dumps({"username": "Ana", "power_user": power}))
    return root
