"""A Twitch chat of 10,000 lines, made here in Twitch's wire format, played through the bridge into a live room.

Viewers write, answer each other and mention personas; moderators delete lines, time viewers out and ban them;
connections are cut, and the server asks for reconnects. Counted are lines of viewers that are missing in the room or
appear twice, rulings beside those that were expected, and the share of mentions that the mentioned persona answers.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from pathlib import Path

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from bench.lib.twitch_server import TwitchServer, privmsg, settle
from coterie.app import all_projections
from coterie.base.clock import SystemClock
from coterie.base.supervisor import Supervisor
from coterie.eventstore import Store
from coterie.llm import Models, ModelsSettings
from coterie.memory import Memory
from coterie.modes.crowd import ChatMessage, CrowdConfigs, CrowdRuled, CrowdService, CrowdSettings, RoomTwitch
from coterie.surfaces.twitch import TwitchBridge, TwitchSettings

_ROOM = """
name = "stage"
title = "The stage"
[tempo]
typing_per_s = 60
[limits]
burst = 100
per_minute = 1000
"""
_VIEWERS = 900
_DELETE, _TIMEOUT, _BAN = 0.004, 0.001, 0.001
_MENTION = 0.01
_CUT_EVERY, _RECONNECT_EVERY, _PING_EVERY = 700, 1_500, 400


def vocabulary() -> list[str]:
    """Words of the shipped personas' lines."""
    lines = (line for persona in CrowdConfigs().personas().values() for line in persona.complete_lines())
    return sorted({word for line in lines for word in re.findall(r"[a-z]{4,12}", line)})


def sentence(chance: random.Random, words: list[str]) -> str:
    return " ".join(chance.sample(words, chance.randint(4, 9)))


async def play(folder: Path, total: int, per_s: float) -> dict[str, object]:
    (folder / "configs" / "rooms").mkdir(parents=True)
    (folder / "configs" / "rooms" / "stage.toml").write_text(_ROOM)
    # The stream says something from time to time, as one does.
    feed = folder / "stream.txt"
    feed.write_text("let me look at the map\n")
    store = Store.open(folder / "coterie.db", projections=all_projections())
    clock = SystemClock()
    supervisor = Supervisor(clock)
    models = Models(ModelsSettings(), store=store)
    crowd = CrowdService(
        store, Memory(store, clock=clock), models, clock, folder / "configs", CrowdSettings(), supervisor
    )
    server = TwitchServer("streamer")
    await server.start()
    room = await crowd.start("stage", str(feed), line_source="phrasebook")
    twitch = RoomTwitch(channel="streamer")
    bridge = TwitchBridge(room.gateway, store.bus, TwitchSettings(url=server.url), twitch)
    bridging = supervisor.start("twitch: stage", bridge.run)
    await settle(lambda: len(server.joined) == 2)
    chance, words = random.Random(7), vocabulary()
    personas = [persona.name for persona in room.authored_personas]
    sent: dict[str, str] = {}
    """Twitch's id → text of the lines that must be in the room."""
    mentions: dict[str, str] = {}
    deleted: set[str] = set()
    silenced: set[str] = set()
    by_viewer: dict[str, list[str]] = {}
    began, expected_rulings = time.monotonic(), 0
    for number in range(total):
        viewer = f"viewer_{chance.randrange(_VIEWERS)}"
        if viewer in silenced:  # Twitch does not let them write
            viewer = f"calm_{number}"
        twitch_id, text = f"line-{number}", sentence(chance, words)
        if chance.random() < _MENTION:
            mentioned = chance.choice(personas)
            text, mentions[twitch_id] = f"@{mentioned} {text}?", mentioned
        recent = list(sent)[-20:]
        reply_to = chance.choice(recent) if recent and chance.random() < 0.05 else ""
        sent[twitch_id] = text
        by_viewer.setdefault(viewer, []).append(twitch_id)
        await server.send([privmsg("streamer", viewer, text, twitch_id, reply_to)])
        action = chance.random()
        if action < _DELETE and recent:
            target = chance.choice(recent)
            if target not in deleted:
                deleted.add(target)
                expected_rulings += 1
                await server.send(
                    [f"@login=x;target-msg-id={target};tmi-sent-ts={number} :tmi.twitch.tv CLEARMSG #streamer :x"]
                )
        elif action < _DELETE + _TIMEOUT + _BAN:
            silenced.add(viewer)
            gone = [each for each in by_viewer[viewer] if each not in deleted]
            deleted.update(gone)
            expected_rulings += 1 + len(gone)
            duration = "ban-duration=600;" if action < _DELETE + _TIMEOUT else ""
            await server.send(
                [f"@{duration}room-id=1;tmi-sent-ts={number} :tmi.twitch.tv CLEARCHAT #streamer :{viewer}"]
            )
        if number % _CUT_EVERY == _CUT_EVERY - 1 and len(server.joined) == 2:
            await server.cut(server.joined[number % 2])
        if number % _RECONNECT_EVERY == _RECONNECT_EVERY - 1:
            await server.send([":tmi.twitch.tv RECONNECT"])
        if number % _PING_EVERY == 0:
            await server.ping()
        if number % 300 == 0:
            with feed.open("a") as stream:
                stream.write(f"chat, what do we do with number {number}?\n")
        progress(number + 1, total, "lines")
        await asyncio.sleep(max(0.0, began + (number + 1) / per_s - time.monotonic()))
    log("all lines sent")
    await asyncio.sleep(15)  # for the last answers
    await bridging.stop()
    await crowd.close()
    await supervisor.stop()
    await models.close()
    await server.stop()
    events = [event.payload for event in store.reader.read("room:stage", limit=10_000_000)]
    stored = [message for event in events if isinstance(message := getattr(event, "message", None), ChatMessage)]
    counted = Counter((message.nonce or "").removeprefix("tw-") for message in stored)
    rulings = sum(isinstance(event, CrowdRuled) for event in events)
    here = {message.id: (message.nonce or "").removeprefix("tw-") for message in stored}
    answered = {
        here.get(message.reply_to or "")
        for message in stored
        if message.author.kind == "persona"
        and mentions.get(here.get(message.reply_to or "", "")) == message.author.name
    }
    wanted = [twitch_id for twitch_id in mentions if twitch_id not in deleted]
    store.close()
    return {
        "lines": total,
        "lost": sum(not counted[twitch_id] for twitch_id in sent),
        "doubled": sum(max(0, counted[twitch_id] - 1) for twitch_id in sent),
        "mention_answered": round(len(answered & set(wanted)) / max(1, len(wanted)), 4),
        "mentions": len(wanted),
        "rulings": rulings,
        "rulings_expected": expected_rulings,
        "connections": server.joins,
        "refused_by_moderation": bridge.refused,
        "bad_lines_sent_to_twitch": len(server.problems),
        "lines_per_s": per_s,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--per-second", type=float, default=50)
    options = parser.parse_args()
    with scratch_folder() as folder:
        finish(asyncio.run(play(Path(folder), 1_000 if options.quick else options.lines, options.per_second)))


if __name__ == "__main__":
    main()
