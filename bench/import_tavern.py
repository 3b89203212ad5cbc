"""Moving in from SillyTavern: what is imported from its data folder, and exported again, equals what it wrote.

A SillyTavern from npm on loopback is filled through its own API with random characters (with lorebooks), chats with
swipes, groups and world info. Its folder is imported by `coterie import`, which is killed several times on the way and
started again. Then everything is exported: cards as PNG, chats as JSONL, world info as JSON.

The definition, fixed before the first run: `characters`, `messages`, `swipes` and `entries` (of world info and of the
lorebooks of cards) count what SillyTavern wrote to its files and Coterie gave back in an export. `differences` counts
the fields of all these files that are missing, added or different in the export, at any depth, and whole files that
are missing. `doubled` counts characters and chats beyond one for each file, after a second complete import as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from bench.lib.peers import PeerMissing
from bench.lib.report import arguments, finish, log, scratch_folder
from bench.lib.sillytavern import served_sillytavern

_Document = dict[str, Any]
_WORDS = [
    *("harbour", "lamp", "rain", "ferry", "coin", "letter", "winter", "brother", "door", "piano", "salt", "wire"),
    *(
        "*smiles*",
        "*waits*",
        '"Aye."',
        "„Grüße“",
        "星",
        "🌊",
        "{{user}}",
        "{{char}}",
        "<START>",
        "((aside))",
        "**bold**",
    ),
    *("---", "#", "`", "~", "\n", "\\", "\t", "<b>", "&amp;"),
]
_USER = "Ana"


class Filler:
    """Fills a SillyTavern through its API with random content."""

    def __init__(self, address: str, seed: int) -> None:
        self._client = httpx.Client(base_url=address, timeout=120)
        self._chance = random.Random(seed)

    def fill(self, characters: int, chats: int, messages: int, books: int, entries: int) -> None:
        worlds = [self._book(f"World {number}", entries) for number in range(books)]
        avatars = [self._character(f"Person {number}", worlds[number % books]) for number in range(characters)]
        for number in range(chats):
            name = f"Person {number % characters} - 2026-1-{number % 28 + 1}@1{number % 10}h00m0{number % 7}s {number}"
            avatar = avatars[number % characters]
            lines = self._chat([(avatar, f"Person {number % characters}")], self._chance.randint(1, 2 * messages))
            self._post("chats/save", {"avatar_url": avatar, "file_name": name, "chat": lines})
        for number in range(max(1, chats // 8)):
            members = self._chance.sample(list(enumerate(avatars)), min(3, characters))
            ids = [f"group chat {number}-{part}" for part in range(2)]
            group = {"name": f"Group {number}", "members": [avatar for _, avatar in members], "chats": ids,
                     "chat_id": ids[0], "allow_self_responses": False, "activation_strategy": 0}  # fmt: skip
            self._post("groups/create", group)
            for chat in ids:
                speakers = [(avatar, f"Person {index}") for index, avatar in members]
                lines = self._chat(speakers, self._chance.randint(1, 2 * messages), group=True)
                self._post("chats/group/save", {"id": chat, "chat": lines})

    def _post(self, path: str, body: object) -> httpx.Response:
        return self._client.post(f"/api/{path}", json=body).raise_for_status()

    def _text(self, most: int = 40) -> str:
        return " ".join(self._chance.choices(_WORDS, k=self._chance.randint(0, most)))

    def _book(self, name: str, entries: int) -> str:
        chance = self._chance
        book = {
            "entries": {
                str(uid): {
                    "uid": uid, "key": [f"key{uid}", self._text(2)], "keysecondary": [self._text(1)],
                    "comment": self._text(3), "content": self._text(), "constant": chance.random() < 0.1,
                    "selective": chance.random() < 0.5, "selectiveLogic": chance.randint(0, 3), "order": uid * 10,
                    "position": chance.randint(0, 6), "disable": chance.random() < 0.1, "depth": chance.randint(0, 9),
                    "probability": chance.randint(1, 100), "useProbability": True, "sticky": chance.randint(0, 3),
                    "cooldown": None, "group": "", "groupOverride": False, "excludeRecursion": False,
                    "displayIndex": uid, "addMemo": True, "vectorized": False, "characterFilter":
                    {"isExclude": False, "names": [], "tags": []},
                }
                for uid in range(entries)
            }
        }  # fmt: skip
        self._post("worldinfo/edit", {"name": name, "data": book})
        return name

    def _character(self, name: str, world: str) -> str:
        character = {
            "ch_name": name, "description": self._text(), "personality": self._text(9), "scenario": self._text(),
            "first_mes": self._text(), "mes_example": f"<START>\n{self._text()}", "creator_notes": self._text(9),
            "system_prompt": self._text(9), "post_history_instructions": self._text(9), "tags": "sea, rain",
            "creator": "bench", "character_version": "1.0", "alternate_greetings": [self._text(), self._text()],
            "depth_prompt_prompt": self._text(9), "depth_prompt_depth": 3, "depth_prompt_role": "user",
            "talkativeness": 0.4, "fav": "false", "extensions": json.dumps({"bench/x": {"a": [1, None, "ü"]}}),
            "world": world if self._chance.random() < 0.5 else "",
        }  # fmt: skip
        return self._post("characters/create", character).text

    def _chat(self, speakers: list[tuple[str, str]], messages: int, *, group: bool = False) -> list[_Document]:
        chance = self._chance
        note = {"note_prompt": self._text(9), "note_interval": 1, "note_position": 1, "note_depth": 4, "note_role": 0}
        metadata = {**note, "variables": {"a": 1}, "timedWorldInfo": {}}
        lines: list[_Document] = [
            {"chat_metadata": metadata, "user_name": "unused" if group else _USER, "character_name": "unused"}
        ]
        for number in range(messages):
            kind = chance.choices(("reply", "user", "system", "hidden"), (10, 8, 1, 1))[0]
            avatar, name = chance.choice(speakers)
            is_user = kind == "user" or (kind == "hidden" and chance.random() < 0.5)
            line: _Document = {
                "name": _USER if is_user else name,
                "is_user": is_user,
                "is_system": kind in ("system", "hidden"),
                "send_date": f"2026-01-{number % 28 + 1:02}T10:00:{number % 60:02}.000Z",
                "mes": self._text(),
                "extra": {"isSmallSys": False} if is_user else {"api": "openai", "model": "m", "token_count": number},
            }
            if kind == "reply":
                line |= {"gen_started": "2026-01-01T10:00:00.000Z", "gen_finished": "2026-01-01T10:00:09.000Z"}
                self._add_swipes(line)
            if is_user and chance.random() < 0.2:
                line |= {"swipes": [line["mes"], self._text()], "swipe_id": 0}
            if group and not is_user:
                line |= {"original_avatar": avatar, "force_avatar": f"/thumbnail?type=avatar&file={avatar}"}
            lines.append(line)
        return lines

    def _add_swipes(self, line: _Document) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            return
        swipes = [self._text() for _ in range(chance.randint(1, 5))]
        chosen = chance.randrange(len(swipes))
        line["mes"] = swipes[chosen] if chance.random() < 0.9 else self._text()  # edited by hand
        info = [{"send_date": line["send_date"], "extra": {"model": f"m{number}"}} for number in range(len(swipes))]
        line |= {"swipes": swipes, "swipe_id": chosen, "swipe_info": info}


def differences(path: str, written: object, exported: object) -> Iterator[str]:
    """The fields of two JSON values that are not the same."""
    if isinstance(written, dict) and isinstance(exported, dict):
        for name in sorted({*written, *exported}, key=str):
            if name in written and name in exported:
                yield from differences(f"{path}.{name}", written[name], exported[name])
            else:
                yield f"{path}.{name} {'is missing' if name in written else 'was added'}"
    elif isinstance(written, list) and isinstance(exported, list):
        if len(written) != len(exported):
            yield f"{path}: {len(written)} became {len(exported)}"
        for number, (one, other) in enumerate(zip(written, exported, strict=False)):
            yield from differences(f"{path}[{number}]", one, other)
    elif written != exported or type(written) is not type(exported):
        yield f"{path}: {str(written)[:60]!r} became {str(exported)[:60]!r}"


def card_in(data: bytes, name: str) -> _Document:
    from coterie.characters import import_card

    return import_card(data, name).card.document


def lines_of(data: bytes) -> list[_Document]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def import_folder(home: Path, folder: Path, kills: int, chance: random.Random) -> int:
    """Import with the command, killed a number of times on the way. Returns how often it was killed before its end."""
    environment = {**os.environ, "COTERIE_HOME": str(home)}
    command = [sys.executable, "-m", "coterie", "import", str(folder)]
    started = time.monotonic()
    killed = 0
    while True:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            output, _ = process.communicate(timeout=chance.uniform(3, 12) if killed < kills else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
            continue
        if process.returncode:
            raise SystemExit(f"The import failed:\n{output}")
        log("\n".join(output.splitlines()[-9:]))
        log(f"Imported in {time.monotonic() - started:.0f} s, killed {killed} times.")
        return killed


async def compare(home: Path, data: Path) -> dict[str, object]:
    from coterie.app import App, open_store
    from coterie.base.paths import Paths
    from coterie.characters import export_card
    from coterie.eventstore import verify
    from coterie.modes.story import export_chat
    from coterie.settings import Settings

    paths = Paths.locate({"COTERIE_HOME": str(home)})
    found: list[str] = []
    counts: Counter[str] = Counter()
    with open_store(paths) as store:
        app = App(paths, Settings(), store)
        queries = app.sillytavern.queries
        runs = [run for run in queries.runs() if run.ended is not None]
        taken = {one.path: one for run in runs for one in queries.items(run.id) if one.outcome in ("taken", "changed")}
        files = [*(data / "characters").glob("*.png"), *(data / "worlds").glob("*.json"),
                 *(data / "chats").rglob("*.jsonl"), *(data / "group chats").glob("*.jsonl")]  # fmt: skip
        for file in sorted(files):
            path = str(file.relative_to(data))
            item = taken.get(path)
            if item is None:
                found.append(f"{path} is missing")
                continue
            written: object
            exported: object
            match path.split("/")[0]:
                case "characters":
                    counts["characters"] += 1
                    written = card_in(file.read_bytes(), file.name)
                    card = app.workspaces.card_with_files(app.characters.get(item.target))
                    exported = card_in(export_card(card, "png").data, "card.png")
                    book = (exported.get("data") or {}).get("character_book") or {}
                    counts["entries"] += len(book.get("entries", []))
                case "worlds":
                    written = json.loads(file.read_text(encoding="utf-8"))
                    exported = queries.document(item.run, item.item, path)
                    counts["entries"] += len((exported or {}).get("entries", {}))
                case _:
                    written = lines_of(file.read_bytes())
                    exported = lines_of(await export_chat(app.story, item.target, "jsonl"))
                    counts["messages"] += len(exported) - 1
                    counts["swipes"] += sum(len(line.get("swipes", [])) for line in exported)
            found += differences(path, written, exported)
        chats = sum(path.parent.name != "worlds" and path.suffix == ".jsonl" for path in files)
        doubled = len(app.story.chats.chats()) - chats + len(app.characters.all()) - counts["characters"]
        problems = verify(store.reader, store.projections).problems
    for line in found[:40]:
        log(f"  {line}")
    keys = ("characters", "messages", "swipes", "entries")
    return {
        **{key: counts[key] for key in keys},
        "differences": len(found),
        "doubled": doubled,
        "verify_failures": len(problems),
    }


def run(quick: bool, kills: int, seed: int) -> dict[str, object]:
    with scratch_folder() as folder:
        tavern, home = Path(folder) / "st", (Path(folder) / "home").absolute()
        home.mkdir()
        try:
            with served_sillytavern(tavern) as address:
                if quick:
                    Filler(address, seed).fill(characters=4, chats=8, messages=30, books=2, entries=8)
                else:
                    Filler(address, seed).fill(characters=20, chats=80, messages=120, books=10, entries=40)
        except PeerMissing as missing:
            return {"characters": None, "messages": None, "swipes": None, "entries": None, "differences": None,
                    "why": str(missing)}  # fmt: skip
        data = tavern / "data" / "default-user"
        log("SillyTavern is filled.")
        killed = import_folder(home, tavern.absolute(), kills, random.Random(seed))
        import_folder(home, tavern.absolute(), 0, random.Random(seed))
        return {**asyncio.run(compare(home, data)), "kills": killed}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=None, help="how often the import is killed (default: 5; quick: 1)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kills = options.kills if options.kills is not None else 1 if options.quick else 5
    finish(run(options.quick, kills, options.seed))


if __name__ == "__main__":
    main()
